#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Usage: lint.sh [STEP...]; steps: layers style controls format tidy spelling
#   shell. Without one: all.
#   format-in-place   rewrites the sources instead
#   tidy-changed      clang-tidy on what differs from the commit LINT_BASE (default: HEAD)
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
jobs=${JOBS:-$(nproc)}
folders=(include src bridge plugins sim tools tests bench)

sources() {
  git ls-files -co --exclude-standard -- "${folders[@]}" | grep -E '\.(c|h|cpp|hpp)$' |
    while read -r file; do [[ -f $file ]] && echo "$file"; done
}

# clang-tidy reads the compile commands of GCC, whose warning options it does not all know.
tidy() {
  local files=("$@")
  [[ ${#files[@]} -eq 0 ]] && return 0
  run-clang-tidy-19 -quiet -p build/dev -j "$jobs" -extra-arg=-Wno-unknown-warning-option \
    "${files[@]}" 2>/dev/null | grep -vE '^\[|^clang-tidy|^$|warnings? generated'
  return "${PIPESTATUS[0]}"
}

step_tidy() {
  local files
  mapfile -t files < <(sources | grep '\.cpp$' | grep -E '^(src|bridge|plugins|sim|tools)/')
  tidy "${files[@]/#/$root/}"
}

step_tidy-changed() {
  local files
  mapfile -t files < <({
    git diff --name-only --diff-filter=d "${LINT_BASE:-HEAD}"
    git ls-files -o --exclude-standard
  } | grep -E '^(src|bridge|plugins|sim|tools)/.*\.cpp$' | sort -u)
  tidy "${files[@]/#/$root/}"
}

step_layers() { scripts/check-layers.py; }
step_style() { scripts/check-style.py; }
step_controls() { scripts/check-controls.py; }
step_format() { sources | xargs -r clang-format-19 --dry-run -Werror; }
step_format-in-place() { sources | xargs -r clang-format-19 -i; }
step_spelling() {
  git ls-files -co --exclude-standard | grep -vE '^(LICENSE$|tests/fuzz/corpus/)' |
    xargs -r codespell
}
step_shell() {
  shellcheck scripts/*.sh .ci/run
}

if [[ $# -eq 0 ]]; then
  set -- layers style controls format spelling shell tidy
fi
failed=()
for step in "$@"; do
  if [[ $(type -t "step_$step") != function ]]; then
    echo "$0: no step '$step'" >&2
    exit 2
  fi
  echo "== $step"
  "step_$step" || failed+=("$step")
done
if [[ ${#failed[@]} -ne 0 ]]; then
  echo "failed: ${failed[*]}" >&2
  exit 1
fi
