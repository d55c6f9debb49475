#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Usage: configure.sh PRESET
# Configures build/PRESET; the output of CMake is shown only when it fails.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
mkdir -p build
log=build/configure-$1.log
if ! cmake --preset "$1" >"$log" 2>&1; then
  cat "$log" >&2
  exit 1
fi
# Newer than CMakePresets.json, so that make does not ask again.
touch "build/$1/build.ninja"
