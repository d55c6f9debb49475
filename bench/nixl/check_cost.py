# SPDX-License-Identifier: Apache-2.0
"""What the checks that are always on cost: ORBITE with them against ORBITE without them.

The transfers of bench.py over TCP, in alternating rounds of both builds, every cell verified byte
by byte. The exit status is 1 if a cell fails or differs (with --strict also unless it is certain
that the checks cost at most 3 %), 2 if the setup is not complete, else 0.
"""

from __future__ import annotations

import argparse
import datetime
import json
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path

from cells import Timing, better_is_lower
from common import (OPERATIONS, PLUGIN_DIR, ROOT, SetupError, Variant, check_nixl, check_plugin,
                    orbite_over_tcp)
from facts import library_facts, machine_facts, version_facts, write_table
from progress import Progress
from report import differing, medians, number, quiet_note
from rounds import idle_modes, table_rounds

WORKLOADS = ["1x64MiB", "1024x64KiB", "4096x4KiB", "1x4KiB"]
ROUNDS = 60
TIMING = Timing(0.06, 0.015)
REDRAWINGS = 2000
WITH, WITHOUT = "with", "without"
SHARE_MIN = 0.97
BUILD_DIR = ROOT / "build" / "without-checks"


def build_without_checks() -> Path:
    """The folder of a plugin that was built now, as the released one is but for the checks."""
    for command in (["cmake", "--preset", "release", "-B", str(BUILD_DIR),
                     "-DORBITE_WITHOUT_CHECKS=ON"],
                    ["cmake", "--build", str(BUILD_DIR), "--target", "nixl_plugins"]):
        try:
            done = subprocess.run(command, cwd=ROOT, stdout=sys.stderr, check=False)
        except OSError as error:
            raise SetupError(f"{command[0]} cannot be run: {error}") from error
        if done.returncode != 0:
            raise SetupError(f"{' '.join(command)} failed with status {done.returncode}")
    return BUILD_DIR / "nixl-plugins"


def variant(key: str, plugin_dir: Path) -> Variant:
    made = orbite_over_tcp(key, f"{key} checks", plugin_dir)
    check_plugin(made, plugin_dir)
    return made


def paired(rounds: list[dict]) -> dict[tuple[str, str], list[float]]:
    """Of each cell and round, the speed with checks as a share of the speed without. Both were
    measured one after the other, and the typical transfer is compared: what disturbs the machine
    meanwhile disturbs both, or neither."""
    typical = {(one["round"], one["variant"], one["workload"], one["op"]): one["p50_us"]
               for one in rounds if one["ok"]}
    found: dict[tuple[str, str], list[float]] = {}
    for (number, key, workload, op), here in typical.items():
        there = typical.get((number, WITHOUT, workload, op))
        if key == WITH and there is not None:
            found.setdefault((workload, op), []).append(there / here)
    return found


def mean_share(by_cell: list[list[float]]) -> float:
    return statistics.geometric_mean(statistics.median(shares) for shares in by_cell)


def judge(by_cell: list[list[float]]) -> dict:
    """The geometric mean of the cells, and where it lies in 95 of 100 redrawings of the rounds."""
    draw = random.Random(1)
    means = sorted(mean_share([draw.choices(shares, k=len(shares)) for shares in by_cell])
                   for _ in range(REDRAWINGS))
    low, high = means[REDRAWINGS // 40], means[-1 - REDRAWINGS // 40]
    met = True if low >= SHARE_MIN else False if high < SHARE_MIN else None
    return {"share": mean_share(by_cell), "low": low, "high": high, "least": SHARE_MIN, "met": met}


def cells_of(rounds: list[dict], shares: dict) -> list[dict]:
    found = []
    for row in medians(rounds, [WITH, WITHOUT], WORKLOADS):
        cell = {"workload": row["workload"], "op": row["op"]}
        metric = "p50_us" if better_is_lower(row["workload"]) else "gbps"
        own = shares.get((row["workload"], row["op"]))
        found.append({**cell, "metric": metric, WITH: row["cells"][WITH][metric],
                      WITHOUT: row["cells"][WITHOUT][metric],
                      "share": statistics.median(own) if own else None})
    return found


def measure(options, chosen: list[Variant], plugin_dirs: dict[str, Path]) -> dict:
    started, begin = datetime.datetime.now(datetime.timezone.utc), time.monotonic()
    machine = machine_facts()
    progress = Progress()
    rounds = table_rounds(chosen, idle_modes(chosen), WORKLOADS, TIMING, progress.tick)
    progress.start(rounds.steps(options.rounds))
    try:
        rounds.run(options.rounds)
    finally:
        progress.end()
    shares = paired(rounds.results)
    complete = len(shares) == len(WORKLOADS) * len(OPERATIONS)
    return {"started": started.isoformat(timespec="seconds"),
            "duration_s": round(time.monotonic() - begin, 1), "machine": machine,
            "versions": version_facts(),
            "libraries": {key: library_facts(path) for key, path in plugin_dirs.items()},
            "settings": {"rounds": options.rounds, "workloads": WORKLOADS},
            "cells": cells_of(rounds.results, shares),
            "geometric_mean": judge(list(shares.values())) if complete else None,
            "rounds": rounds.results,
            "failures": [*rounds.failures, *differing(rounds.results)]}


def show(document: dict, stream) -> None:
    rows = []
    for cell in document["cells"]:
        share = cell["share"]
        rows.append([cell["workload"], cell["op"], "p50 us" if cell["metric"] == "p50_us" else
                     "GB/s", number(cell[WITH]), number(cell[WITHOUT]),
                     "failed" if share is None else f"{share:.3f}"])
    write_table(f"Checks on and left out: medians of {document['settings']['rounds']} alternating "
                "rounds", ["work", "op", "unit", "with", "without", "speed with / without"], rows,
                stream)
    quiet_note(document, stream)
    for failure in document["failures"]:
        print(f"FAILED {failure['variant']}, {failure['where']}: {failure['error']}", file=stream)
    mean = document["geometric_mean"]
    if mean is None:
        print("no verdict: a cell failed", file=stream)
        return
    cost, least, most = ((1 - mean[name]) * 100 for name in ("share", "high", "low"))
    verdict = {True: "met", False: "MISSED",
               None: "not decided, it takes more rounds or a quieter machine"}[mean["met"]]
    print(f"the checks cost {cost:.1f} % of the speed ({least:.1f} to {most:.1f} %, geometric mean "
          f"of {len(rows)} cells); at most {(1 - SHARE_MIN) * 100:.0f} %: {verdict}", file=stream)


def parse_arguments(arguments) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plugin-dir", type=Path, default=PLUGIN_DIR, metavar="DIR",
                        help="folder of the plugin with checks (default build/nixl-plugins)")
    parser.add_argument("--without-dir", type=Path, metavar="DIR",
                        help="folder of the plugin without (default: it is built now, in "
                             "build/without-checks)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N",
                        help=f"rounds of each cell, 1 to 100 (default {ROUNDS})")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench", metavar="DIR",
                        help="folder for check_cost.json (default build/bench)")
    parser.add_argument("--json", action="store_true",
                        help="print the JSON document instead of the table")
    parser.add_argument("--strict", action="store_true",
                        help="exit status 1 also unless it is certain that the limit is kept")
    options = parser.parse_args(arguments)
    if not 1 <= options.rounds <= 100:
        parser.error(f"--rounds is {options.rounds}; allowed: 1 to 100")
    return options


def main(arguments=None) -> int:
    options = parse_arguments(arguments)
    try:
        check_nixl()
        chosen = [variant(WITH, options.plugin_dir)]
        without_dir = options.without_dir or build_without_checks()
        chosen.append(variant(WITHOUT, without_dir))
    except SetupError as error:
        print(f"check_cost: {error}", file=sys.stderr)
        return 2
    document = measure(options, chosen, {WITH: options.plugin_dir, WITHOUT: without_dir})
    options.out.mkdir(parents=True, exist_ok=True)
    text = json.dumps(document, indent=1)
    (options.out / "check_cost.json").write_text(text + "\n", encoding="utf-8")
    if options.json:
        print(text)
    else:
        show(document, sys.stdout)
    mean = document["geometric_mean"]
    missed = mean is None or (options.strict and mean["met"] is not True)
    return 1 if document["failures"] or missed else 0


if __name__ == "__main__":
    sys.exit(main())
