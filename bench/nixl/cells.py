# SPDX-License-Identifier: Apache-2.0
"""The measured unit of the benchmark: one workload, one operation, one backend, verified."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from common import (LATENCY_WORKLOAD, OPERATIONS, WORKLOADS, Layout, Variant, gigabytes_per_s,
                    region_bytes_for)
from pair import Pair, WorkerFailed

MEASURE_WAIT_S = 40.0
FAILURES_MAX = 3
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


def shape(layout: Layout) -> list[int]:
    return [layout.count, layout.size, layout.gap]


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


class Rounds:
    """Alternating rounds of every workload over the live pairs of all variants."""

    def __init__(self, chosen: list[Variant], workloads: list[str], timing: Timing, tick):
        self._variants = chosen
        self._workloads = workloads
        self._timing = timing
        self._tick = tick
        self._region_bytes = region_bytes_for(WORKLOADS[name] for name in workloads)
        self._pairs: dict[str, Pair] = {}
        self._failures = {variant.key: 0 for variant in chosen}
        self.modes = {variant.key: IDLE for variant in chosen}
        self.calibration: dict[str, dict] = {}
        self.results: list[dict] = []
        self.failures: list[dict] = []

    def steps(self, rounds: int) -> int:
        spinning = sum(variant.spins for variant in self._variants)
        cells = len(self._workloads) * len(OPERATIONS)
        return cells * (2 * spinning + rounds * len(self._variants))

    def calibrate(self, timing: Timing) -> None:
        """Finds the faster way of progress for the targets of each spinning backend."""
        for variant in self._variants:
            if variant.spins:
                measured = self._scan(variant, timing)
                scores = {mode: geometric_mean(cells) for mode, cells in measured.items()}
                best = max(scores, key=lambda mode: scores[mode])
                self.modes[variant.key] = best
                self.calibration[variant.key] = {"chosen": best, "score": scores,
                                                 "gbps": measured}

    def _scan(self, variant: Variant, timing: Timing) -> dict:
        """Every cell by both modes in turn; a mode that fails once is out."""
        measured: dict[str, dict] = {POLL: {}, THREAD: {}}
        pairs: dict[str, Pair] = {}
        alive = set(measured)
        for name, op in itertools.product(self._workloads, OPERATIONS):
            for mode, cells in measured.items():
                self._tick(f"{variant.label}, target by {mode}: {op} {name}")
                cells[f"{op} {name}"] = 0.0
                if mode not in alive:
                    continue
                try:
                    if mode not in pairs:
                        pairs[mode] = connect(variant, mode, self._region_bytes)
                    pairs[mode].resume()
                    cell = run_cell(pairs[mode], mode, WORKLOADS[name], op, timing)
                    pairs[mode].stop()
                    cells[f"{op} {name}"] = cell["gbps"] if cell["ok"] else 0.0
                except WorkerFailed as error:
                    alive.discard(mode)
                    self._note(variant, f"calibration by {mode}, {op} {name}", error)
        for mode, pair in pairs.items():
            self._end(variant, pair if mode in alive else None)
            pair.kill()
        return measured

    def run(self, rounds: int) -> None:
        try:
            for number in range(rounds):
                for name in self._workloads:
                    for op in OPERATIONS:
                        # Each comes first in half of the rounds.
                        for variant in self._variants[:: 1 if number % 2 == 0 else -1]:
                            self._tick(f"round {number + 1}: {variant.label} {op} {name}")
                            self._one(number, variant, name, op)
        finally:
            self.close()

    def _one(self, number: int, variant: Variant, name: str, op: str) -> None:
        entry = {"round": number, "variant": variant.key, "workload": name, "op": op}
        if self._failures[variant.key] >= FAILURES_MAX:
            self.results.append({**entry, "ok": False, "error": "given up after failures"})
            return
        try:
            pair = self._pair(variant)
            pair.resume()
            cell = run_cell(pair, self.modes[variant.key], WORKLOADS[name], op, self._timing)
            pair.stop()
            self.results.append({**entry, **cell})
        except WorkerFailed as error:
            self._failures[variant.key] += 1
            self._drop(variant.key)
            self.results.append({**entry, "ok": False, "error": str(error)})
            self._note(variant, f"round {number + 1}, {op} {name}", error)

    def _pair(self, variant: Variant) -> Pair:
        if variant.key not in self._pairs:
            self._pairs[variant.key] = connect(variant, self.modes[variant.key],
                                               self._region_bytes)
        return self._pairs[variant.key]

    def _drop(self, key: str) -> None:
        pair = self._pairs.pop(key, None)
        if pair is not None:
            pair.kill()

    def _note(self, variant: Variant, where: str, error: Exception) -> None:
        self.failures.append({"variant": variant.key, "where": where, "error": str(error)})

    def _end(self, variant: Variant, pair: Pair | None) -> None:
        try:
            if pair is not None:
                pair.resume()
                pair.close()
        except WorkerFailed as error:
            self._note(variant, "end of the agents", error)

    def close(self) -> None:
        for variant in self._variants:
            self._end(variant, self._pairs.pop(variant.key, None))


def geometric_mean(cells: dict) -> float:
    values = [value for value in cells.values() if value > 0]
    if len(values) < len(cells) or not values:
        return 0.0
    return math.exp(sum(map(math.log, values)) / len(values))


def better_is_lower(name: str) -> bool:
    """Whether a workload is judged by its latency."""
    return name == LATENCY_WORKLOAD
