# SPDX-License-Identifier: Apache-2.0
"""Runs families: alternating rounds of their cells, on loopback or over a cable."""

from __future__ import annotations

import contextlib

from cable import NoCable, laid_cable, over_cable
from cells import Timing, connect
from common import Variant
from families import FIRST, Family
from family_cells import cells_of
from pair import Pair
from rounds import Rounds


def run_family(family: Family, chosen: list[Variant], modes: dict[str, str], rounds: int,
               timing: Timing, tick) -> dict:
    """Every round of a family, or the reason why it is not measured here."""
    loopback = contextlib.nullcontext((None, None))
    try:
        with laid_cable() if family.cable else loopback as namespaces:
            def open_pair(variant: Variant, mode: str) -> Pair:
                return connect(over_cable(variant) if family.cable else variant, mode,
                               family.region_bytes, threaded=family.threaded,
                               namespaces=namespaces)

            measured = Rounds(chosen, modes, cells_of(family, timing), open_pair, tick,
                              fresh=family.method == FIRST)
            measured.run(rounds)
    except NoCable as error:
        return {"not_measured": str(error), "rounds": [], "failures": []}
    return {"not_measured": None, "rounds": measured.results, "failures": measured.failures}


def steps(family: Family, chosen: list[Variant], rounds: int) -> int:
    return len(family.cases) * rounds * len(chosen)
