#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Usage: run-ctest.sh PRESET [CTEST-ARGUMENT...]
# Runs the tests of a preset and judges the result strictly: a test that was skipped, disabled or
# could not start counts as a failure, and so does a run without tests.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
preset=$1
shift
report=$root/build/test-results/ctest-$preset.xml
mkdir -p "$root/build/test-results"
rm -f "$report"

runner=()
# ThreadSanitizer's memory layout does not fit every kernel's address randomisation.
if [[ $preset == tsan ]] && setarch -R true 2>/dev/null; then
  runner=(setarch -R)
fi

cd "$root"
rc=0
"${runner[@]}" ctest --preset "$preset" -j "${JOBS:-$(nproc)}" --output-junit "$report" "$@" ||
  rc=$?
scripts/test-report.py "$report" || rc=1
exit "$rc"
