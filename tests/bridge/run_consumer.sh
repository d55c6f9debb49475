#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs the bridge into a prefix of its own, builds the consumer with what pkg-config says of it,
# and runs it. Arguments: build directory, consumer source, C compiler, extra compiler flags.
set -eu

build=$1
source=$2
compiler=$3
shift 3

prefix=$(mktemp -d)
trap 'rm -rf "$prefix"' EXIT
cmake --install "$build" --prefix "$prefix" --component nixl-bridge
PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name orbite-nixl.pc)")
export PKG_CONFIG_PATH
libdir=$(pkg-config --variable=libdir orbite-nixl)
# The words of pkg-config are arguments of their own.
# shellcheck disable=SC2046
"$compiler" -std=c11 -Wall -Wextra -Wpedantic -Werror "$@" "$source" -o "$prefix/consumer" \
  $(pkg-config --cflags --libs orbite-nixl) -Wl,-rpath,"$libdir"
# It runs on the installed library, under its SONAME.
ldd "$prefix/consumer" | grep -F "liborbite_nixl.so.0 => $prefix/"
"$prefix/consumer"
