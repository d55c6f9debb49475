# SPDX-License-Identifier: Apache-2.0
"""The command line of a script that checks the files of a tree, and its test of itself."""
from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

# Of a tree: the complaints, "path:line: what", and how many files were looked at.
CheckTree = Callable[[Path], tuple[list[str], int]]
# A file of a made-up tree, its text, and a part of the one complaint about it; None: there is none.
Case = tuple[str, str, str | None]


def self_test(name: str, check_tree: CheckTree, cases: Sequence[Case]) -> int:
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        (root / "src/engine").mkdir(parents=True)
        for path, text, _ in cases:
            file = root / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        violations, _ = check_tree(root)
    failures = []
    for path, _, words in cases:
        reports = [line for line in violations if line.startswith(path + ":")]
        if words is None and reports:
            failures.append(f"{path}: should pass, got {reports}")
        elif words is not None and not (len(reports) == 1 and words in reports[0]):
            failures.append(f"{path}: expected one report with '{words}', got {reports}")
    for failure in failures:
        print(f"{name} self-test: {failure}", file=sys.stderr)
    if not failures:
        print(f"{name} self-test: {len(cases)} cases as expected")
    return 1 if failures else 0


def main(name: str, usage: str | None, check_tree: CheckTree, cases: Sequence[Case]) -> int:
    arguments = sys.argv[1:]
    if arguments == ["--self-test"]:
        return self_test(name, check_tree, cases)
    if len(arguments) > 1 or any(argument.startswith("-") for argument in arguments):
        print((usage or "").strip(), file=sys.stderr)
        return 2
    root = Path(arguments[0]).resolve() if arguments else Path(__file__).resolve().parents[1]
    violations, count = check_tree(root)
    for violation in violations:
        print(violation, file=sys.stderr)
    if count == 0:
        print(f"{name}: no file below {root}", file=sys.stderr)
        return 1
    if violations:
        print(f"{name}: {len(violations)} violations", file=sys.stderr)
        return 1
    print(f"{name}: {count} files keep the rules")
    return 0
