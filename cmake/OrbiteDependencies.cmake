# SPDX-License-Identifier: Apache-2.0
# orbite_dependencies: what every room may use of the system. Only libc, libm, libstdc++ and libgcc
# are linked as shared objects, so that the plugin loads on a machine that has nothing else.

find_package(Threads REQUIRED)

function(orbite_require_header header package)
  string(MAKE_C_IDENTIFIER "ORBITE_HEADER_${header}" variable)
  find_path(${variable} "${header}")
  if(NOT ${variable})
    message(FATAL_ERROR "${header} not found: install ${package} (scripts/install-deps.sh build)")
  endif()
  mark_as_advanced(${variable})
endfunction()

orbite_require_header(spdlog/spdlog.h libspdlog-dev)
orbite_require_header(fmt/format.h libfmt-dev)
orbite_require_header(tl/expected.hpp libexpected-dev)
orbite_require_header(nlohmann/json.hpp nlohmann-json3-dev)
orbite_require_header(sodium.h libsodium-dev)
orbite_require_header(xxhash.h libxxhash-dev)

find_library(ORBITE_LIBSODIUM libsodium.a)
if(NOT ORBITE_LIBSODIUM)
  message(FATAL_ERROR "libsodium.a not found: install libsodium-dev")
endif()
find_library(ORBITE_LIBXXHASH libxxhash.a)
if(NOT ORBITE_LIBXXHASH)
  message(FATAL_ERROR "libxxhash.a not found: install libxxhash-dev")
endif()
mark_as_advanced(ORBITE_LIBSODIUM ORBITE_LIBXXHASH)

add_library(orbite_dependencies INTERFACE)
# Header-only spdlog and fmt: the compiled libraries are shared objects. SPDLOG_FMT_EXTERNAL makes
# spdlog use the system's fmt, as Debian's package has no bundled copy.
target_compile_definitions(orbite_dependencies INTERFACE
  SPDLOG_HEADER_ONLY SPDLOG_FMT_EXTERNAL FMT_HEADER_ONLY)
target_link_libraries(orbite_dependencies INTERFACE
  "${ORBITE_LIBSODIUM}" "${ORBITE_LIBXXHASH}" Threads::Threads)
