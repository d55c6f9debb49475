#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Usage: test.sh STAGE...
#   checks  scripts that check the tree and themselves; each header alone; the canary of fuzzing
#   dev     all C++ tests, optimised, with assertions
#   asan    the same under AddressSanitizer and UndefinedBehaviorSanitizer
#   tsan    the same but the fuzz corpora under ThreadSanitizer
#   python  the release plugin in the real NIXL agent, the Python package, and the orbite command
# ORBITE_TEST_REPEATS=N makes N times as many rounds of every test that repeats itself.
# Every stage runs even when an earlier one failed; a build that fails ends its stage.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
jobs=${JOBS:-$(nproc)}
results=$root/build/test-results
mkdir -p "$results"
rm -f "$results"/*.xml

build() {
  make "build/$1/build.ninja" && cmake --build --preset "$1" -j "$jobs" --target "${@:2}"
}

stage_checks() {
  local rc=0 script
  for script in check-layers check-style check-controls test-report; do
    "scripts/$script.py" --self-test || rc=1
  done
  scripts/check-layers.py || rc=1
  scripts/check-style.py || rc=1
  scripts/check-controls.py || rc=1
  build dev check-headers || rc=1
  { build fuzz fuzz_canary && scripts/fuzz.sh --canary; } || rc=1
  return "$rc"
}

stage_ctest() {
  build "$1" all && scripts/run-ctest.sh "$1"
}

stage_python() {
  make plugin tool && scripts/venv.sh nixl test || return 1
  ORBITE_TOOL=build/bin/orbite \
    build/venv/bin/python -m pytest tests/nixl tests/python tests/tool -q -p no:cacheprovider \
    --junitxml="$results/pytest.xml"
}

if [[ $# -eq 0 ]]; then
  set -- checks dev asan tsan python
fi
failed=()
expected=()
for stage in "$@"; do
  began=$SECONDS
  echo "== $stage"
  rc=0
  case $stage in
    checks) stage_checks || rc=$? ;;
    dev | asan | tsan)
      expected+=("$results/ctest-$stage.xml")
      stage_ctest "$stage" || rc=$?
      ;;
    python)
      expected+=("$results/pytest.xml")
      stage_python || rc=$?
      ;;
    *)
      echo "$0: no stage '$stage'; stages: checks dev asan tsan python" >&2
      exit 2
      ;;
  esac
  verdict=passed
  if [[ $rc -ne 0 ]]; then
    failed+=("$stage")
    verdict=FAILED
  fi
  echo "== $stage $verdict after $((SECONDS - began)) s"
done

rc=0
if [[ ${#expected[@]} -ne 0 ]]; then
  scripts/test-report.py "${expected[@]}" || rc=1
fi
if [[ ${#failed[@]} -ne 0 ]]; then
  echo "failed stages: ${failed[*]}"
  rc=1
fi
exit "$rc"
