# SPDX-License-Identifier: Apache-2.0
"""The parts of the benchmark that compute: layouts, statistics, families, verdicts."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench" / "nixl"))

import bench  # noqa: E402
import family_report  # noqa: E402
import family_run  # noqa: E402
import report  # noqa: E402
from cells import Timing, claimed_route  # noqa: E402
from common import compare, variants, worker_env  # noqa: E402
from families import FAMILIES, Family, Target, singles  # noqa: E402
from layouts import WORKLOADS, Layout, adjacent, block_pairs, kv_cache, shape  # noqa: E402
from pair import WorkerFailed  # noqa: E402
from stats import percentiles_us, transfers_within  # noqa: E402

LAYOUTS = {"plain": Layout(5, 24, gap=8), "runs": adjacent(20, 16, 90),
           "groups": kv_cache(32, blocks=3, layers=2),
           "all": Layout(24, 8, gap=16, run=2, runs_per_group=3, group_gap=40)}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_blocks_lie_at_the_offsets_and_nothing_else_is_theirs(layout):
    area = np.zeros(layout.extent, dtype=np.uint8)
    for offset in layout.offsets():
        assert not area[offset : offset + layout.size].any()
        area[offset : offset + layout.size] = 1
    assert layout.payload == area.sum() == layout.blocks(area).sum()
    assert not area[: layout.gap].any() and not area[layout.span :].any()
    assert Layout(*shape(layout)) == layout


@pytest.mark.parametrize("order", ["straight", "shuffle"])
def test_a_copy_moves_block_by_block_and_a_wrong_guard_is_seen(order):
    layout = LAYOUTS["all"]
    origin = np.arange(layout.extent, dtype=np.uint32).astype(np.uint8)
    take, put = block_pairs(layout, order)
    area = np.full(layout.extent, 255, dtype=np.uint8)
    layout.copy(origin, take, area, put)
    by_hand = np.full(layout.extent, 255, dtype=np.uint8)
    offsets = layout.offsets()
    for source, target in zip(offsets[take], offsets[put]):
        by_hand[target : target + layout.size] = origin[source : source + layout.size]
    assert compare(by_hand, area, layout, layout.count)["ok"]
    by_hand[0] ^= 1
    found = compare(by_hand, area, layout, layout.count)
    assert (found["ok"], found["guards_intact"], found["bytes_wrong"]) == (False, False, 1)


@pytest.mark.parametrize("percent", [0, 50, 90])
def test_adjacency_is_the_share_of_blocks_that_follow_without_a_gap(percent):
    layout = adjacent(1000, 64, percent)
    touching = np.count_nonzero(np.diff(layout.offsets().astype(np.int64)) == layout.size)
    assert touching == 1000 * percent // 100


def test_a_kv_cache_has_one_stride_in_a_tensor_and_another_between_tensors():
    steps = np.diff(kv_cache(16384, blocks=16, layers=60).offsets().astype(np.int64))
    between = steps[15::16]
    assert len(between) == 119 and len(set(between)) == 1
    assert set(np.delete(steps, np.arange(15, len(steps), 16))) == {2 * 16384} != set(between)


@pytest.mark.parametrize("make", [lambda: adjacent(1000, 64, 40), lambda: adjacent(1001, 64, 50),
                                  lambda: Layout(0, 64)])
def test_layouts_that_do_not_come_out_even_are_refused(make):
    with pytest.raises(ValueError, match="allowed"):
        make()


def test_transfers_count_by_their_share_of_the_time():
    assert transfers_within([0, 10, 20], [10, 20, 30], 0, 30) == 3
    assert transfers_within([0, 10, 20], [10, 20, 40], 5, 30) == pytest.approx(2.0)
    assert transfers_within([0], [100], 40, 50) == pytest.approx(0.1)
    assert transfers_within([60], [70], 0, 50) == 0
    assert transfers_within([], [], 0, 50) == 0


def test_percentiles_are_times_that_were_measured():
    found = percentiles_us([value * 1000 for value in range(1, 1001)])
    assert found == {"p50_us": 501, "p90_us": 901, "p99_us": 991, "p999_us": 1000}
    assert set(percentiles_us([7000]).values()) == {7}


PLUGIN_DIR = Path("plugins")
EVERY = variants(PLUGIN_DIR)


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES.keys())
def test_every_family_can_be_reported(family):
    assert len({(case.name, case.op) for case in family.cases}) == len(family.cases)
    assert set(family.variants) <= set(EVERY)
    rounds = [{"round": 0, "variant": key, "case": case.name, "op": case.op, "ok": True,
               **dict.fromkeys(family.figures, 2.0)}
              for case in family.cases for key in family.variants]
    run = {"rounds": rounds, "failures": [], "not_measured": None}
    found = family_report.document_of(family, run, list(family.variants))
    assert len(found["rows"]) == len(family.cases) * len(family.figures)
    assert all(set(row["ratios"].values()) == {1.0} for row in found["rows"])
    judged = [one for row in found["rows"] for one in row["verdicts"]]
    assert len(judged) == sum(len(case.targets) for case in family.cases)
    out = io.StringIO()
    family_report.show(found, {"labels": {key: one.label for key, one in EVERY.items()},
                               "settings": {"rounds": 1}}, out)
    assert out.getvalue().count("MISSED") == sum(one["met"] is False for one in judged)


SMALL = Family("small", "Small", ("p50_us", "gbps"), singles(
    {"one": Layout(1, 8)},
    {"one": (Target("p50_us", 0.8, "orbite-tcp", "ucx-tcp"), Target("gbps", 3.0, "orbite-tcp"))}),
    ("orbite-tcp", "ucx-tcp"))


def rounds_of(ucx_us: float, **own) -> list[dict]:
    figures = {"orbite-tcp": {"p50_us": 8.0, "gbps": 3.0} | own,
               "ucx-tcp": {"p50_us": ucx_us, "gbps": 1.0}}
    return [{"round": number, "variant": key, "case": "one", "op": case.op, "ok": True, **values}
            for number in range(3) for case in SMALL.cases for key, values in figures.items()]


def verdicts(rounds: list[dict], variants: tuple[str, ...] = SMALL.variants) -> list:
    return [[one["met"] for one in row["verdicts"]]
            for row in family_report.rows_of(SMALL, rounds, list(variants))]


def test_verdicts_are_on_the_ratio_or_on_the_own_figure():
    assert verdicts(rounds_of(10.0)) == [[True], [True]] * 2
    assert verdicts(rounds_of(9.9, gbps=2.9)) == [[False], [False]] * 2
    assert verdicts(rounds_of(10.0), ("orbite-tcp",)) == [[], [True]] * 2
    assert verdicts(rounds_of(10.0), ("ucx-tcp",)) == [[], []] * 2


def test_a_round_that_differs_counts_for_nothing_and_is_a_failure():
    rounds = rounds_of(10.0)
    rounds[0].update(ok=False, bytes_wrong=3, p50_us=1e9)
    found = family_report.document_of(SMALL, {"rounds": rounds, "failures": [],
                                              "not_measured": None}, list(SMALL.variants))
    assert found["rows"][0]["values"]["orbite-tcp"] == 8.0
    assert (found["rows"][0]["rounds_verified"], found["rows"][0]["rounds"]) == (5, 6)
    assert found["failures"][0]["error"] == "3 bytes differ from the model"
    assert found["failures"][0]["where"] == "small: round 1, WRITE one"


def test_a_family_that_is_not_measured_says_why():
    run = {"rounds": [], "failures": [], "not_measured": "network namespaces need root"}
    found = family_report.document_of(SMALL, run, ["orbite-tcp"])
    out = io.StringIO()
    family_report.show(found, {}, out)
    assert "Small: not measured, network namespaces need root" in out.getvalue()


def test_a_family_without_any_of_its_variants_starts_nothing():
    run = family_run.run_family(SMALL, [EVERY["ucx"]], {}, 1, Timing(0, 0), None)
    assert run["not_measured"] == "it takes orbite-tcp or ucx-tcp"
    assert family_run.steps(SMALL, [EVERY["ucx"]], 1) == 0


# The table.


def medians_of(figures: dict[str, float]) -> list[dict]:
    """The same figure of a variant in all cells."""
    rounds = [{"round": 0, "variant": key, "workload": name, "op": op, "ok": True, "gbps": value,
               "p50_us": value} for key, value in figures.items() for name in WORKLOADS
              for op in ("WRITE", "READ")]
    return report.medians(rounds, list(figures), list(WORKLOADS))


def ratios_of(figures: dict[str, float]) -> list[dict]:
    return report.ratios(medians_of(figures), list(figures))


def test_like_is_compared_with_like():
    found = ratios_of(dict.fromkeys(EVERY, 2.0))
    assert {(one["subject"], one["against"]) for one in found} == {
        ("orbite-shm", "ucx"), ("orbite", "ucx"), ("orbite-tcp", "ucx-tcp")}
    assert {one["ratio"] for one in found} == {1.0}
    assert ratios_of({"orbite-tcp": 1.0, "ucx": 1.0}) == []


@pytest.mark.parametrize(("subject", "rival", "limits"), [
    ("orbite-shm", "ucx", ["<= 0.5", "<= 0.5", ">= 1.6", ">= 1.6", ">= 1.8", ">= 1.8", ">= 6",
                           ">= 6"]),
    ("orbite", "ucx", ["<= 0.9", "<= 0.9", ">= 1", ">= 1", ">= 1", ">= 1", ">= 3", ">= 3"]),
    ("orbite-tcp", "ucx-tcp", ["<= 0.8", "<= 0.8", ">= 1.3", ">= 4", ">= 1.5", ">= 4", ">= 5",
                               ">= 5"])])
def test_cells_have_these_targets_and_others_have_none(subject, rival, limits):
    judged = [one for one in ratios_of({subject: 1.0, rival: 1.0}) if one["limit"]]
    assert [one["limit"] for one in judged] == limits
    order = [one["workload"] for one in judged[::2]]
    assert order == ["1x4KiB", "1x64MiB", "1024x64KiB", "4096x4KiB"]
    for one in judged:
        lower = one["limit"].startswith("<=")
        assert one["met"] is (1.0 <= float(one["limit"][3:]) if lower
                              else 1.0 >= float(one["limit"][3:]))


def test_a_failed_cell_misses_its_target():
    rows = medians_of({"orbite": 1.0, "ucx": 1.0})
    rows[0]["cells"]["orbite"]["p50_us"] = None
    first = report.ratios(rows, ["orbite", "ucx"])[0]
    assert (first["ratio"], first["met"]) == (None, False)


def test_each_comparison_has_a_table_and_the_rest_one_of_its_own():
    figures = {"orbite-shm": 1.0, "ucx": 1.0, "orbite-tcp": 1.0}
    out = io.StringIO()
    report.show_rounds({"variants": list(figures), "medians": medians_of(figures),
                        "labels": {key: one.label for key, one in EVERY.items()},
                        "ratios": ratios_of(figures), "settings": {"rounds": 1}}, out)
    titles = [line for line in out.getvalue().splitlines() if "alternating" in line]
    assert titles == ["ORBITE SHM against UCX default: medians of 1 alternating rounds",
                      "Compared with nothing: medians of 1 alternating rounds"]


# Variants.


def test_only_the_variants_that_say_so_have_settings(monkeypatch):
    monkeypatch.setenv("ORBITE_CONFIG", "/nowhere.json")
    monkeypatch.setenv("UCX_TLS", "sm")
    monkeypatch.setenv("NIXL_PLUGIN_DIR", "/nowhere")
    environments = {key: worker_env(one) for key, one in EVERY.items()}
    settings = json.loads(Path(environments["orbite-tcp"]["ORBITE_CONFIG"]).read_text())
    assert settings == {"shm": {"enabled": False}, "cma": {"enabled": False}}
    for key in ("orbite", "orbite-shm", "ucx", "ucx-tcp"):
        assert "ORBITE_CONFIG" not in environments[key]
    assert {key for key, one in environments.items() if "UCX_TLS" in one} == {"ucx-tcp"}
    assert environments["orbite"]["NIXL_PLUGIN_DIR"] == "plugins"


class Reports:
    """A pair whose two sides report these counts, reading after reading."""

    def __init__(self, key: str, *readings: tuple[dict, dict]):
        self.variant, self._readings = EVERY[key], list(readings)

    def both(self, name: str) -> list[dict]:
        assert name == "routes"
        return [{"name": "orbite", "counts": counts} for counts in self._readings.pop(0)]


@pytest.mark.parametrize(("after", "told"), [
    (({"cma": 5}, {}), None), (({"cma": 5}, {"cma": 1}), None),
    (({"cma": 5, "tcp": 3}, {}), "should go by cma, the backend reports 2 by cma, 1 by tcp"),
    (({"cma": 5}, {"tcp": 1}), "reports 2 by cma, 1 by tcp"),
    (({"cma": 3, "tcp": 2}, {}), "reports none")])
def test_transfers_by_another_route_are_an_error(after, told):
    expected = pytest.raises(WorkerFailed, match=told) if told else contextlib.nullcontext()
    with expected, claimed_route(Reports("orbite", ({"cma": 3, "tcp": 2}, {}), after)):
        pass


def test_a_backend_that_does_not_tell_is_not_asked():
    with claimed_route(Reports("ucx")):
        pass


def test_variants_that_no_part_measures_are_left_out():
    every = list(EVERY.values())
    assert bench.needed(every, ["table"]) == every
    assert [one.key for one in bench.needed(every, ["network"])] == ["orbite-tcp", "ucx-tcp"]
    assert [one.key for one in bench.needed(every, ["costs"])] == ["orbite", "ucx"]


def test_parts_run_once_each_in_their_order_and_unknown_ones_are_refused():
    assert bench.parts_of(["kv", "table", "kv"]) == ["table", "kv"]
    assert set(bench.parts_of(["standard"])) < set(bench.parts_of(["all"])) == set(bench.PARTS)
    with pytest.raises(ValueError, match="'nonsense'; allowed: standard, all, table"):
        bench.parts_of(["nonsense"])
