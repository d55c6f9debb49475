# SPDX-License-Identifier: Apache-2.0
# Makes DESTINATION a NIXL_PLUGIN_DIR: PLUGIN, and BRIDGE under the name SONAME by which PLUGIN
# asks for it. NIXL takes files named libplugin_*.so there for plugins, so nothing else has such a
# name. A file is replaced by renaming, never written over: a process may have it mapped.

foreach(variable PLUGIN BRIDGE SONAME DESTINATION)
  if(NOT ${variable})
    message(FATAL_ERROR "${variable} is not set")
  endif()
endforeach()

function(place source name)
  file(COPY_FILE "${source}" "${DESTINATION}/.${name}.new")
  file(RENAME "${DESTINATION}/.${name}.new" "${DESTINATION}/${name}")
endfunction()

file(MAKE_DIRECTORY "${DESTINATION}")
file(GLOB bridges_before "${DESTINATION}/liborbite_nixl.so*")
foreach(path IN LISTS bridges_before)
  if(NOT path STREQUAL "${DESTINATION}/${SONAME}")
    file(REMOVE "${path}")
  endif()
endforeach()
get_filename_component(plugin_name "${PLUGIN}" NAME)
place("${BRIDGE}" "${SONAME}")
place("${PLUGIN}" "${plugin_name}")
# For those who open the bridge by name, to ask it for its counters.
if(NOT SONAME STREQUAL "liborbite_nixl.so")
  file(CREATE_LINK "${SONAME}" "${DESTINATION}/liborbite_nixl.so" SYMBOLIC)
endif()
