// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

namespace orbite::base {

/// Does what it was given at the end of its scope, however that is left.
template <typename Work>
class AtExit {
 public:
  explicit AtExit(Work work) : work_(std::move(work)) {}
  AtExit(const AtExit&) = delete;
  AtExit& operator=(const AtExit&) = delete;
  ~AtExit() { work_(); }

 private:
  Work work_;
};

}  // namespace orbite::base
