# SPDX-License-Identifier: Apache-2.0
"""Benchmark of the ORBITE backend against NIXL's UCX backend, through real NIXL agents.

Rounds alternate between the backends, so that a slow minute of the machine meets all of them.
Every cell is verified byte by byte. The exit status is 1 if an ORBITE cell fails or differs (with
--strict also if a target is missed), 2 if the setup is not complete, else 0.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
import time
from pathlib import Path

import costs
import report
from cells import Rounds, Timing
from common import (PLUGIN_DIR, ROOT, WORKLOADS, SetupError, check_nixl, library_facts,
                    machine_facts, pick_variant, version_facts)
from progress import Progress

DESCRIPTORS, DESCRIPTORS_QUICK = 100_000, 20_000
ROUNDS, ROUNDS_QUICK = 5, 2
TIMING, TIMING_QUICK = Timing(0.35, 0.08), Timing(0.08, 0.02)
CALIBRATION = Timing(0.1, 0.05)
CONTENTION, CONTENTION_QUICK = Timing(1.5, 0.2), Timing(0.5, 0.1)


def cost_plan(chosen, modes: dict, quick: bool, descriptors: int) -> list[tuple]:
    timing = CONTENTION_QUICK if quick else CONTENTION
    plan = []
    for variant in chosen:
        mode = modes[variant.key]
        plan += [("descriptors", variant, costs.descriptor_costs, (mode, descriptors)),
                 ("idle", variant, costs.idle_costs, (True,)),
                 ("idle_without_thread", variant, costs.idle_costs, (False,)),
                 ("registration", variant, costs.registration_costs, ()),
                 ("sockets", variant, costs.socket_counts, (mode,)),
                 ("contention", variant, costs.contention, (mode, timing))]
    return plan


def run_costs(plan: list[tuple], tick) -> dict:
    found: dict[str, dict] = {}
    for name, variant, measure, arguments in plan:
        tick(f"{variant.label}: {name.replace('_', ' ')}")
        found.setdefault(name, {})[variant.key] = costs.guarded(measure, variant, *arguments)
    return found


def cost_failures(found: dict) -> list[dict]:
    return [{"variant": key, "where": name,
             "error": one.get("error", "bytes differ from the model")}
            for name, by_variant in found.items() for key, one in by_variant.items()
            if not one["ok"]]


def measure(options, chosen) -> dict:
    quick = options.quick
    descriptors = DESCRIPTORS_QUICK if quick else DESCRIPTORS
    started, begin = datetime.datetime.now(datetime.timezone.utc), time.monotonic()
    machine = machine_facts()
    progress = Progress()
    rounds = Rounds(chosen, options.workloads, TIMING_QUICK if quick else TIMING, progress.tick)
    plan_length = 0 if options.skip_costs else len(cost_plan(chosen, rounds.modes, quick, 0))
    progress.start(rounds.steps(options.rounds) + plan_length)
    try:
        rounds.calibrate(CALIBRATION)
        rounds.run(options.rounds)
        plan = [] if options.skip_costs else cost_plan(chosen, rounds.modes, quick, descriptors)
        found = run_costs(plan, progress.tick)
    finally:
        progress.end()
    return document_of(options, chosen, rounds, found, {
        "started": started.isoformat(timespec="seconds"),
        "duration_s": round(time.monotonic() - begin, 1),
        "machine": machine, "versions": version_facts(),
        "libraries": library_facts(options.plugin_dir),
        "settings": {"rounds": options.rounds, "quick": quick, "descriptors": descriptors,
                     "workloads": options.workloads}})


def document_of(options, chosen, rounds: Rounds, found: dict, facts: dict) -> dict:
    keys = [variant.key for variant in chosen]
    subject = "orbite" if "orbite" in keys else keys[0]
    rows = report.medians(rounds.results, keys, options.workloads)
    return {
        **facts, "subject": subject, "variants": keys, "targets": report.TARGETS,
        "labels": {variant.key: variant.label for variant in chosen},
        "target_modes": rounds.modes, "calibration": rounds.calibration,
        "medians": rows, "ratios": report.ratios(rows, subject, keys),
        "figures": report.cost_figures(found), "costs": found, "rounds": rounds.results,
        "failures": [*rounds.failures, *report.differing(rounds.results), *cost_failures(found)]}


def exit_status(document: dict, strict: bool) -> int:
    judged = [*document["ratios"], *document["figures"]]
    missed = strict and any(one["met"] is False for one in judged)
    failed = any(one["variant"] == "orbite" for one in document["failures"])
    return 1 if missed or failed else 0


def name_list(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def parse_arguments(arguments) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backends", type=name_list, default=["orbite", "ucx-tcp", "ucx"],
                        metavar="LIST", help="which to run, of: orbite,ucx-tcp,ucx (default all)")
    parser.add_argument("--workloads", type=name_list, default=list(WORKLOADS), metavar="LIST",
                        help=f"which to run, of: {','.join(WORKLOADS)} (default all)")
    parser.add_argument("--rounds", type=int, metavar="N",
                        help=f"rounds of each cell, 1 to 100 (default {ROUNDS})")
    parser.add_argument("--quick", action="store_true",
                        help=f"short run: {ROUNDS_QUICK} rounds, short cells, "
                             f"{DESCRIPTORS_QUICK:,} descriptors; not for conclusions")
    parser.add_argument("--skip-costs", action="store_true", help="only the rounds")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench", metavar="DIR",
                        help="folder for bench.json and bench.png (default build/bench)")
    parser.add_argument("--json", action="store_true",
                        help="print the JSON document instead of tables, and draw no picture")
    parser.add_argument("--strict", action="store_true",
                        help="a missed target makes the exit status 1 as well")
    parser.add_argument("--plugin-dir", type=Path, default=PLUGIN_DIR,
                        help="folder with libplugin_ORBITE.so (default build/nixl-plugins)")
    options = parser.parse_args(arguments)
    if options.rounds is None:
        options.rounds = ROUNDS_QUICK if options.quick else ROUNDS
    unknown = [name for name in options.workloads if name not in WORKLOADS]
    if unknown:
        parser.error(f"unknown workload {unknown[0]!r}; allowed: {', '.join(WORKLOADS)}")
    if not options.workloads or not options.backends:
        parser.error("--workloads and --backends need at least one name each")
    if not 1 <= options.rounds <= 100:
        parser.error(f"--rounds is {options.rounds}; allowed: 1 to 100")
    return options


def main(arguments=None) -> int:
    options = parse_arguments(arguments)
    try:
        check_nixl()
        chosen = [pick_variant(name, options.plugin_dir)
                  for name in dict.fromkeys(map(str.lower, options.backends))]
    except SetupError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    options.out.mkdir(parents=True, exist_ok=True)
    document = measure(options, chosen)
    text = json.dumps(document, indent=1)
    (options.out / "bench.json").write_text(text + "\n", encoding="utf-8")
    if options.json:
        print(text)
        return exit_status(document, options.strict)
    report.show_rounds(document, sys.stdout)
    report.show_costs(document, sys.stdout)
    report.show_notes(document, sys.stdout)
    report.draw(document, options.out / "bench.png")
    print(f"written: {options.out / 'bench.json'}, {options.out / 'bench.png'}")
    return exit_status(document, options.strict)


if __name__ == "__main__":
    sys.exit(main())
