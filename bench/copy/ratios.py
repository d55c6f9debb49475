#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs copy_bench and prints a table: GB/s of std::memcpy, and of the others as ratios to it.

usage: ratios.py COPY_BENCH [--filter REGEX] [--min-time SECONDS] [--repetitions N]

The repetitions of all benchmarks are interleaved at random, so that what disturbs the machine for
a while disturbs all of them; a figure is the median.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections import defaultdict


def size_text(size: int) -> str:
    for unit in ("B", "KiB", "MiB"):
        if size < 1024 or size % 1024:
            return f"{size} {unit}"
        size //= 1024
    return f"{size} GiB"


def shape_text(shape: tuple[str, int, int, int]) -> str:
    heat, block, total, threads = shape
    text = f"{total // block} x {size_text(block)}, {heat}"
    return text if threads == 1 else f"{text}, {threads} threads"


def measure(arguments: argparse.Namespace) -> dict[tuple[str, int, int, int], dict[str, float]]:
    answer = subprocess.run(
        [
            arguments.copy_bench,
            "--benchmark_format=json",
            f"--benchmark_filter={arguments.filter}",
            f"--benchmark_min_time={arguments.min_time}",
            f"--benchmark_repetitions={arguments.repetitions}",
            "--benchmark_enable_random_interleaving=true",
        ],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout
    rounds = defaultdict(lambda: defaultdict(list))
    for run in json.loads(answer)["benchmarks"]:
        if run["run_type"] == "iteration":
            kernel, heat, block, total, threads = run["run_name"].split("/")[:5]
            shape = (heat, int(block), int(total), int(threads))
            rounds[shape][kernel].append(run["bytes_per_second"] / 1e9)
    return {
        shape: {kernel: statistics.median(speeds) for kernel, speeds in kernels.items()}
        for shape, kernels in rounds.items()
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("copy_bench", help="path of the executable")
    parser.add_argument("--filter", default=".", help="names that match")
    parser.add_argument("--min-time", type=float, default=0.02, help="seconds for each round")
    parser.add_argument("--repetitions", type=int, default=5)
    measured = measure(parser.parse_args())
    if not measured:
        print("ratios.py: no benchmark has such a name", file=sys.stderr)
        return 1
    others = [kernel for kernel in next(iter(measured.values())) if kernel != "memcpy"]
    print("| shape | memcpy, GB/s |", " | ".join(others), "|")
    print("|---|---|" + "---|" * len(others))
    for shape in sorted(measured, key=lambda shape: (shape[0], shape[3], shape[2], shape[1])):
        speeds = measured[shape]
        ratios = (f"{speeds[kernel] / speeds['memcpy']:.2f}" for kernel in others)
        print(f"| {shape_text(shape)} | {speeds['memcpy']:.1f} |", " | ".join(ratios), "|")
    return 0


if __name__ == "__main__":
    sys.exit(main())
