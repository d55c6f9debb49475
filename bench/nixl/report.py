# SPDX-License-Identifier: Apache-2.0
"""From raw rounds and costs to medians, ratios, verdicts, tables and a picture."""

from __future__ import annotations

from cells import better_is_lower
from common import OPERATIONS, compared, median, ratio
from facts import write_table

# Of a variant's figure to its rival's: most of the latency, least of the throughput.
RATIO_TARGETS = {
    "orbite-shm": {"1x4KiB": {"WRITE": 0.5, "READ": 0.5},
                   "1x64MiB": {"WRITE": 1.6, "READ": 1.6},
                   "1024x64KiB": {"WRITE": 1.8, "READ": 1.8},
                   "4096x4KiB": {"WRITE": 6.0, "READ": 6.0}},
    "orbite": {"1x4KiB": {"WRITE": 0.9, "READ": 0.9},
               "1x64MiB": {"WRITE": 1.0, "READ": 1.0},
               "1024x64KiB": {"WRITE": 1.0, "READ": 1.0},
               "4096x4KiB": {"WRITE": 3.0, "READ": 3.0}},
    "orbite-tcp": {"1x4KiB": {"WRITE": 0.8, "READ": 0.8},
                   "1x64MiB": {"WRITE": 1.3, "READ": 4.0},
                   "1024x64KiB": {"WRITE": 1.5, "READ": 4.0},
                   "4096x4KiB": {"WRITE": 5.0, "READ": 5.0}},
}
# Of the default ORBITE.
TARGETS = {
    "prepare_ns_max": 200.0,
    "post_ns_max": 150.0,
    "idle_cpu_percent_max": 0.5,
    "resident_mib_max": 16.0,
    "register_ms_max": 50.0,
    "socket_growth_max": 0,
    "busy_throughput_share_min": 0.5,
    "busy_latency_factor_max": 4.0,
}
COLORS = {"orbite-shm": "#123f73", "orbite": "#2f78c4", "ucx": "#d9822b",
          "orbite-tcp": "#74b3e8", "ucx-tcp": "#7a8b99"}
LOG_SCALE_FROM = 30
QUIET_LOAD_SHARE = 0.5


def medians(rounds: list[dict], variants: list[str], workloads: list[str]) -> list[dict]:
    rows = []
    for name in workloads:
        for op in OPERATIONS:
            cells = {}
            for key in variants:
                own = [entry for entry in rounds if (entry["variant"], entry["workload"],
                                                     entry["op"]) == (key, name, op)]
                good = [entry for entry in own if entry["ok"]]
                cells[key] = {"gbps": median(entry["gbps"] for entry in good),
                              "p50_us": median(entry["p50_us"] for entry in good),
                              "rounds": len(own), "rounds_verified": len(good)}
            rows.append({"workload": name, "op": op, "cells": cells})
    return rows


def differing(rounds: list[dict]) -> list[dict]:
    return [{"variant": one["variant"], "where": f"round {one['round'] + 1}, {one['op']} "
             f"{one['workload']}", "error": f"{one['bytes_wrong']} bytes differ from the model"}
            for one in rounds if not one["ok"] and "error" not in one]


def metric_of(workload: str) -> str:
    return "p50_us" if better_is_lower(workload) else "gbps"


def ratios(rows: list[dict], variants: list[str]) -> list[dict]:
    """Our figures divided by those of their rivals; a verdict where there is a target."""
    found = []
    for subject, against in compared(variants):
        for row in rows:
            name, op, metric = row["workload"], row["op"], metric_of(row["workload"])
            lower = better_is_lower(name)
            value = ratio(row["cells"][subject][metric], row["cells"][against][metric])
            entry = {"workload": name, "op": op, "metric": metric, "subject": subject,
                     "against": against, "ratio": value, "limit": None, "met": None}
            limit = RATIO_TARGETS[subject].get(name, {}).get(op)
            if limit is not None:
                met = value is not None and (value <= limit if lower else value >= limit)
                entry.update(limit=f"{'<=' if lower else '>='} {limit:g}", met=met)
            found.append(entry)
    return found


def figure(name: str, unit: str, values: dict, limit: float | None = None, least: bool = False,
           strict: bool = False) -> dict:
    """One cost of every variant; the verdict is on ORBITE's."""
    own = values.get("orbite")
    met, sign = None, ">=" if least else "<" if strict else "<="
    if limit is not None and "orbite" in values:
        met = own is not None and (own >= limit if least else own < limit if strict
                                   else own <= limit)
    return {"name": name, "unit": unit, "values": values, "met": met,
            "limit": None if limit is None else f"{sign} {limit:g}"}


def cost_figures(costs: dict) -> list[dict]:
    def values(part: str, get) -> dict:
        return {key: None if "error" in one else get(one)
                for key, one in costs.get(part, {}).items()}

    found = []
    for where in ("self", "peer"):
        for title, name, limit in (
                ("prepare, initialize_xfer", "list initialize_xfer_ns", "prepare_ns_max"),
                ("prepare, prep_xfer_dlist x 2", "prepped prep_xfer_dlist_ns", None),
                ("prepare, make_prepped_xfer", "prepped make_prepped_xfer_ns", "prepare_ns_max"),
                ("post", "list post_ns", "post_ns_max"),
                ("post to done", "list total_ns", None)):
            found.append(figure(f"{title}, {where}", "ns each", values(
                "descriptors", lambda one, key=f"{where} {name}": one["ns_each"][key]),
                TARGETS[limit] if limit else None))
    found += [
        figure("idle CPU, progress thread on", "% of a core",
               values("idle", lambda one: one["cpu_percent"]),
               TARGETS["idle_cpu_percent_max"], strict=True),
        figure("idle CPU, progress thread off", "% of a core",
               values("idle_without_thread", lambda one: one["cpu_percent"])),
        figure("resident above a bare agent", "MiB", values(
            "idle", lambda one: one["resident_mib"]), TARGETS["resident_mib_max"], strict=True),
        figure("register 10,000 ranges", "ms", values(
            "registration", lambda one: one["register_ms"]), TARGETS["register_ms_max"],
            strict=True),
        figure("sockets added by 10,000 transfers", "", values(
            "sockets", lambda one: one["growth"]), TARGETS["socket_growth_max"]),
        figure("sockets of a connected process", "", values(
            "sockets", lambda one: max(one["after"]))),
    ]
    for op in OPERATIONS:
        found += [
            figure(f"busy / quiet throughput, {op} 64 MiB", "", values(
                "contention", lambda one, cell=f"{op} 1x64MiB": ratio(
                    one["busy"][cell]["gbps"], one["quiet"][cell]["gbps"])),
                TARGETS["busy_throughput_share_min"], least=True),
            figure(f"busy / quiet p50, {op} 4 KiB", "", values(
                "contention", lambda one, cell=f"{op} 1x4KiB": ratio(
                    one["busy"][cell]["p50_us"], one["quiet"][cell]["p50_us"])),
                TARGETS["busy_latency_factor_max"], strict=True),
            figure(f"busy p50, {op} 4 KiB", "us", values(
                "contention", lambda one, cell=f"{op} 1x4KiB": one["busy"][cell]["p50_us"])),
            figure(f"busy mean, {op} 4 KiB", "us", values(
                "contention", lambda one, cell=f"{op} 1x4KiB": one["busy"][cell]["mean_us"])),
        ]
    return [one for one in found if one["values"]]


def number(value: float | None) -> str:
    if value is None:
        return "failed"
    if value == 0:
        return "0"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def verdict(met: bool | None) -> str:
    return "" if met is None else "met" if met else "MISSED"


def short(label: str) -> str:
    """Of a label what tells it from others of its kind, where that is enough."""
    return label.removeprefix("ORBITE ")


def show_rounds(document: dict, stream) -> None:
    """A table for each comparison, and one for those that are compared with nothing."""
    variants, labels = document["variants"], document["labels"]
    pairs = compared(variants)
    shown = "medians of {} alternating rounds".format(document["settings"]["rounds"])
    for subject, against in pairs:
        rated = {(one["workload"], one["op"]): one for one in document["ratios"]
                 if (one["subject"], one["against"]) == (subject, against)}
        rows = []
        for row in document["medians"]:
            one = rated[row["workload"], row["op"]]
            rows.append([*_cells(row, (subject, against)),
                         "-" if one["ratio"] is None else f"{one['ratio']:.2f}",
                         one["limit"] or "", verdict(one["met"]),
                         _verified(row, (subject, against))])
        write_table(f"{labels[subject]} against {labels[against]}: {shown}",
                    ["work", "op", "unit", labels[subject], labels[against], "ratio", "target",
                     "verdict", "verified"], rows, stream)
    alone = [key for key in variants if not any(key in pair for pair in pairs)]
    if alone:
        write_table(f"Compared with nothing: {shown}",
                    ["work", "op", "unit", *(labels[key] for key in alone), "verified"],
                    [[*_cells(row, alone), _verified(row, alone)] for row in document["medians"]],
                    stream)


def _cells(row: dict, keys) -> list[str]:
    metric = metric_of(row["workload"])
    return [row["workload"], row["op"], "p50 us" if metric == "p50_us" else "GB/s",
            *(number(row["cells"][key][metric]) for key in keys)]


def _verified(row: dict, keys) -> str:
    cells = [row["cells"][key] for key in keys]
    return (f"{sum(one['rounds_verified'] for one in cells)} of "
            f"{sum(one['rounds'] for one in cells)}")


def show_costs(document: dict, stream) -> None:
    labels = document["labels"]
    if not document["figures"]:
        return
    measured = {key for one in document["figures"] for key in one["values"]}
    variants = [key for key in document["variants"] if key in measured]
    rows = []
    for one in document["figures"]:
        values = [number(one["values"][key]) if key in one["values"] else "-" for key in variants]
        rows.append([one["name"], one["unit"], *values, one["limit"] or "", verdict(one["met"])])
    columns = ["cost", "unit", *(labels[key] for key in variants), "target", "verdict"]
    write_table(f"Costs ({document['settings']['descriptors']:,} descriptors of 2 KiB)", columns,
                rows, stream)


def judged(document: dict) -> list[dict]:
    """Everything that has a verdict."""
    verdicts = [one for family in document["families"] for row in family["rows"]
                for one in row["verdicts"]]
    return [one for one in [*document["ratios"], *verdicts, *document["figures"]]
            if one["met"] is not None]


def quiet_note(document: dict, stream) -> None:
    load, cores = document["machine"]["load_average"][0], document["machine"]["cores"]
    if load > QUIET_LOAD_SHARE * cores:
        print(f"note: load average {load:.1f} on {cores} cores at the start; other programs were "
              "using the machine, so these figures are not for conclusions", file=stream)


def show_notes(document: dict, stream) -> None:
    quiet_note(document, stream)
    for key, found in document["calibration"].items():
        scores = ", ".join(f"{mode} {number(score)}" for mode, score in found["score"].items())
        print(f"{document['labels'][key]}: target makes progress by {found['chosen']} "
              f"(geometric means in GB/s: {scores})", file=stream)
    for failure in document["failures"]:
        print(f"FAILED {failure['variant']}, {failure['where']}: {failure['error']}", file=stream)
    found = judged(document)
    if found:
        print(f"targets met: {sum(one['met'] for one in found)} of {len(found)}", file=stream)


def draw(document: dict, path) -> None:
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure_, (upper, lower) = pyplot.subplots(2, 1, figsize=(13, 9.5), height_ratios=(3, 2),
                                              constrained_layout=True)
    _draw_ratios(upper, document)
    _draw_latency(lower, document)
    machine = document["machine"]
    figure_.suptitle(f"NIXL {document['versions']['nixl-cu12']}, two processes, "
                     f"{machine['cores']} cores, {machine['cpu']}", fontsize=10)
    figure_.savefig(path, dpi=130)
    pyplot.close(figure_)


def set_scale(axes, heights: list[float]) -> None:
    """A logarithmic axis where the small bars would vanish beside the large ones."""
    shown = [height for height in heights if height > 0]
    if shown and max(shown) > LOG_SCALE_FROM * min(shown):
        axes.set_yscale("log")


def _draw_ratios(axes, document: dict) -> None:
    """A group for each workload: every comparison, WRITE beside READ."""
    labels = document["labels"]
    rated = [row["workload"] for row in document["medians"]
             if row["op"] == OPERATIONS[0] and not better_is_lower(row["workload"])]
    values = {(one["workload"], one["op"], one["subject"]): one["ratio"]
              for one in document["ratios"] if one["metric"] == "gbps"}
    series = [(subject, against, op) for subject, against in compared(document["variants"])
              for op in OPERATIONS]
    width = 0.84 / max(1, len(series))
    for index, (subject, against, op) in enumerate(series):
        heights = [values.get((name, op, subject)) or 0 for name in rated]
        places = [place + (index - (len(series) - 1) / 2) * width for place in range(len(rated))]
        bars = axes.bar(places, heights, width * 0.92, color=COLORS[subject],
                        hatch=None if op == OPERATIONS[0] else "//", edgecolor="white",
                        label=f"{op}, {labels[subject]} / {labels[against]}")
        axes.bar_label(bars, [f"{height:.2f}" if height else "failed" for height in heights],
                       fontsize=7, padding=2)
    axes.axhline(1.0, color="black", linewidth=1)
    set_scale(axes, [value or 0 for value in values.values()])
    axes.set_xticks(range(len(rated)), rated)
    axes.set_ylabel("throughput ratio (higher is better)")
    axes.set_title("Throughput of ORBITE divided by that of UCX, like with like, "
                   f"median of {document['settings']['rounds']} rounds")
    axes.margins(y=0.12)
    if series:
        axes.legend(ncols=3, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def _draw_latency(axes, document: dict) -> None:
    rows = [row for row in document["medians"] if row["workload"] in ("1x4KiB", "1x64KiB")]
    names = sorted({row["workload"] for row in rows}, key=lambda name: len(name))
    groups = [(name, op) for name in names for op in OPERATIONS]
    cells = {(row["workload"], row["op"]): row["cells"] for row in rows}
    variants = document["variants"]
    width = 0.84 / len(variants)
    for index, key in enumerate(variants):
        heights = [cells[group][key]["p50_us"] or 0 for group in groups]
        places = [place + (index - (len(variants) - 1) / 2) * width
                  for place in range(len(groups))]
        bars = axes.bar(places, heights, width * 0.92, color=COLORS[key],
                        label=document["labels"][key])
        axes.bar_label(bars, [f"{height:.1f}" if height else "failed" for height in heights],
                       fontsize=7, padding=2)
    set_scale(axes, [cell["p50_us"] or 0 for row in rows for cell in row["cells"].values()])
    axes.set_xticks(range(len(groups)), [f"{op} {name}" for name, op in groups], fontsize=9)
    axes.set_ylabel("p50 in us (lower is better)")
    axes.set_title("Latency of one small transfer, post to done")
    axes.margins(y=0.15)
    axes.legend(ncols=len(variants), fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
