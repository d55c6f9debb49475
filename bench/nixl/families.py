# SPDX-License-Identifier: Apache-2.0
"""What is measured beside the table: each family is a description, and adding one is adding here.

A case is a set of streams that run at a time. How they run, are counted and are checked is
family_cells.py's.
"""

from __future__ import annotations

from dataclasses import dataclass

from common import OPERATIONS
from layouts import KIB, MIB, WORKLOADS, Layout, adjacent, kv_cache

# How a cell is measured: transfers one after another, or the first one of agents that just met.
STEADY, FIRST = "steady", "first"
# With what a family is measured: what reaches memory of the same host, what never does, and both.
SAME_HOST = ("orbite-shm", "orbite", "ucx")
OVER_TCP = ("orbite-tcp", "ucx-tcp")
BOTH_WAYS = ("orbite", "ucx", "orbite-tcp")


@dataclass(frozen=True)
class Figure:
    title: str
    unit: str
    lower_is_better: bool = True


FIGURES = {
    "gbps": Figure("throughput", "GB/s", False),
    "kops": Figure("transfers", "1000/s", False),
    "p50_us": Figure("p50", "us"),
    "p90_us": Figure("p90", "us"),
    "p99_us": Figure("p99", "us"),
    "p999_us": Figure("p99.9", "us"),
    "quiet_p99_us": Figure("p99 without the bulk", "us"),
    "p99_factor": Figure("p99 / quiet p99", ""),
    "background_gbps": Figure("bulk", "GB/s", False),
    "cpu_a_s_per_gb": Figure("CPU of the poster", "s/GB"),
    "cpu_b_s_per_gb": Figure("CPU of the target", "s/GB"),
    "connect_us": Figure("connect", "us"),
    "first_us": Figure("first transfer", "us"),
}


@dataclass(frozen=True)
class Target:
    """A limit of a variant's figure, or of its ratio to that of its rival."""

    figure: str
    limit: float
    subject: str
    against: str | None = None

    def text(self) -> str:
        return f"{'<=' if FIGURES[self.figure].lower_is_better else '>='} {self.limit:g}"

    def met(self, value: float | None) -> bool:
        if value is None:
            return False
        lower = FIGURES[self.figure].lower_is_better
        return value <= self.limit if lower else value >= self.limit


@dataclass(frozen=True)
class Stream:
    """One request that a thread of side a or b posts again and again."""

    layout: Layout
    op: str
    side: str = "a"
    background: bool = False


@dataclass(frozen=True)
class Case:
    name: str
    op: str
    streams: tuple[Stream, ...]
    targets: tuple[Target, ...] = ()
    nap_s: float = 0.0

    @property
    def extent(self) -> int:
        """Every stream has an area of its own, at the same place on both sides."""
        return sum(stream.layout.extent for stream in self.streams)

    def targets_of(self, figure: str) -> list[Target]:
        return [one for one in self.targets if one.figure == figure]


@dataclass(frozen=True)
class Family:
    key: str
    title: str
    figures: tuple[str, ...]
    cases: tuple[Case, ...]
    # Those that it is measured with, as far as they were chosen.
    variants: tuple[str, ...] = SAME_HOST
    # Whether a run that names no family has it.
    standard: bool = True
    method: str = STEADY
    threaded: bool = False
    # Two network namespaces with a cable between them instead of loopback.
    cable: bool = False
    # Times as long as other cells, where rare events are looked for.
    patience: float = 1.0

    @property
    def region_bytes(self) -> int:
        return max(case.extent for case in self.cases)


def singles(layouts: dict[str, Layout], targets=None) -> tuple[Case, ...]:
    """One stream from a: each layout, WRITE and READ."""
    return tuple(Case(name, op, (Stream(layout, op),), (targets or {}).get(name, ()))
                 for name, layout in layouts.items() for op in OPERATIONS)


def some(*names: str) -> dict[str, Layout]:
    return {name: WORKLOADS[name] for name in names}


def both_directions() -> tuple[Case, ...]:
    return tuple(Case(name, op, tuple(Stream(layout, op, side) for side in "ab"))
                 for name, layout in some("1x4KiB", "1x64MiB", "1024x64KiB").items()
                 for op in OPERATIONS)


def several_threads() -> tuple[Case, ...]:
    layouts = {"4KiB": Layout(1, 4 * KIB), "1MiB": Layout(1, MIB)}
    return tuple(Case(f"{threads} x {name}", op, (Stream(layout, op),) * threads)
                 for name, layout in layouts.items() for threads in (1, 2, 8)
                 for op in OPERATIONS)


def kv_layouts() -> dict[str, Layout]:
    caches = {f"60 x K,V x 16 x {size}KiB": kv_cache(size * KIB) for size in (16, 32, 64)}
    runs = {f"4000x16KiB, {percent}% adjacent": adjacent(4000, 16 * KIB, percent)
            for percent in (0, 50, 90)}
    return {**caches, "100000x4KiB": Layout(100_000, 4 * KIB), **runs}


def mixed() -> tuple[Case, ...]:
    small, bulk = WORKLOADS["1x4KiB"], WORKLOADS["1x64MiB"]
    return tuple(Case(f"4KiB beside {other} 64MiB", op,
                      (Stream(small, op), Stream(bulk, other, background=True)),
                      (Target("p99_factor", 5.0, "orbite"),
                       Target("p99_factor", 5.0, "orbite-tcp")))
                 for other in OPERATIONS for op in OPERATIONS)


def cpu() -> tuple[Case, ...]:
    seldom = tuple(Case("1x64MiB, a look each 0.2 ms", op,
                        (Stream(WORKLOADS["1x64MiB"], op),), nap_s=0.0002) for op in OPERATIONS)
    return singles(some("1x64MiB", "4096x4KiB")) + seldom


SMALL_TARGETS = {"1x4KiB": (Target("p50_us", 0.5, "orbite-shm", "ucx"),
                            Target("p50_us", 0.9, "orbite", "ucx"))}
FAMILIES = {family.key: family for family in (
    Family("latency", "Latency of one transfer, post to done",
           ("p50_us", "p90_us", "p99_us", "p999_us"),
           singles(some("1x4KiB", "1x64KiB"), SMALL_TARGETS), patience=2.0),
    Family("both", "Both directions at once", ("gbps", "p50_us"), both_directions()),
    Family("mixed", "Small transfers while bulk runs in the background",
           ("quiet_p99_us", "p99_us", "p99_factor", "background_gbps"), mixed(), BOTH_WAYS,
           patience=2.0),
    Family("first", "First transfer of two agents that just met", ("connect_us", "first_us"),
           singles(some("1x4KiB", "1x64MiB")), BOTH_WAYS, method=FIRST),
    Family("cpu", "CPU time of both processes, seconds per GB",
           ("cpu_a_s_per_gb", "cpu_b_s_per_gb", "gbps"), cpu()),
    Family("network", "Two network namespaces with a veth cable between them",
           ("gbps", "p50_us"), singles(some("1x4KiB", "1x64MiB", "4096x4KiB")), OVER_TCP,
           cable=True),
    Family("threads", "One request for each of 1, 2 and 8 threads of one process",
           ("gbps", "kops", "p50_us"), several_threads(), standard=False, threaded=True),
    Family("kv", "Shapes of KV caches", ("gbps",), singles(kv_layouts()), standard=False),
)}
