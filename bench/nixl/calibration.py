# SPDX-License-Identifier: Apache-2.0
"""Which way of progress is the faster one for the targets of a backend that spins."""

from __future__ import annotations

import itertools
import math

from cells import POLL, THREAD, Timing, connect, run_cell
from common import OPERATIONS, Variant
from layouts import WORKLOADS, region_bytes_for
from pair import Pair, WorkerFailed
from rounds import idle_modes


class Calibration:
    """The chosen modes of all variants, what they were chosen by, and what failed meanwhile."""

    def __init__(self, chosen: list[Variant], workloads: list[str], tick):
        self._variants, self._workloads, self._tick = chosen, workloads, tick
        self.modes = idle_modes(chosen)
        self.scores: dict[str, dict] = {}
        self.failures: list[dict] = []

    def steps(self) -> int:
        spinning = sum(variant.spins for variant in self._variants)
        return len(self._workloads) * len(OPERATIONS) * 2 * spinning

    def run(self, timing: Timing) -> None:
        for variant in self._variants:
            if variant.spins:
                measured = self._scan(variant, timing)
                scores = {mode: geometric_mean(cells) for mode, cells in measured.items()}
                best = max(scores, key=lambda mode: scores[mode])
                self.modes[variant.key] = best
                self.scores[variant.key] = {"chosen": best, "score": scores, "gbps": measured}

    def _scan(self, variant: Variant, timing: Timing) -> dict:
        """Every cell by both modes in turn; a mode that fails once is out."""
        size = region_bytes_for(WORKLOADS[name] for name in self._workloads)
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
                        pairs[mode] = connect(variant, mode, size)
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

    def _end(self, variant: Variant, pair: Pair | None) -> None:
        try:
            if pair is not None:
                pair.end()
        except WorkerFailed as error:
            self._note(variant, "end of the agents", error)

    def _note(self, variant: Variant, where: str, error: Exception) -> None:
        self.failures.append({"variant": variant.key, "where": where, "error": str(error)})


def geometric_mean(cells: dict) -> float:
    values = [value for value in cells.values() if value > 0]
    if len(values) < len(cells) or not values:
        return 0.0
    return math.exp(sum(map(math.log, values)) / len(values))
