# SPDX-License-Identifier: Apache-2.0
"""Benchmark of the ORBITE backend against NIXL's UCX backend, through real NIXL agents.

Like is compared with like: shared memory and ordinary memory of one host with what UCX chooses
there, TCP with TCP. A figure of another route than the one that it stands for is an error. Rounds
alternate between the backends, so that a slow minute of the machine meets all of them.
Every cell is verified byte by byte. The exit status is 1 if an ORBITE cell fails or differs (with
--strict also if a target is missed), 2 if the setup is not complete, else 0.
"""

from __future__ import annotations

import argparse
import datetime
import json
import signal
import sys
import time
from pathlib import Path

import costs
import family_report
import family_run
import report
from calibration import Calibration
from cells import Timing
from common import PLUGIN_DIR, ROOT, SetupError, check_nixl, pick_variant, variants
from facts import library_facts, machine_facts, version_facts
from families import FAMILIES
from layouts import WORKLOADS
from progress import Progress
from rounds import table_rounds

DESCRIPTORS, DESCRIPTORS_QUICK = 100_000, 20_000
ROUNDS, ROUNDS_QUICK = 5, 2
TIMING, TIMING_QUICK = Timing(0.35, 0.08), Timing(0.08, 0.02)
CALIBRATION = Timing(0.1, 0.05)
CALIBRATED_BY = ["1x4KiB", "1x64MiB", "1024x64KiB"]
CONTENTION, CONTENTION_QUICK = Timing(1.5, 0.2), Timing(0.5, 0.1)
ENDING_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
TABLE, COSTS = "table", "costs"
PARTS = {TABLE: "Throughput and latency, the workloads in turn",
         COSTS: "What backends cost beside transfers",
         **{key: family.title for key, family in FAMILIES.items()}}
STANDARD = [key for key in PARTS if key not in FAMILIES or FAMILIES[key].standard]
GROUPS = {"standard": STANDARD, "all": list(PARTS)}
BACKENDS = list(variants(PLUGIN_DIR))
# Of the costs, which are those of an ORBITE and a UCX that nobody has told anything.
COST_VARIANTS = ("orbite", "ucx")


def cost_plan(chosen, modes: dict, quick: bool, descriptors: int) -> list[tuple]:
    timing = CONTENTION_QUICK if quick else CONTENTION
    plan = []
    for variant in (one for one in chosen if one.key in COST_VARIANTS):
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


def needed(chosen: list, parts: list[str]) -> list:
    """Those of the chosen variants that one of the parts measures."""
    used = {TABLE: BACKENDS, COSTS: COST_VARIANTS,
            **{key: family.variants for key, family in FAMILIES.items()}}
    return [variant for variant in chosen if any(variant.key in used[part] for part in parts)]


def measure(options, chosen) -> dict:
    quick, parts = options.quick, options.family
    timing = TIMING_QUICK if quick else TIMING
    families = [FAMILIES[key] for key in parts if key in FAMILIES]
    started, begin = datetime.datetime.now(datetime.timezone.utc), time.monotonic()
    machine = machine_facts()
    progress = Progress()
    workloads = options.workloads if TABLE in parts else []
    calibration = Calibration(chosen, workloads or CALIBRATED_BY, progress.tick)
    table = table_rounds(chosen, calibration.modes, workloads, timing, progress.tick)
    plan_length = len(cost_plan(chosen, calibration.modes, quick, 0)) if COSTS in parts else 0
    progress.start(calibration.steps() + table.steps(options.rounds) + plan_length
                   + sum(family_run.steps(one, chosen, options.rounds) for one in families))
    try:
        calibration.run(CALIBRATION)
        table.run(options.rounds)
        measured = {one.key: family_run.run_family(one, chosen, calibration.modes, options.rounds,
                                                   timing, progress.tick) for one in families}
        descriptors = DESCRIPTORS_QUICK if quick else DESCRIPTORS
        plan = cost_plan(chosen, calibration.modes, quick, descriptors) if COSTS in parts else []
        found = run_costs(plan, progress.tick)
    finally:
        progress.end()
    return document_of(chosen, workloads, calibration, table, measured, found, {
        "started": started.isoformat(timespec="seconds"),
        "duration_s": round(time.monotonic() - begin, 1),
        "machine": machine, "versions": version_facts(),
        "libraries": library_facts(options.plugin_dir),
        "settings": {"rounds": options.rounds, "quick": quick, "descriptors": descriptors,
                     "parts": parts, "workloads": workloads}})


def document_of(chosen, workloads, calibration: Calibration, table, measured: dict, found: dict,
                facts: dict) -> dict:
    keys = [variant.key for variant in chosen]
    rows = report.medians(table.results, keys, workloads)
    families = [family_report.document_of(
        FAMILIES[key], run, [one for one in keys if one in FAMILIES[key].variants])
        for key, run in measured.items()]
    return {
        **facts, "variants": keys,
        "targets": {"ratios": report.RATIO_TARGETS, **report.TARGETS},
        "labels": {variant.key: variant.label for variant in chosen},
        "target_modes": calibration.modes, "calibration": calibration.scores,
        "medians": rows, "ratios": report.ratios(rows, keys),
        "families": families,
        "figures": report.cost_figures(found), "costs": found, "rounds": table.results,
        "failures": [*calibration.failures, *table.failures, *report.differing(table.results),
                     *(one for family in families for one in family["failures"]),
                     *cost_failures(found)]}


def exit_status(document: dict, strict: bool) -> int:
    missed = strict and any(one["met"] is False for one in report.judged(document))
    failed = any(one["variant"].startswith("orbite") for one in document["failures"])
    return 1 if missed or failed else 0


def show(document: dict, out: Path) -> None:
    """All tables and pictures."""
    written = [out / "bench.json"]
    if document["medians"]:
        report.show_rounds(document, sys.stdout)
        report.draw(document, out / "bench.png")
        written.append(out / "bench.png")
    for family in document["families"]:
        family_report.show(family, document, sys.stdout)
        if family["rows"]:
            written.append(out / f"bench-{family['key']}.png")
            family_report.draw(family, document, written[-1])
    report.show_costs(document, sys.stdout)
    report.show_notes(document, sys.stdout)
    print(f"written: {', '.join(map(str, written))}")


def show_list() -> None:
    for key, title in PARTS.items():
        count = f", {len(FAMILIES[key].cases)} cases" if key in FAMILIES else ""
        print(f"{key:9} {title}{count}{'' if key in STANDARD else ' (not in standard)'}")


def name_list(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def parts_of(names: list[str]) -> list[str]:
    """Parts by name or group, each once, in the order in which they run."""
    wanted = {part for name in names for part in GROUPS.get(name, [name])}
    unknown = [name for name in names if name not in GROUPS and name not in PARTS]
    if unknown or not wanted:
        raise ValueError(f"unknown part {', '.join(unknown)!r}; allowed: "
                         f"{', '.join([*GROUPS, *PARTS])}")
    return [part for part in PARTS if part in wanted]


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--family", type=name_list, default=["standard"], metavar="LIST",
                        help=f"which parts to run, of: {','.join(PARTS)}; standard (the default, "
                             f"about 13 minutes) is all but "
                             f"{' and '.join(key for key in PARTS if key not in STANDARD)}; all "
                             "takes about 20")
    parser.add_argument("--list", action="store_true", help="say what the parts are, and end")
    parser.add_argument("--backends", type=name_list, default=BACKENDS, metavar="LIST",
                        help=f"which to run, of: {','.join(BACKENDS)} (default all)")
    parser.add_argument("--workloads", type=name_list, default=list(WORKLOADS), metavar="LIST",
                        help=f"those of the table, of: {','.join(WORKLOADS)} (default all)")
    parser.add_argument("--rounds", type=int, metavar="N",
                        help=f"rounds of each cell, 1 to 100 (default {ROUNDS})")
    parser.add_argument("--quick", action="store_true",
                        help=f"short run: {ROUNDS_QUICK} rounds, short cells, "
                             f"{DESCRIPTORS_QUICK:,} descriptors; not for conclusions")
    parser.add_argument("--skip-costs", action="store_true", help="no costs")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench", metavar="DIR",
                        help="folder for bench.json and the pictures (default build/bench)")
    parser.add_argument("--json", action="store_true",
                        help="print the JSON document instead of tables, and draw no pictures")
    parser.add_argument("--strict", action="store_true",
                        help="a missed target makes the exit status 1 as well")
    parser.add_argument("--plugin-dir", type=Path, default=PLUGIN_DIR,
                        help="folder with libplugin_ORBITE.so (default build/nixl-plugins)")
    return parser


def parse_arguments(arguments) -> argparse.Namespace:
    parser = make_parser()
    options = parser.parse_args(arguments)
    try:
        options.family = parts_of(options.family)
    except ValueError as error:
        parser.error(f"--family: {error}")
    if options.skip_costs:
        options.family = [part for part in options.family if part != COSTS]
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


def end_in_order(number: int, _frame) -> None:
    """What was made for the measurement is removed on the way out, which nothing cuts short."""
    for other in ENDING_SIGNALS:
        signal.signal(other, signal.SIG_IGN)
    sys.exit(128 + number)


def main(arguments=None) -> int:
    options = parse_arguments(arguments)
    if options.list:
        show_list()
        return 0
    try:
        check_nixl()
        chosen = needed([pick_variant(name, options.plugin_dir)
                         for name in dict.fromkeys(map(str.lower, options.backends))],
                        options.family)
    except SetupError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    for number in ENDING_SIGNALS:
        signal.signal(number, end_in_order)
    options.out.mkdir(parents=True, exist_ok=True)
    document = measure(options, chosen)
    text = json.dumps(document, indent=1)
    (options.out / "bench.json").write_text(text + "\n", encoding="utf-8")
    if options.json:
        print(text)
    else:
        show(document, options.out)
    return exit_status(document, options.strict)


if __name__ == "__main__":
    sys.exit(main())
