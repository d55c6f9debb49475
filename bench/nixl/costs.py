# SPDX-License-Identifier: Apache-2.0
"""Costs beside throughput: descriptors, idle agents, registration, sockets, busy cores."""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import sys

from cells import IDLE, POLL, Timing, claimed_route, connect, meet, run_cell
from common import Variant
from layouts import KIB, WORKLOADS, Layout, shape
from pair import Pair, WorkerFailed

DESCRIPTOR_BYTES = 2 * KIB
REPEATS = 3
REGISTERED_RANGES = 10000
SOCKET_TRANSFERS = 10000
IDLE_SECONDS = 3.0
SLOW_WAIT_S = 90.0
BUSY_SECONDS_MAX = 90
BUSY_LOOP = """
import os, sys, time
os.sched_setaffinity(0, {int(sys.argv[1])})
end = time.monotonic() + float(sys.argv[2])
print("running", flush=True)
while time.monotonic() < end:
    for _ in range(100000):
        pass
"""
CONTENDED = ("1x4KiB", "1x64MiB")
CONTENTION_ROUNDS = 5


def descriptor_costs(variant: Variant, mode: str, count: int) -> dict:
    """Nanoseconds per descriptor of making and of posting a request, to itself and to the peer."""
    layout = Layout(count, DESCRIPTOR_BYTES)
    found, ok = {}, True
    with connect(variant, mode, 2 * layout.extent, region_bytes_b=layout.extent) as pair:
        for where in ("self", "peer"):
            for style in ("list", "prepped"):
                figures = [_one_request(pair, mode, layout, where, style)
                           for _ in range(REPEATS)]
                ok = ok and all(figure.pop("ok") for figure in figures)
                for name in figures[0]:
                    values = [figure[name] / count for figure in figures]
                    found[f"{where} {style} {name}"] = statistics.median(values)
    return {"descriptors": count, "ok": ok, "ns_each": found}


def _one_request(pair: Pair, mode: str, layout: Layout, where: str, style: str) -> dict:
    """Makes a request on ready lists; style "list" also posts it twice, timed and verified."""
    to_self = where == "self"
    owner, at = ("a", layout.extent) if to_self else ("b", 0)
    made = pair.call("a", "prepare", SLOW_WAIT_S, op="WRITE", layout=shape(layout), style=style,
                     to_self=to_self, remote_at=at)
    handle = made.pop("handle")
    figures = {**made, "ok": True}
    if style == "list":
        pair.call("a", "fill", key=1, extent=layout.extent)
        pair.call(owner, "fill", key=2, extent=layout.extent, at=at)
        if mode == POLL and not to_self:
            pair.call("b", "poll")
        # The first post of a pair pays for its connection.
        pair.call("a", "post", SLOW_WAIT_S, handle=handle)
        posted = pair.call("a", "post", SLOW_WAIT_S, handle=handle)
        checked = pair.call(owner, "verify", layout=shape(layout), extent=layout.extent, key=2,
                            at=at, source={"op": "WRITE", "key": 1, "order": "straight"})
        figures.update(post_ns=posted["post_ns"], total_ns=posted["total_ns"], ok=checked["ok"])
    pair.call("a", "release", handle=handle)
    return figures


def idle_costs(variant: Variant, prog_thread: bool) -> dict:
    """CPU time and memory of two connected agents whose processes wait."""
    threads = (prog_thread, prog_thread)
    with Pair(variant, 1024 * KIB, prog_thread=threads, label="idle") as pair:
        small = WORKLOADS["1x4KiB"]
        handle = pair.call("a", "prepare", op="WRITE", layout=shape(small))["handle"]
        if not prog_thread:
            pair.call("b", "poll")
        pair.call("a", "post", handle=handle)
        pair.call("a", "release", handle=handle)
        # The first answers end the polling, so the waits below start with idle processes.
        memory = pair.both("memory")
        cpu = pair.both("cpu", {"seconds": IDLE_SECONDS})
    above = [{name: (side["now"][name] - side["without_backend"][name]) / KIB
              for name in side["now"]} for side in memory]
    created = [(side["with_backend"]["VmRSS"] - side["without_backend"]["VmRSS"]) / KIB
               for side in memory]
    return {"ok": True, "prog_thread": prog_thread,
            "cpu_percent": max(100 * side["cpu_ns"] / side["wall_ns"] for side in cpu),
            "threads": max(side["threads"] for side in cpu),
            "resident_mib": max(side["VmRSS"] for side in above),
            "resident_anonymous_mib": max(side["RssAnon"] for side in above),
            "resident_created_mib": max(created)}


def registration_costs(variant: Variant) -> dict:
    with connect(variant, IDLE, 1024 * KIB) as pair:
        times = [pair.call("a", "register_many", SLOW_WAIT_S, count=REGISTERED_RANGES,
                           size=4 * KIB, gap=128) for _ in range(REPEATS)]
    return {"ok": True, "ranges": REGISTERED_RANGES,
            "register_ms": statistics.median(one["register_ns"] for one in times) / 1e6,
            "deregister_ms": statistics.median(one["deregister_ns"] for one in times) / 1e6}


def socket_counts(variant: Variant, mode: str) -> dict:
    """Open sockets of both processes: unconnected, with all lanes open, after many transfers."""
    bulk, small = WORKLOADS["1x64MiB"], WORKLOADS["1x4KiB"]
    with connect(variant, mode, bulk.extent) as pair:
        def count():
            return [side["sockets"] for side in pair.both("sockets")]

        before = count()
        # Every kind of work once, so that every lane is open.
        cells = [run_cell(pair, mode, one, op, Timing(0.0, 0.0))
                 for one in (bulk, small) for op in ("WRITE", "READ")]
        connected = count()
        handle = pair.call("a", "prepare", op="WRITE", layout=shape(small))["handle"]
        if mode == POLL:
            pair.call("b", "poll")
        pair.call("a", "measure", SLOW_WAIT_S, handle=handle, budget_s=0,
                  iters_min=SOCKET_TRANSFERS, iters_max=SOCKET_TRANSFERS)
        after = count()
        pair.call("a", "release", handle=handle)
    growth = max(new - old for new, old in zip(after, connected))
    return {"ok": all(cell["ok"] for cell in cells), "transfers": SOCKET_TRANSFERS,
            "unconnected": before, "connected": connected, "after": after, "growth": growth}


@contextlib.contextmanager
def busy_cores():
    """One busy loop pinned on each core that this process may use; they end by themselves too."""
    loops = [subprocess.Popen([sys.executable, "-c", BUSY_LOOP, str(core), str(BUSY_SECONDS_MAX)],
                              stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
             for core in sorted(os.sched_getaffinity(0))]
    try:
        for loop in loops:
            loop.stdout.readline()
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
            loop.stdout.close()


def contention(variant: Variant, mode: str, timing: Timing) -> dict:
    """The same cells on quiet cores and with a busy loop on each, in turn: medians of the rounds.

    What a busy core gives to whom is the scheduler's draw, so one sample of it says little.
    """
    size = max(WORKLOADS[name].extent for name in CONTENDED)
    cells = [(name, op) for name in CONTENDED for op in ("WRITE", "READ")]
    rounds: dict[str, list[dict]] = {"quiet": [], "busy": []}
    with meet(variant, mode, size) as pair, claimed_route(pair):
        for _ in range(CONTENTION_ROUNDS):
            for where, loops in (("quiet", contextlib.nullcontext), ("busy", busy_cores)):
                with loops():
                    rounds[where].append({f"{op} {name}": run_cell(pair, mode, WORKLOADS[name], op,
                                                                   timing) for name, op in cells})
    ok = all(cell["ok"] for samples in rounds.values() for one in samples for cell in one.values())
    return {"ok": ok, "rounds": CONTENTION_ROUNDS,
            **{where: {cell: middle([one[cell] for one in samples]) for cell in samples[0]}
               for where, samples in rounds.items()},
            "samples": rounds}


def middle(cells: list[dict]) -> dict:
    """The median of each figure over several runs of one cell."""
    return {figure: statistics.median(cell[figure] for cell in cells)
            for figure in ("gbps", "p50_us", "mean_us")}


def guarded(measure, *arguments) -> dict:
    """A measurement, or the reason why there is none."""
    try:
        return measure(*arguments)
    except WorkerFailed as error:
        return {"ok": False, "error": str(error)}
