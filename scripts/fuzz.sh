#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Usage: fuzz.sh SECONDS [TARGET...]
#        fuzz.sh --canary
# Runs the fuzz targets of build/fuzz one after the other, each for SECONDS, and ends with a line
# for each. Inputs that reach new code are kept in build/fuzz/found/TARGET; what breaks a target
# lies in build/fuzz/crashes. --canary runs the target with a planted crash, which must be found.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${ORBITE_FUZZ_BUILD:-$root/build/fuzz}
programs_dir=$build/tests
crashes=$build/crashes
usage="usage: fuzz.sh SECONDS [TARGET...] | fuzz.sh --canary"
first=${1:?$usage}
shift
mkdir -p "$crashes" "$build/found"

canary() {
  local log=$build/found/canary.log began=$SECONDS
  rm -rf "$crashes"/canary-* "$build/found/canary"
  mkdir "$build/found/canary"  # libFuzzer writes into the first folder that it is given
  # The broken condition in the log: another crash would be a bug, and no proof.
  if "$programs_dir/fuzz_canary" -max_total_time=120 -seed=1 -max_len=4096 \
    -artifact_prefix="$crashes/canary-" "$build/found/canary" \
    "$root/tests/fuzz/corpus/wire_frame" >"$log" 2>&1 ||
    ! grep -q 0x0B1DE42E "$log" ||
    ! compgen -G "$crashes/canary-crash-*" >/dev/null; then
    tail -n 20 "$log" >&2
    echo "$0: the planted crash was not found" >&2
    return 1
  fi
  echo "the planted crash was found after $((SECONDS - began)) s"
}

# stat NAME LOG: a final statistic of libFuzzer.
stat() {
  sed -n "s/^stat::$1: *//p" "$2" | tail -n 1
}

run() {
  local program=$1 seconds=$2 thing=${1##*/fuzz_} rc=0
  local found=$build/found/$thing
  local log=$found.log
  local arguments=("$found")
  mkdir -p "$found"
  [[ -d $root/tests/fuzz/corpus/$thing ]] && arguments+=("$root/tests/fuzz/corpus/$thing")
  echo "== $thing, $seconds s"
  "$program" -max_total_time="$seconds" -max_len=65536 -timeout=10 -rss_limit_mb=2048 \
    -print_final_stats=1 -artifact_prefix="$crashes/$thing-" "${arguments[@]}" 2>"$log" || rc=$?
  if [[ $rc -ne 0 ]]; then
    tail -n 40 "$log" >&2
    echo "== $thing FAILED, log in $log" >&2
  fi
  summary+=("$(printf '%-18s %12s %9s %9s %7s  %s' "$thing" \
    "$(stat number_of_executed_units "$log")" "$(stat average_exec_per_sec "$log")" \
    "$(stat new_units_added "$log")" "$(grep -o 'cov: [0-9]*' "$log" | tail -n 1 | cut -c 6-)" \
    "$([[ $rc -eq 0 ]] && echo passed || echo FAILED)")")
  return "$rc"
}

if [[ $first == --canary ]]; then
  canary
  exit
fi
programs=()
if [[ $# -eq 0 ]]; then
  for program in "$programs_dir"/fuzz_*; do
    [[ -f $program && -x $program && $program != */fuzz_canary ]] && programs+=("$program")
  done
else
  for target in "$@"; do
    programs+=("$programs_dir/fuzz_${target#fuzz_}")
  done
fi
if [[ ${#programs[@]} -eq 0 ]]; then
  echo "$0: no fuzz target in $programs_dir" >&2
  exit 1
fi

failed=0
summary=()
for program in "${programs[@]}"; do
  run "$program" "$first" || failed=1
done
printf '%-18s %12s %9s %9s %7s  %s\n' target executions per_s new cov verdict
printf '%s\n' "${summary[@]}"
exit "$failed"
