# SPDX-License-Identifier: Apache-2.0

# orbite_add_rooms(room...): one library orbite_<room> for each src/<room> that holds files, linked
# to the rooms before it; `orbite` stands for all of them.
function(orbite_add_rooms)
  add_library(orbite INTERFACE)
  set(rooms_before "")
  foreach(room IN LISTS ARGN)
    file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/src/${room}/*.cpp")
    file(GLOB_RECURSE headers CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/src/${room}/*.hpp")
    if(sources)
      add_library(orbite_${room} STATIC ${sources})
      set(scope PUBLIC)
    elseif(headers)
      add_library(orbite_${room} INTERFACE)
      set(scope INTERFACE)
    else()
      continue()
    endif()
    target_include_directories(orbite_${room} ${scope}
      "${CMAKE_SOURCE_DIR}/src" "${CMAKE_SOURCE_DIR}/include")
    target_compile_definitions(orbite_${room} ${scope}
      ORBITE_VERSION="${PROJECT_VERSION}"
      ORBITE_BUILD_TYPE="$<IF:$<BOOL:${ORBITE_SANITIZE}>,${ORBITE_SANITIZE},$<CONFIG>>")
    # Rooms are listed from top to bottom so that the static link order is right.
    target_link_libraries(orbite_${room} ${scope} ${rooms_before} orbite_dependencies)
    list(PREPEND rooms_before orbite_${room})
  endforeach()
  target_link_libraries(orbite INTERFACE ${rooms_before} orbite_dependencies)
  target_include_directories(orbite INTERFACE
    "${CMAKE_SOURCE_DIR}/src" "${CMAKE_SOURCE_DIR}/include")
endfunction()

# The glob makes a CMakeLists.txt that appears later start a new configure run.
function(orbite_add_subdirectory_if_present directory)
  file(GLOB present CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/${directory}/CMakeLists.txt")
  if(present)
    add_subdirectory(${directory})
  endif()
endfunction()
