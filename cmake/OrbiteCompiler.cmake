# SPDX-License-Identifier: Apache-2.0
# Flags of every target below the top directory. Third-party headers come from /usr/include, which
# compilers treat as system headers, or from SYSTEM include directories.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

find_program(ORBITE_CCACHE ccache)
foreach(language C CXX)
  if(ORBITE_CCACHE AND NOT CMAKE_${language}_COMPILER_LAUNCHER)
    set(CMAKE_${language}_COMPILER_LAUNCHER "${ORBITE_CCACHE}")
  endif()
endforeach()

add_compile_options(
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -fno-omit-frame-pointer
  "$<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor;-Wold-style-cast>")
if(ORBITE_WERROR)
  add_compile_options(-Werror)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 reports -Wrestrict inside std::string concatenation (GCC bug 105651).
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>")
elseif(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  # Clang counts sign changes as conversions; GCC, whose warnings are the gate, does not in C++.
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-Wno-sign-conversion>")
endif()

set(_orbite_sanitize_flags "")
if(ORBITE_BUILD_FUZZERS)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "ORBITE_BUILD_FUZZERS needs clang++, the compiler is "
                        "${CMAKE_CXX_COMPILER_ID}")
  endif()
  if(ORBITE_SANITIZE)
    message(FATAL_ERROR "ORBITE_BUILD_FUZZERS brings its own sanitizers: leave ORBITE_SANITIZE "
                        "empty, it is '${ORBITE_SANITIZE}'")
  endif()
  add_compile_options(-fsanitize=fuzzer-no-link)
  set(_orbite_sanitize_flags -fsanitize=address,undefined -fno-sanitize-recover=all)
elseif(ORBITE_SANITIZE STREQUAL "address")
  set(_orbite_sanitize_flags -fsanitize=address,undefined -fno-sanitize-recover=all)
elseif(ORBITE_SANITIZE STREQUAL "thread")
  set(_orbite_sanitize_flags -fsanitize=thread)
elseif(NOT ORBITE_SANITIZE STREQUAL "")
  message(FATAL_ERROR "ORBITE_SANITIZE is '${ORBITE_SANITIZE}'; allowed: address, thread, empty")
endif()
if(_orbite_sanitize_flags)
  add_compile_options(${_orbite_sanitize_flags})
  add_link_options(${_orbite_sanitize_flags})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # Instrumentation hides initialisations from GCC's flow analysis.
    add_compile_options(-Wno-maybe-uninitialized)
  endif()
endif()
