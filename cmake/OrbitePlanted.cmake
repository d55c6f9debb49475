# SPDX-License-Identifier: Apache-2.0

# orbite_add_planted_library(room...): orbite_planted, the engine for tests alone: the listed rooms
# with the planted bugs of src/base/planted_bugs.def in them. It takes the others as they are, so
# these must not ask planted(). Each folder is one translation unit, so that it costs little to
# compile: an anonymous name may be used once in it. served_*.cpp is a unit of its own, because it
# shares names with lane.cpp.
function(orbite_add_planted_library)
  set(sources "${CMAKE_SOURCE_DIR}/src/base/planted.cpp")
  foreach(room IN LISTS ARGN)
    file(GLOB_RECURSE found CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/src/${room}/*.cpp")
    list(APPEND sources ${found})
  endforeach()
  add_library(orbite_planted STATIC EXCLUDE_FROM_ALL ${sources})
  set_target_properties(orbite_planted PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  foreach(source IN LISTS sources)
    file(RELATIVE_PATH group "${CMAKE_SOURCE_DIR}/src" "${source}")
    get_filename_component(group "${group}" DIRECTORY)
    string(MAKE_C_IDENTIFIER "${group}" group)
    if(source MATCHES "/served_[a-z_]*\\.cpp$")
      string(APPEND group "_served")
    endif()
    set_property(SOURCE "${source}" PROPERTY UNITY_GROUP "${group}")
  endforeach()
  target_compile_definitions(orbite_planted PUBLIC ORBITE_PLANTED_BUGS=1)
  target_compile_options(orbite_planted PRIVATE -O1)
  foreach(room IN LISTS ORBITE_ROOMS)
    if(TARGET orbite_${room} AND NOT room IN_LIST ARGN)
      list(PREPEND others orbite_${room})
    endif()
  endforeach()
  target_link_libraries(orbite_planted PUBLIC ${others} orbite_dependencies)
endfunction()
