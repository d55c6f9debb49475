#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The default configuration has neither the bridge nor the plugin; asked for, the bridge is there.
# Arguments: source directory, then what to pass to each cmake run.
set -eu

source=$1
shift

build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
pattern='orbite_nixl|nixl_plugin|plugin_ORBITE'

configure() {
  directory=$1
  shift
  cmake -S "$source" -B "$build/$directory" -G Ninja "$@" > "$build/log" 2>&1 || {
    cat "$build/log"
    exit 1
  }
  ninja -C "$build/$directory" -t targets all > "$build/$directory.targets"
}

configure default "$@"
if grep -E "$pattern" "$build/default.targets"; then
  echo "the default build has the targets above"
  exit 1
fi
if grep -E 'orbite_nixl|nixl\.h|orbite-nixl' "$build/default/cmake_install.cmake"; then
  echo "the default build installs the lines above"
  exit 1
fi
configure bridge -DORBITE_BUILD_NIXL_BRIDGE=ON "$@"
if ! grep -q 'liborbite_nixl\.so' "$build/bridge.targets"; then
  echo "the build with the bridge has no liborbite_nixl.so: the search above proves nothing"
  exit 1
fi
echo "the default build has neither bridge nor plugin"
