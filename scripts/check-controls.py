#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the table of docs/controls.md against the tests.

The table has a row for each demand of a control: control, demand, tests that are run 50 times,
tests that are run once. Tests are named as pytest (`test_x`), GoogleTest (`Suite.Case`) and CTest
(`name.of-it`) name them. Complained of: a control of N01 to N10 that is missing, or that has no
test through the agent or none on the backend's methods; a test that is named and does not exist;
one of the column "50 times" without `repeats(50)` in its body, or of the column "once" with it; a
test that bears the number of a control and is not in its rows. A control may be `not built`.

usage: check-controls.py [ROOT]        exit 1 and one line for each complaint
       check-controls.py --self-test   plants each kind of error and expects it to be reported
"""

from __future__ import annotations

import ast
import re
import sys
import tempfile
from pathlib import Path

CONTROLS = [f"N{number:02}" for number in range(1, 11)]
REPEATED = "repeats(50)"
NOT_BUILT = "not built"
ROW = re.compile(r"^\| *(N\d\d) *\|([^|]*)\|([^|]*)\|([^|]*)\|$", re.M)
GTEST = re.compile(r"^TEST(?:_[FP])?\(\s*(\w+),\s*(\w+)\)\s*\{$(.*?)^\}", re.M | re.S)
AGENT, DIRECT, OTHER = "through the agent", "on the backend's methods", "below the plugin"


class Test:
    def __init__(self, place: str, body: str):
        self.place = place
        self.repeated = REPEATED in body


def find_tests(root: Path) -> dict[str, Test]:
    tests: dict[str, Test] = {}
    for path in sorted(root.glob("tests/**/test_*.py")):
        text = path.read_text(encoding="utf-8")
        place = AGENT if path.parent == root / "tests" / "nixl" else OTHER
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                tests[node.name] = Test(place, ast.get_source_segment(text, node) or "")
    for path in sorted(root.glob("tests/**/*.cpp")):
        place = DIRECT if path.parent == root / "tests" / "nixl" / "direct" else OTHER
        for suite, case, body in GTEST.findall(path.read_text(encoding="utf-8")):
            tests[f"{suite}.{case}"] = Test(place, body)
    for path in sorted(root.glob("tests/**/CMakeLists.txt")):
        text = path.read_text(encoding="utf-8")
        for name in re.findall(r"add_test\(NAME ([\w.-]+)\s", text):
            tests[name] = Test(OTHER, "")
    return tests


def control_of(name: str) -> str | None:
    """The control whose number a test bears."""
    match = re.match(r"test_n(\d\d)_|N(\d\d)\w*\.", name)
    return f"N{match.group(1) or match.group(2)}" if match else None


def check_row(control: str, cells: list[str], tests: dict[str, Test]) -> list[str]:
    complaints = []
    for column, cell in zip(("50 times", "once"), cells, strict=True):
        for name in re.findall(r"`([^`]+)`", cell):
            test = tests.get(name)
            if test is None:
                complaints.append(f"{control}: there is no test {name}")
            elif test.repeated != (column == "50 times"):
                said = "does not say" if column == "50 times" else "says"
                complaints.append(
                    f"{control}: {name} stands under '{column}' and {said} {REPEATED}")
    return complaints


def check(root: Path) -> list[str]:
    tests = find_tests(root)
    rows = ROW.findall((root / "docs" / "controls.md").read_text(encoding="utf-8"))
    complaints = []
    for control in CONTROLS:
        own = [row[1:] for row in rows if row[0] == control]
        if not own:
            complaints.append(f"{control}: no row in docs/controls.md")
            continue
        named = {name for row in own for cell in row[1:] for name in re.findall(r"`([^`]+)`", cell)}
        bearing = {name for name in tests if control_of(name) == control}
        complaints += [f"{control}: {name} is not in its rows" for name in sorted(bearing - named)]
        for _, *cells in own:
            complaints += check_row(control, cells, tests)
        if any(NOT_BUILT in cell for row in own for cell in row):
            continue
        places = {tests[name].place for name in named if name in tests}
        complaints += [f"{control}: no test {place}" for place in (AGENT, DIRECT)
                       if place not in places]
    return complaints


GOOD = {
    "tests/nixl/test_a.py": "def test_n01_a():\n    pass\n\n\ndef test_n01_b():\n"
                            "    for _ in repeats(50):\n        pass\n",
    "tests/nixl/direct/a_test.cpp": "TEST(N01Direct, Case) {\n  int i;\n}\n"
                                    "TEST_F(Other, Often) {\n  repeats(50);\n}\n",
    "tests/bridge/CMakeLists.txt": "add_test(NAME bridge.needs\n  COMMAND x)\n",
    "docs/controls.md": "| control | demand | 50 times | once |\n|---|---|---|---|\n"
                        "| N01 | all | `test_n01_b` `Other.Often` | `test_n01_a` `N01Direct.Case` "
                        "`bridge.needs` |\n"
                        + "".join(f"| {control} | not built | | |\n" for control in CONTROLS[1:]),
}
# What is changed of it: file, text, replacement, what is complained of.
FAULTS = [
    ("docs/controls.md", "| N05 | not built | | |\n", "", "N05: no row"),
    ("docs/controls.md", "`bridge.needs`", "`bridge.needless`", "no test bridge.needless"),
    ("docs/controls.md", "`Other.Often`", "`Other.Never`", "no test Other.Never"),
    ("docs/controls.md", "`test_n01_a` ", "", "test_n01_a is not in its rows"),
    ("docs/controls.md", "`N01Direct.Case` ", "", "N01Direct.Case is not in its rows"),
    ("docs/controls.md", "| N02 | not built |", "| N02 | built |",
     "N02: no test through the agent"),
    ("docs/controls.md", "| N02 | not built | | |", "| N02 | built | | `test_n01_a` |",
     "N02: no test on the backend's methods"),
    ("tests/nixl/test_a.py", "repeats(50)", "range(50)", "test_n01_b stands under '50 times'"),
    ("tests/nixl/direct/a_test.cpp", "repeats(50)", "repeats(5)", "Other.Often stands under '50"),
    ("tests/nixl/direct/a_test.cpp", "int i", "repeats(50)", "N01Direct.Case stands under 'once'"),
    ("tests/nixl/test_a.py", "def test_n01_b", "def helper_b", "there is no test test_n01_b"),
]


def complaints_with(changes: dict[str, str]) -> list[str]:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        for file, text in (GOOD | changes).items():
            path = root / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return check(root)


def self_test() -> int:
    failures = [f"complains of what is right: {line}" for line in complaints_with({})]
    for file, old, new, expected in FAULTS:
        assert old in GOOD[file], old
        if not any(expected in line
                   for line in complaints_with({file: GOOD[file].replace(old, new)})):
            failures.append(f"does not complain: {expected}")
    for line in failures:
        print(f"check-controls self-test: {line}", file=sys.stderr)
    if not failures:
        print(f"check-controls self-test: {len(FAULTS) + 1} cases as expected")
    return 1 if failures else 0


def main(arguments: list[str]) -> int:
    if arguments == ["--self-test"]:
        return self_test()
    if len(arguments) > 1:
        print((__doc__ or "").strip(), file=sys.stderr)
        return 2
    root = Path(arguments[0]) if arguments else Path(__file__).resolve().parents[1]
    complaints = check(root)
    for line in complaints:
        print(line)
    if not complaints:
        print("check-controls: every control has its tests")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
