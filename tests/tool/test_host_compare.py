# SPDX-License-Identifier: Apache-2.0
"""bench/host/compare.py, with short runs of `orbite bench`, whose figures decide nothing."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from test_orbite_tool import TOOL

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench" / "host"))

import compare  # noqa: E402

WAYS = [("shm", 4), ("shm", 0), ("cma", 4), ("cma", 0), ("tcp", 4)]


def run(out: Path, *arguments: str, tool: Path = TOOL) -> tuple[int, dict]:
    status = compare.main(["--tool", str(tool), "--out", str(out), *arguments])
    return status, json.loads((out / "host.json").read_text(encoding="utf-8"))


def test_every_way_is_run_with_its_transport_and_shown(tmp_path, capsys) -> None:
    status, document = run(tmp_path, "--shapes", "4K", "--threads", "1,2", "--seconds", "0.02")
    assert status == 0
    found = [(one["threads"], one["transport"], one["workers"]) for one in document["results"]]
    assert sorted(found) == sorted((threads, *way) for threads in (1, 2) for way in WAYS)
    for one in document["results"]:
        measured = one["measured"]
        assert (measured["transport"], measured["threads"]) == (one["transport"], one["threads"])
        for operation in measured["operations"]:
            assert operation["route"] == one["transport"]
            assert operation["verified"]["ok"] is True
    shown = capsys.readouterr().out.splitlines()
    rows = [line.split() for line in shown if line.startswith(("1 ", "2 "))]
    assert [row[:2] for row in rows] == [["1", "WRITE"], ["1", "READ"], ["2", "WRITE"],
                                         ["2", "READ"]]


def fake_tool(folder: Path, body: str) -> Path:
    tool = folder / "orbite"
    tool.write_text(f"#!/bin/sh\n[ $1 = --version ] && exit 0\n{body}\n", encoding="utf-8")
    tool.chmod(0o755)
    return tool


def test_a_run_that_fails_is_named_with_its_reason(tmp_path, capsys) -> None:
    tool = fake_tool(tmp_path, "echo 'orbite: no way there' >&2; exit 1")
    status, document = run(tmp_path, "--shapes", "4K", "--threads", "1", tool=tool)
    assert status == 1
    assert {one["reason"] for one in document["results"]} == {"orbite: no way there"}
    shown = capsys.readouterr().out
    assert "FAILED 4K, 1 threads, tcp, 4 workers: orbite: no way there" in shown


def test_a_run_that_does_not_end_is_ended_and_the_rest_is_not_begun(tmp_path, capsys) -> None:
    tool = fake_tool(tmp_path, "exec sleep 60")
    status, document = run(tmp_path, "--shapes", "4K", "--threads", "1", "--time-max", "0.2",
                           tool=tool)
    assert status == 1
    states = [one["state"] for one in document["results"]]
    assert states == ["failed", "not run", "not run", "not run", "not run"]
    assert "4 of 5 runs were not made" in capsys.readouterr().out


def test_without_the_executable_nothing_is_run(tmp_path, capsys) -> None:
    assert compare.main(["--tool", str(tmp_path / "none"), "--out", str(tmp_path)]) == 2
    assert "cannot be run" in capsys.readouterr().err


@pytest.mark.parametrize(("workers", "names"), [
    ([4, 0], ["shm, 4 workers", "shm, 0 workers", "cma, 4 workers", "cma, 0 workers", "tcp"]),
    ([2], ["shm, 2 workers", "cma, 2 workers", "tcp"])])
def test_only_copies_have_workers(workers, names) -> None:
    assert [way.name for way in compare.ways(workers)] == names
