#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Usage: fuzz.sh SECONDS [TARGET...]
# Runs the fuzz targets of build/fuzz one after the other, each for SECONDS. Inputs that reach new
# code are kept in build/fuzz/found/TARGET; what breaks a target lies in build/fuzz/crashes.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
seconds=${1:?usage: fuzz.sh SECONDS [TARGET...]}
shift
mkdir -p "$root/build/fuzz/crashes"

programs=()
if [[ $# -eq 0 ]]; then
  for program in "$root"/build/fuzz/tests/fuzz_*; do
    [[ -f $program && -x $program ]] && programs+=("$program")
  done
else
  for target in "$@"; do
    programs+=("$root/build/fuzz/tests/fuzz_${target#fuzz_}")
  done
fi
if [[ ${#programs[@]} -eq 0 ]]; then
  echo "$0: no fuzz target in build/fuzz/tests" >&2
  exit 1
fi

failed=0
for program in "${programs[@]}"; do
  thing=${program##*/fuzz_}
  found=$root/build/fuzz/found/$thing
  corpus=$root/tests/fuzz/corpus/$thing
  mkdir -p "$found"
  arguments=("$found")
  [[ -d $corpus ]] && arguments+=("$corpus")
  echo "== $thing, $seconds s"
  if ! "$program" -max_total_time="$seconds" -max_len=65536 -timeout=10 -rss_limit_mb=2048 \
    -print_final_stats=1 -artifact_prefix="$root/build/fuzz/crashes/$thing-" \
    "${arguments[@]}" 2>"$found.log"; then
    tail -n 40 "$found.log" >&2
    echo "== $thing FAILED, log in $found.log" >&2
    failed=1
    continue
  fi
  grep -E 'stat::number_of_executed_units|^Done' "$found.log"
done
exit "$failed"
