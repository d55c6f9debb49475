# SPDX-License-Identifier: Apache-2.0
"""From the rounds of a family to medians, ratios, verdicts, a table and a picture."""

from __future__ import annotations

from common import median, ratio, write_table
from families import FIGURES, Case, Family
from report import number, set_scale, verdict

# More groups of bars than this need slanted names and a wider sheet.
GROUPS_UPRIGHT_MAX = 6
COLORS = ("#1f5fa8", "#d9822b", "#7a8b99")


def rows_of(family: Family, rounds: list[dict], variants: list[str]) -> list[dict]:
    """One row for each case and figure, with the medians of its verified rounds."""
    found = []
    for case in family.cases:
        own = [one for one in rounds if (one["case"], one["op"]) == (case.name, case.op)]
        good = {key: [one for one in own if one["variant"] == key and one["ok"]]
                for key in variants}
        for figure in family.figures:
            values = {key: median(one[figure] for one in good[key]) for key in variants}
            found.append({"case": case.name, "op": case.op, "figure": figure, "values": values,
                          "rounds": len(own), "rounds_verified": sum(map(len, good.values())),
                          **judge(case, figure, values)})
    return found


def judge(case: Case, figure: str, values: dict[str, float | None]) -> dict:
    """The ratios of ORBITE's figure to the others', and the verdict where the case has a target."""
    own = values.get("orbite")
    ratios = {key: ratio(own, value) for key, value in values.items() if key != "orbite"}
    target = case.target(figure)
    judged = target is not None and "orbite" in values and (
        target.against is None or target.against in values)
    if not judged:
        return {"ratios": ratios, "limit": None, "met": None}
    compared = own if target.against is None else ratios[target.against]
    what = "" if target.against is None else "ratio "
    return {"ratios": ratios, "limit": what + target.text(), "met": target.met(compared)}


def document_of(family: Family, run: dict, variants: list[str]) -> dict:
    differing = [{"variant": one["variant"],
                  "where": f"round {one['round'] + 1}, {one['op']} {one['case']}",
                  "error": f"{one['bytes_wrong']} bytes differ from the model"}
                 for one in run["rounds"] if not one["ok"] and "error" not in one]
    failures = [{**one, "where": f"{family.key}: {one['where']}"}
                for one in [*run["failures"], *differing]]
    return {"key": family.key, "title": family.title, "not_measured": run["not_measured"],
            "rows": rows_of(family, run["rounds"], variants) if run["rounds"] else [],
            "rounds": run["rounds"], "failures": failures}


def show(family: dict, document: dict, stream) -> None:
    if family["not_measured"]:
        print(f"\n{family['title']}: not measured, {family['not_measured']}", file=stream)
        return
    variants, labels = document["variants"], document["labels"]
    others = [key for key in variants if key != "orbite"] if "orbite" in variants else []
    columns = ["work", "op", "figure", *(labels[key] for key in variants),
               *(f"/ {labels[key]}" for key in others), "target", "verdict", "verified"]
    rows = []
    for row in family["rows"]:
        figure = FIGURES[row["figure"]]
        ratios = [row["ratios"][key] for key in others]
        rows.append([row["case"], row["op"], f"{figure.title} {figure.unit}".strip(),
                     *(number(row["values"][key]) for key in variants),
                     *("-" if value is None else f"{value:.2f}" for value in ratios),
                     row["limit"] or "", verdict(row["met"]),
                     f"{row['rounds_verified']} of {row['rounds']}"])
    write_table(f"{family['title']}: medians of {document['settings']['rounds']} alternating "
                "rounds", columns, rows, stream)


def draw(family: dict, document: dict, path) -> None:
    """A panel for each figure, a group of bars for each case."""
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = list(dict.fromkeys(row["figure"] for row in family["rows"]))
    groups = len(family["rows"]) // len(names)
    sheet, panels = pyplot.subplots(len(names), 1, squeeze=False, constrained_layout=True,
                                    figsize=(max(11, 1.2 * groups), 1 + 3.2 * len(names)))
    for name, axes in zip(names, panels[:, 0]):
        _draw_figure(axes, name, [row for row in family["rows"] if row["figure"] == name],
                     document)
    sheet.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside lower center", fontsize=9,
                 ncols=len(document["variants"]))
    sheet.suptitle(f"{family['title']}, median of {document['settings']['rounds']} rounds",
                   fontsize=10)
    sheet.savefig(path, dpi=110)
    pyplot.close(sheet)


def _draw_figure(axes, name: str, rows: list[dict], document: dict) -> None:
    figure, variants = FIGURES[name], document["variants"]
    width = 0.84 / len(variants)
    for index, (key, color) in enumerate(zip(variants, COLORS)):
        heights = [row["values"][key] or 0 for row in rows]
        places = [place + (index - (len(variants) - 1) / 2) * width for place in range(len(rows))]
        bars = axes.bar(places, heights, width * 0.94, color=color, label=document["labels"][key])
        axes.bar_label(bars, [number(row["values"][key]) for row in rows], fontsize=7, padding=2)
    set_scale(axes, [value or 0 for row in rows for value in row["values"].values()])
    slanted = {"rotation": 25, "ha": "right"} if len(rows) > GROUPS_UPRIGHT_MAX else {}
    axes.set_xticks(range(len(rows)), [f"{row['case']}\n{row['op']}" for row in rows], fontsize=8,
                    **slanted)
    better = "lower" if figure.lower_is_better else "higher"
    unit = f" in {figure.unit}" if figure.unit else ""
    axes.set_ylabel(f"{figure.title}{unit}\n({better} is better)", fontsize=9)
    axes.margins(y=0.15)
    axes.spines[["top", "right"]].set_visible(False)
