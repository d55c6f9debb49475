# SPDX-License-Identifier: Apache-2.0
"""The measured unit of the benchmark: one workload, one operation, one backend, verified."""

from __future__ import annotations

import contextlib
import itertools
from dataclasses import dataclass

from common import Variant, gigabytes_per_s, routes_used
from layouts import LATENCY_WORKLOAD, Layout, shape
from pair import Pair, WorkerFailed

MEASURE_WAIT_S = 40.0
ITERATIONS_MAX = 20000
# How a target lets its backend make progress while its application does nothing.
IDLE, POLL, THREAD = "idle", "poll", "thread"
KEYS = itertools.count(1)


@dataclass(frozen=True)
class Timing:
    budget_s: float
    warm_s: float
    iters_min: int = 3


def connect(variant: Variant, mode: str, region_bytes: int, **options) -> Pair:
    """A pair for measuring: a spinning backend has a progress thread only where the mode says."""
    threads = (False, mode == THREAD) if variant.spins else (True, True)
    return Pair(variant, region_bytes, prog_thread=threads, label="bench", **options)


def meet(variant: Variant, mode: str, region_bytes: int, **options) -> Pair:
    """connect(), and the route that the variant claims stands before anything is measured."""
    pair = connect(variant, mode, region_bytes, **options)
    try:
        if variant.route is not None:
            pair.both("connect")
    except BaseException:
        pair.kill()
        raise
    return pair


@contextlib.contextmanager
def claimed_route(pair: Pair):
    """Raises WorkerFailed unless the backend reports the variant's route for all transfers."""
    claimed = pair.variant.route
    if claimed is None:
        yield
        return
    before = pair.both("routes")
    yield
    used = [routes_used(old["counts"], new["counts"])
            for old, new in zip(before, pair.both("routes"))]
    if {name for one in used for name in one} != {claimed}:
        found = ", ".join(f"{count} by {name}" for one in used for name, count in one.items())
        raise WorkerFailed(f"{pair.variant.label}: transfers should go by {claimed}, the backend "
                           f"reports {found or 'none'}")


def run_cell(pair: Pair, mode: str, layout: Layout, op: str, timing: Timing) -> dict:
    """Times reposts of one request, then posts it with new content and compares every byte."""
    source, destination = ("a", "b") if op == "WRITE" else ("b", "a")
    first, second, target_key = next(KEYS), next(KEYS), next(KEYS)
    extent = layout.extent
    fills = {source: {"key": first, "extent": extent},
             destination: {"key": target_key, "extent": extent}}
    pair.both("fill", fills["a"], fills["b"])
    handle = pair.call("a", "prepare", op=op, layout=shape(layout))["handle"]
    if mode == POLL:
        pair.call("b", "poll")
    timed = pair.call("a", "measure", MEASURE_WAIT_S, handle=handle, budget_s=timing.budget_s,
                      warm_s=timing.warm_s, iters_min=timing.iters_min, iters_max=ITERATIONS_MAX)
    pair.call(source, "fill", key=second, extent=extent)
    if mode == POLL:
        pair.call("b", "poll")
    pair.call("a", "post", MEASURE_WAIT_S, handle=handle)
    checked = pair.call(destination, "verify", layout=shape(layout), extent=extent, key=target_key,
                        source={"op": op, "key": second, "order": "straight"})
    pair.call("a", "release", handle=handle)
    # Or the polled target would spin on a core through the cells of the others.
    pair.call("b", "rest")
    return {"gbps": gigabytes_per_s(layout.payload * timed["iterations"], timed["total_ns"]),
            "p50_us": timed["p50_ns"] / 1000, "p99_us": timed["p99_ns"] / 1000,
            "min_us": timed["min_ns"] / 1000,
            "mean_us": timed["total_ns"] / timed["iterations"] / 1000,
            "post_p50_us": timed["post_p50_ns"] / 1000,
            "iterations": timed["iterations"], **checked}


def better_is_lower(name: str) -> bool:
    """Whether a workload is judged by its latency."""
    return name == LATENCY_WORKLOAD
