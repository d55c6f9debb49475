# SPDX-License-Identifier: Apache-2.0
"""Alternating rounds: every cell of a measurement by every variant in turn, round after round."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from cells import IDLE, Timing, claimed_route, meet, run_cell
from common import OPERATIONS, Variant
from layouts import WORKLOADS, region_bytes_for
from pair import Pair, WorkerFailed

FAILURES_MAX = 3


@dataclass(frozen=True)
class Cell:
    """What is measured of each variant: the marks of its results, and how a pair gives one."""

    marks: dict
    measure: Callable[[Pair, str], dict]

    @property
    def name(self) -> str:
        return " ".join(self.marks.values())


class Rounds:
    """Rounds of cells over live pairs of all variants.

    `open_pair(variant, mode)` connects one. A pair that fails is killed and made anew; a variant
    that failed FAILURES_MAX times is given up. With `fresh` each result has a pair of its own.
    """

    def __init__(self, chosen: list[Variant], modes: dict[str, str], cells: list[Cell],
                 open_pair: Callable[[Variant, str], Pair], tick, fresh: bool = False):
        self._variants, self._modes, self._cells = chosen, modes, cells
        self._open_pair, self._tick, self._fresh = open_pair, tick, fresh
        self._pairs: dict[str, Pair] = {}
        self._failures = {variant.key: 0 for variant in chosen}
        self.results: list[dict] = []
        self.failures: list[dict] = []

    def steps(self, rounds: int) -> int:
        return len(self._cells) * rounds * len(self._variants)

    def run(self, rounds: int) -> None:
        try:
            for number in range(rounds):
                for cell in self._cells:
                    # Each comes first in half of the rounds.
                    for variant in self._variants[:: 1 if number % 2 == 0 else -1]:
                        self._tick(f"round {number + 1}: {variant.label} {cell.name}")
                        self._one(number, variant, cell)
        finally:
            self.close()

    def _one(self, number: int, variant: Variant, cell: Cell) -> None:
        entry = {"round": number, "variant": variant.key, **cell.marks}
        if self._failures[variant.key] >= FAILURES_MAX:
            self.results.append({**entry, "ok": False, "error": "given up after failures"})
            return
        try:
            pair = self._pair(variant)
            pair.resume()
            with claimed_route(pair):
                found = cell.measure(pair, self._modes[variant.key])
            if self._fresh:
                self._pairs.pop(variant.key).close()
            else:
                pair.stop()
            self.results.append({**entry, **found})
        except WorkerFailed as error:
            self._failures[variant.key] += 1
            self._drop(variant.key)
            self.results.append({**entry, "ok": False, "error": str(error)})
            self._note(variant, f"round {number + 1}, {cell.name}", error)

    def _pair(self, variant: Variant) -> Pair:
        if variant.key not in self._pairs:
            self._pairs[variant.key] = self._open_pair(variant, self._modes[variant.key])
        return self._pairs[variant.key]

    def _drop(self, key: str) -> None:
        pair = self._pairs.pop(key, None)
        if pair is not None:
            pair.kill()

    def _note(self, variant: Variant, where: str, error: Exception) -> None:
        self.failures.append({"variant": variant.key, "where": where, "error": str(error)})

    def close(self) -> None:
        for variant in self._variants:
            pair = self._pairs.pop(variant.key, None)
            if pair is not None:
                try:
                    pair.end()
                except WorkerFailed as error:
                    self._note(variant, "end of the agents", error)


def table_rounds(chosen: list[Variant], modes: dict[str, str], workloads: list[str],
                 timing: Timing, tick) -> Rounds:
    """The rounds of the table: every workload, WRITE and READ."""
    size = region_bytes_for([WORKLOADS[name] for name in workloads]) if workloads else 0
    cells = [Cell({"op": op, "workload": name},
                  partial(_table_cell, name=name, op=op, timing=timing))
             for name in workloads for op in OPERATIONS]
    return Rounds(chosen, modes, cells, partial(meet, region_bytes=size), tick)


def _table_cell(pair: Pair, mode: str, name: str, op: str, timing: Timing) -> dict:
    return run_cell(pair, mode, WORKLOADS[name], op, timing)


def idle_modes(chosen: list[Variant]) -> dict[str, str]:
    """For targets that need nobody to drive them."""
    return {variant.key: IDLE for variant in chosen}
