# SPDX-License-Identifier: Apache-2.0
"""Runs families: alternating rounds of their cells, on loopback or over a cable."""

from __future__ import annotations

import contextlib

from cable import NoCable, laid_cable, over_cable
from cells import Timing, connect, meet
from common import Variant
from families import FIRST, Family
from family_cells import cells_of
from pair import Pair
from rounds import Rounds


def run_family(family: Family, chosen: list[Variant], modes: dict[str, str], rounds: int,
               timing: Timing, tick) -> dict:
    """Every round of a family, or the reason why it is not measured here."""
    used, fresh = variants_of(family, chosen), family.method == FIRST
    if not used:
        return not_measured(f"it takes {' or '.join(family.variants)}")
    loopback = contextlib.nullcontext((None, None))
    try:
        with laid_cable() if family.cable else loopback as namespaces:
            def open_pair(variant: Variant, mode: str) -> Pair:
                open_one = connect if fresh else meet
                return open_one(over_cable(variant) if family.cable else variant, mode,
                                family.region_bytes, threaded=family.threaded,
                                namespaces=namespaces)

            measured = Rounds(used, modes, cells_of(family, timing), open_pair, tick, fresh=fresh)
            measured.run(rounds)
    except NoCable as error:
        return not_measured(str(error))
    return {"not_measured": None, "rounds": measured.results, "failures": measured.failures}


def not_measured(why: str) -> dict:
    return {"not_measured": why, "rounds": [], "failures": []}


def variants_of(family: Family, chosen: list[Variant]) -> list[Variant]:
    return [variant for variant in chosen if variant.key in family.variants]


def steps(family: Family, chosen: list[Variant], rounds: int) -> int:
    return len(family.cases) * rounds * len(variants_of(family, chosen))
