#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Usage: venv.sh GROUP...
# Makes build/venv and installs requirements/GROUP.txt into it. A stamp for each group holds what
# was installed, so that a second call does nothing.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv=$root/build/venv

can_make_venv() {
  "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

find_python() {
  local candidate
  for candidate in python3 /usr/bin/python3; do
    if can_make_venv "$candidate"; then
      echo "$candidate"
      return 0
    fi
  done
  return 1
}

make_venv() {
  local python
  if ! python=$(find_python); then
    "$root/scripts/install-deps.sh" python
    python=$(find_python) || {
      echo "$0: no python3 >= 3.11 that can make virtual environments" >&2
      exit 1
    }
  fi
  rm -rf "$venv"
  mkdir -p "$root/build"
  "$python" -m venv "$venv"
}

# What a group installs, with the files that it includes.
wanted() {
  cat "$root/requirements/$1.txt"
  sed -n 's/^-r //p' "$root/requirements/$1.txt" | while read -r file; do
    cat "$root/requirements/$file"
  done
}

if [[ $# -eq 0 ]]; then
  echo "usage: $0 GROUP...; groups: $(cd "$root/requirements" && echo *.txt | sed 's/\.txt//g')" >&2
  exit 2
fi

# A moved checkout or a removed interpreter leaves a venv that does not start.
if ! "$venv/bin/python" -c 'import sys; sys.exit(sys.prefix != sys.argv[1])' "$venv" 2>/dev/null
then
  make_venv
fi

for group in "$@"; do
  if [[ ! -f $root/requirements/$group.txt ]]; then
    echo "$0: no group '$group' (no file requirements/$group.txt)" >&2
    exit 2
  fi
  stamp=$venv/.installed-$group
  if [[ -f $stamp ]] && [[ $(<"$stamp") == "$(wanted "$group")" ]]; then
    continue
  fi
  # The files name every package with its version; --no-deps keeps anything else out.
  "$venv/bin/python" -m pip install --quiet --no-deps --disable-pip-version-check \
    --requirement "$root/requirements/$group.txt" </dev/null
  wanted "$group" >"$stamp"
done
