# SPDX-License-Identifier: Apache-2.0
"""From the rounds of a family to medians, ratios, verdicts, a table and a picture."""

from __future__ import annotations

from common import compared, median, ratio
from facts import write_table
from families import FIGURES, Case, Family
from report import COLORS, number, set_scale, short, verdict

# More groups of bars than this need slanted names and a wider sheet.
GROUPS_UPRIGHT_MAX = 6


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
    """The ratios of our variants' figures to their rivals', and the verdicts on the targets."""
    ratios = {ours: ratio(values[ours], values[rival]) for ours, rival in compared(values)}
    verdicts = []
    for target in case.targets_of(figure):
        if target.subject in values and (target.against is None or target.against in values):
            value = values[target.subject] if target.against is None else \
                ratio(values[target.subject], values[target.against])
            what = "" if target.against is None else "ratio "
            verdicts.append({"subject": target.subject, "against": target.against,
                             "limit": what + target.text(), "met": target.met(value)})
    return {"ratios": ratios, "verdicts": verdicts}


def document_of(family: Family, run: dict, variants: list[str]) -> dict:
    differing = [{"variant": one["variant"],
                  "where": f"round {one['round'] + 1}, {one['op']} {one['case']}",
                  "error": f"{one['bytes_wrong']} bytes differ from the model"}
                 for one in run["rounds"] if not one["ok"] and "error" not in one]
    failures = [{**one, "where": f"{family.key}: {one['where']}"}
                for one in [*run["failures"], *differing]]
    return {"key": family.key, "title": family.title, "variants": variants,
            "not_measured": run["not_measured"],
            "rows": rows_of(family, run["rounds"], variants) if run["rounds"] else [],
            "rounds": run["rounds"], "failures": failures}


def show(family: dict, document: dict, stream) -> None:
    if family["not_measured"]:
        print(f"\n{family['title']}: not measured, {family['not_measured']}", file=stream)
        return
    variants, labels = family["variants"], document["labels"]
    pairs = compared(variants)
    columns = ["work", "op", "figure", *(labels[key] for key in variants),
               *(f"{short(labels[ours])} / {short(labels[rival])}" for ours, rival in pairs),
               "target", "verified"]
    rows = []
    for row in family["rows"]:
        figure = FIGURES[row["figure"]]
        ratios = [row["ratios"][ours] for ours, _ in pairs]
        judged = [f"{short(labels[one['subject']])} {one['limit']} {verdict(one['met'])}"
                  for one in row["verdicts"]]
        rows.append([row["case"], row["op"], f"{figure.title} {figure.unit}".strip(),
                     *(number(row["values"][key]) for key in variants),
                     *("-" if value is None else f"{value:.2f}" for value in ratios),
                     ", ".join(judged), f"{row['rounds_verified']} of {row['rounds']}"])
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
                     family["variants"], document["labels"])
    sheet.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside lower center", fontsize=9,
                 ncols=len(family["variants"]))
    sheet.suptitle(f"{family['title']}, median of {document['settings']['rounds']} rounds",
                   fontsize=10)
    sheet.savefig(path, dpi=110)
    pyplot.close(sheet)


def _draw_figure(axes, name: str, rows: list[dict], variants: list[str], labels: dict) -> None:
    figure = FIGURES[name]
    width = 0.84 / len(variants)
    for index, key in enumerate(variants):
        heights = [row["values"][key] or 0 for row in rows]
        places = [place + (index - (len(variants) - 1) / 2) * width for place in range(len(rows))]
        bars = axes.bar(places, heights, width * 0.94, color=COLORS[key], label=labels[key])
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
