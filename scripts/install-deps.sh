#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Usage: install-deps.sh GROUP...
# Makes sure that the apt packages of scripts/deps/GROUP.txt are there, each at least in the version
# named. Asks apt only when something is missing.
set -euo pipefail

deps_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/deps

if [[ $# -eq 0 ]]; then
  echo "usage: $0 GROUP...; groups: $(cd "$deps_dir" && echo *.txt | sed 's/\.txt//g')" >&2
  exit 2
fi

names=()
declare -A minimum=()
for group in "$@"; do
  if [[ ! -f $deps_dir/$group.txt ]]; then
    echo "$0: no group '$group' (no file $deps_dir/$group.txt)" >&2
    exit 2
  fi
  while read -r name version _; do
    [[ -z $name || $name == \#* ]] && continue
    names+=("$name")
    minimum[$name]=$version
  done <"$deps_dir/$group.txt"
done

# Prints "name installed-version" of each package that is missing or too old.
wanting() {
  declare -A installed=()
  local name version state
  while read -r name version state; do
    [[ $state == installed ]] && installed[$name]=$version
  done < <(dpkg-query -W -f '${Package} ${Version} ${db:Status-Status}\n' "${names[@]}" 2>/dev/null)
  for name in "${names[@]}"; do
    if [[ -z ${installed[$name]:-} ]]; then
      echo "$name none"
    elif ! dpkg --compare-versions "${installed[$name]}" ge "${minimum[$name]}"; then
      echo "$name ${installed[$name]}"
    fi
  done
}

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "$0: this is no Debian system; have these installed and skip this step:" >&2
  for name in "${names[@]}"; do
    echo "  $name >= ${minimum[$name]}" >&2
  done
  exit 1
fi

mapfile -t missing < <(wanting)
[[ ${#missing[@]} -eq 0 ]] && exit 0

as_root=()
if [[ $(id -u) -ne 0 ]]; then
  if ! command -v sudo >/dev/null; then
    echo "$0: not root and no sudo; install by hand: ${missing[*]%% *}" >&2
    exit 1
  fi
  as_root=(sudo)
  [[ -t 0 ]] || as_root=(sudo -n)
fi
apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300
  -o Dpkg::Use-Pty=0 -qq)

echo "installing: ${missing[*]%% *}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# Without the locale and dialogue packages apt has much to say that matters only when it fails.
if ! { "${apt[@]}" update &&
  "${apt[@]}" -y --no-install-recommends install "${missing[@]%% *}"; } </dev/null >"$log" 2>&1
then
  cat "$log" >&2
  exit 1
fi

mapfile -t missing < <(wanting)
if [[ ${#missing[@]} -ne 0 ]]; then
  for entry in "${missing[@]}"; do
    name=${entry%% *}
    echo "$0: $name: found ${entry#* }, needed ${minimum[$name]} or newer" >&2
  done
  exit 1
fi
