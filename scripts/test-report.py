#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Adds up JUnit reports of ctest and pytest and judges them strictly.

usage: test-report.py REPORT...
       test-report.py --self-test
Exit 1 when a report is missing or holds no test, or a test failed, was skipped or did not run.
The last line is `tests: N passed, N failed`.
"""

from __future__ import annotations

import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path


def complaint(case: ElementTree.Element) -> str | None:
    """Why a case does not count as passed."""
    status = case.get("status", "run")
    if case.find("failure") is not None or case.find("error") is not None or status == "fail":
        return "failed"
    if case.find("skipped") is not None or status in ("notrun", "disabled"):
        return "was skipped, disabled or could not start"
    return None if status == "run" else f"has the unknown status '{status}'"


def read_report(path: Path) -> tuple[int, list[str]]:
    """Number of passed cases and one line for each other."""
    if not path.is_file():
        return 0, [f"{path.name}: no report; the run broke off"]
    passed, complaints = 0, []
    try:
        cases = list(ElementTree.parse(path).getroot().iter("testcase"))
    except ElementTree.ParseError as error:
        return 0, [f"{path.name}: broken report: {error}"]
    for case in cases:
        reason = complaint(case)
        if reason is None:
            passed += 1
        else:
            name = "/".join(filter(None, [case.get("classname"), case.get("name")]))
            complaints.append(f"{path.name}: {name} {reason}")
    if not cases:
        complaints.append(f"{path.name}: no test ran")
    return passed, complaints


def summarize(paths: list[Path]) -> int:
    passed_total, complaints_total = 0, []
    for path in paths:
        passed, complaints = read_report(path)
        passed_total += passed
        complaints_total += complaints
    for line in complaints_total:
        print(line)
    print(f"tests: {passed_total} passed, {len(complaints_total)} failed")
    return 1 if complaints_total else 0


CASES = {
    '<testcase name="a" status="run"/>': (1, 0),
    '<testcase name="a" classname="b"/>': (1, 0),
    '<testcase name="a" status="fail"><failure/></testcase>': (0, 1),
    '<testcase name="a"><error/></testcase>': (0, 1),
    '<testcase name="a" status="notrun"><skipped/></testcase>': (0, 1),
    '<testcase name="a"><skipped/></testcase><testcase name="b"/>': (1, 1),
    '<testcase name="a" status="disabled"/>': (0, 1),
    '<testcase name="a" status="odd"/>': (0, 1),
    "": (0, 1),
    "<testcase": (0, 1),
}


def self_test() -> int:
    failures = 0
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "report.xml"
        if read_report(path)[1] == []:
            failures += 1
        for text, expected in CASES.items():
            path.write_text(f"<testsuite>{text}</testsuite>")
            passed, complaints = read_report(path)
            if (passed, len(complaints)) != expected:
                failures += 1
                print(f"test-report self-test: {text}: {passed}, {complaints}", file=sys.stderr)
    if not failures:
        print(f"test-report self-test: {len(CASES) + 1} cases as expected")
    return 1 if failures else 0


def main(arguments: list[str]) -> int:
    if arguments == ["--self-test"]:
        return self_test()
    if not arguments:
        print((__doc__ or "").strip(), file=sys.stderr)
        return 2
    return summarize([Path(argument) for argument in arguments])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
