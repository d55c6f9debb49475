// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "orbite/error.hpp"

#define ORBITE_CONCAT_INNER(a, b) a##b
#define ORBITE_CONCAT(a, b) ORBITE_CONCAT_INNER(a, b)

/// Returns the error of `expression` from the enclosing function, if it is one.
#define ORBITE_TRY(expression)                                       \
  do {                                                               \
    if (auto orbite_try_result = (expression); !orbite_try_result) { \
      return ::orbite::fail(std::move(orbite_try_result).error());   \
    }                                                                \
  } while (false)

/// `ORBITE_ASSIGN_OR_RETURN(auto value, call());`
#define ORBITE_ASSIGN_OR_RETURN(declaration, expression) \
  ORBITE_ASSIGN_OR_RETURN_INNER(ORBITE_CONCAT(orbite_result_, __LINE__), declaration, expression)
#define ORBITE_ASSIGN_OR_RETURN_INNER(result, declaration, expression) \
  auto result = (expression);                                          \
  if (!result) {                                                       \
    return ::orbite::fail(std::move(result).error());                  \
  }                                                                    \
  declaration = *std::move(result)
