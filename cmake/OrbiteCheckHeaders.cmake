# SPDX-License-Identifier: Apache-2.0
# check-headers: every header of src/ and include/ compiles when it is included first and alone.

file(GLOB_RECURSE _orbite_headers RELATIVE "${CMAKE_SOURCE_DIR}" CONFIGURE_DEPENDS
  "${CMAKE_SOURCE_DIR}/src/*.hpp" "${CMAKE_SOURCE_DIR}/include/*.hpp"
  "${CMAKE_SOURCE_DIR}/include/*.h")
set(_orbite_header_sources "")
foreach(header IN LISTS _orbite_headers)
  string(REGEX REPLACE "^(src|include)/" "" include_name "${header}")
  set(source "${CMAKE_BINARY_DIR}/check-headers/${header}.cpp")
  # The second inclusion finds a missing include guard.
  file(CONFIGURE OUTPUT "${source}"
       CONTENT "#include \"${include_name}\"\n#include \"${include_name}\"\n" @ONLY)
  list(APPEND _orbite_header_sources "${source}")
endforeach()
if(_orbite_header_sources)
  add_library(check-headers OBJECT EXCLUDE_FROM_ALL ${_orbite_header_sources})
  target_link_libraries(check-headers PRIVATE orbite)
  target_compile_options(check-headers PRIVATE -O0 -g0)
else()
  add_custom_target(check-headers)
endif()
