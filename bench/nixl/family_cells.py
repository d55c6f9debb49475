# SPDX-License-Identifier: Apache-2.0
"""One case of a family by one pair: its streams run at a time, are counted and are checked."""

from __future__ import annotations

import ctypes
import time
from functools import partial

from cells import KEYS, MEASURE_WAIT_S, POLL, THREAD, Timing
from families import FIRST, Case, Family, Stream
from layouts import shape
from pair import Pair
from rounds import Cell
from stats import PERCENTILES

OTHER = {"a": "b", "b": "a"}
# Time for a command to reach both processes and for their threads to start.
LEAD_NS = 30_000_000


def cpu_ns(process_id: int) -> int:
    """CPU time, user and system, of all threads of a process."""
    clock = ctypes.c_int()
    failed = ctypes.CDLL(None).clock_getcpuclockid(process_id, ctypes.byref(clock))
    if failed:
        raise OSError(failed, f"no CPU clock of process {process_id}")
    return time.clock_gettime_ns(clock.value)


class Placed:
    """A stream's request in its area, and the content of both ends."""

    def __init__(self, pair: Pair, stream: Stream, at: int):
        self.stream, self.handle = stream, 0
        self._pair, self._at, self._target_key = pair, at, next(KEYS)
        writes = stream.op == "WRITE"
        self._source = stream.side if writes else OTHER[stream.side]
        self._fill(OTHER[self._source], self._target_key)
        self.renew()

    def prepare(self) -> None:
        self.handle = self._pair.call(
            self.stream.side, "prepare", MEASURE_WAIT_S, op=self.stream.op,
            layout=shape(self.stream.layout), local_at=self._at, remote_at=self._at)["handle"]

    def _fill(self, side: str, key: int) -> None:
        self._pair.call(side, "fill", key=key, extent=self.stream.layout.extent, at=self._at)

    def renew(self) -> None:
        """Other content in the source; the next transfer must carry it."""
        self._source_key = next(KEYS)
        self._fill(self._source, self._source_key)

    def verify(self) -> dict:
        layout = self.stream.layout
        return self._pair.call(
            OTHER[self._source], "verify", MEASURE_WAIT_S, layout=shape(layout),
            extent=layout.extent, key=self._target_key, at=self._at,
            source={"op": self.stream.op, "key": self._source_key, "order": "straight"})

    def release(self) -> None:
        self._pair.call(self.stream.side, "release", handle=self.handle)


class Runner:
    """The streams of a case, placed in a pair's regions."""

    def __init__(self, pair: Pair, mode: str, case: Case):
        self._pair, self._mode, self._case = pair, mode, case
        self.placed, at = [], 0
        for stream in case.streams:
            self.placed.append(Placed(pair, stream, at))
            at += stream.layout.extent

    @property
    def _sides(self) -> list[str]:
        return [side for side in "ab" if any(one.stream.side == side for one in self.placed)]

    def handles(self, side: str, background: bool) -> list[int]:
        return [one.handle for one in self.placed
                if (one.stream.side, one.stream.background) == (side, background)]

    def drive(self, seconds: float, quiet: bool = False) -> dict[str, dict]:
        """Every stream for that time, but at least once; `quiet` leaves out the background."""
        sides = self._sides
        for side in set("ab").difference(sides):
            if self._undriven(side):
                self._pair.call(side, "poll")
        # A side that is through goes on for the other one where nothing else drives its backend.
        names = {side: "drive_then_poll" if len(sides) > 1 and self._undriven(side) else "drive"
                 for side in sides}
        begin = time.monotonic_ns() + LEAD_NS
        for side, name in names.items():
            self._pair.workers[side].send(name, {
                "handles": self.handles(side, False), "begin_ns": begin,
                "background": [] if quiet else self.handles(side, True),
                "end_ns": begin + int(seconds * 1e9), "nap_s": self._case.nap_s})
        return {side: self._pair.workers[side].receive(name, MEASURE_WAIT_S)
                for side, name in names.items()}

    def _undriven(self, side: str) -> bool:
        """Whether a side's backend stands still while its application does; see cells.connect."""
        return self._mode == POLL or (self._mode == THREAD and side == "a")

    def bytes_of(self, driven: dict[str, dict], what: str, background: bool) -> float:
        """Payload of the transfers counted in `what`, of the foreground or of the background."""
        total = 0.0
        for side, one in driven.items():
            streams = [placed.stream for placed in self.placed
                       if (placed.stream.side, placed.stream.background) == (side, background)]
            counts = one[f"background_{what}" if background else what]
            total += sum(stream.layout.payload * count for stream, count in zip(streams, counts))
        return total

    def verify(self) -> dict:
        found = [one.verify() for one in self.placed]
        return {"bytes_verified": sum(one["bytes_verified"] for one in found),
                "bytes_compared": sum(one["bytes_compared"] for one in found),
                "bytes_wrong": sum(one["bytes_wrong"] for one in found),
                "guards_intact": all(one["guards_intact"] for one in found),
                "ok": all(one["ok"] for one in found)}

    def release(self) -> None:
        for one in self.placed:
            one.release()
        # Or a polled side would spin on a core through the cells of the others.
        self._pair.both("rest")


def steady_cell(pair: Pair, mode: str, case: Case, timing: Timing) -> dict:
    """Times reposts, then posts all streams at a time with new content and compares every byte."""
    runner = Runner(pair, mode, case)
    for one in runner.placed:
        one.prepare()
    runner.drive(timing.warm_s)
    mixed = any(stream.background for stream in case.streams)
    quiet = runner.drive(timing.budget_s, quiet=True) if mixed else None
    spent = {side: -cpu_ns(worker.process.pid) for side, worker in pair.workers.items()}
    driven = runner.drive(timing.budget_s)
    for side, worker in pair.workers.items():
        spent[side] += cpu_ns(worker.process.pid)
    for one in runner.placed:
        one.renew()
    runner.drive(0.0)
    checked = runner.verify()
    runner.release()
    return {**figures_of(runner, driven, quiet, spent, timing.budget_s), **checked}


def figures_of(runner: Runner, driven: dict, quiet: dict | None, spent: dict,
               seconds: float) -> dict:
    moved = runner.bytes_of(driven, "made", False) + runner.bytes_of(driven, "made", True)
    found = {"gbps": runner.bytes_of(driven, "within", False) / seconds / 1e9,
             "kops": sum(sum(one["within"]) for one in driven.values()) / seconds / 1e3,
             "transfers": sum(sum(one["made"]) for one in driven.values()),
             **{f"cpu_{side}_s_per_gb": value / moved for side, value in spent.items()}}
    for name in PERCENTILES:
        # Of two sides the slower one.
        found[name] = max(one[name] for one in driven.values())
    if quiet is not None:
        found["background_gbps"] = runner.bytes_of(driven, "within", True) / seconds / 1e9
        found["quiet_p99_us"] = max(one["p99_us"] for one in quiet.values())
        found["p99_factor"] = found["p99_us"] / found["quiet_p99_us"]
    return found


def first_cell(pair: Pair, mode: str, case: Case, timing: Timing) -> dict:
    """The agent's call that connects, and the first transfer after it, whose bytes are compared."""
    runner = Runner(pair, mode, case)
    if mode == POLL:
        pair.call("b", "poll")
    connected = pair.call("a", "connect")
    for one in runner.placed:
        one.prepare()
    driven = runner.drive(0.0)
    checked = runner.verify()
    runner.release()
    return {"connect_us": connected["connect_ns"] / 1000, "first_us": driven["a"]["p50_us"],
            **checked}


def cells_of(family: Family, timing: Timing) -> list[Cell]:
    measure = first_cell if family.method == FIRST else steady_cell
    patient = Timing(timing.budget_s * family.patience, timing.warm_s)

    def run(pair: Pair, mode: str, case: Case) -> dict:
        return measure(pair, mode, case, patient)

    return [Cell({"op": case.op, "case": case.name}, partial(run, case=case))
            for case in family.cases]
