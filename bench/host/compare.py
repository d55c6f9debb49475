#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How fast two processes of this host are by each transport, at several numbers of threads.

Runs `orbite bench` for every shape of requests, number of threads, transport and number of copy
workers; the transports of one row are measured one after the other. Needs the executable `orbite`
and Python, no other package and no network. What there is no time for is not run, and said to be
so. The exit status is 1 if a run failed or bytes were wrong, 2 if there is nothing to run, else 0.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench" / "nixl"))

from facts import machine_facts, write_table  # noqa: E402

# The most telling first: the last ones are left out when time is short.
SHAPES = ["1024x64K", "4096x4K", "4K", "64M"]
THREADS = [1, 2, 8, 16]
WORKERS = [4, 0]
SECONDS = 0.3
TIME_MAX_S = 450
LATENCY_SHAPE = "4K"
FAILED, NOT_RUN = "failed", "not run"


@dataclass(frozen=True)
class Way:
    """A transport, and how many threads may help its callers with large copies."""

    transport: str
    workers: int

    @property
    def name(self) -> str:
        return self.transport if self.transport == "tcp" else \
            f"{self.transport}, {self.workers} workers"


def ways(workers: list[int]) -> list[Way]:
    """Nobody helps with what goes through sockets."""
    return [*(Way(transport, number) for transport in ("shm", "cma") for number in workers),
            Way("tcp", workers[0])]


@dataclass(frozen=True)
class Row:
    shape: str
    threads: int


class Runs:
    """Every run, with its result or the reason why there is none."""

    def __init__(self, options: argparse.Namespace, configurations: Path):
        self._options, self._configurations = options, configurations
        self._end = time.monotonic() + options.time_max
        self._longest_s = 0.0
        self.results: list[dict] = []

    def run_all(self) -> None:
        every = ways(self._options.workers)
        rows = [Row(shape, threads) for shape in self._options.shapes
                for threads in self._options.threads]
        for number, row in enumerate(rows):
            # Each comes first in half of the rows.
            for way in every[:: 1 if number % 2 == 0 else -1]:
                done = len(self.results)
                print(f"[{done + 1:3d}/{len(rows) * len(every)}] {row.shape}, {row.threads} "
                      f"threads, {way.name}", file=sys.stderr, flush=True)
                self.results.append({"shape": row.shape, "threads": row.threads,
                                     "transport": way.transport, "workers": way.workers,
                                     **self._one(row, way)})

    def _one(self, row: Row, way: Way) -> dict:
        left_s = self._end - time.monotonic()
        if left_s <= self._longest_s:
            return {"state": NOT_RUN, "reason": f"--time-max is {self._options.time_max:g} s"}
        config = self._configurations / f"{way.workers}.json"
        config.write_text(json.dumps({"copy": {"workers_max": way.workers}}), encoding="utf-8")
        command = [str(self._options.tool), "bench", "--json", "--transport", way.transport,
                   "--shape", row.shape, "--threads", str(row.threads), "--seconds",
                   str(self._options.seconds), "--config", str(config), "--memory", "64G"]
        begin = time.monotonic()
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=left_s,
                                  check=False, env=without_settings())
        except subprocess.TimeoutExpired:
            return {"state": FAILED, "reason": f"no end in {left_s:.0f} s"}
        took_s = time.monotonic() - begin
        self._longest_s = max(self._longest_s, took_s)
        if done.returncode != 0:
            lines = done.stderr.strip().splitlines()
            return {"state": FAILED, "took_s": round(took_s, 2),
                    "reason": lines[-1] if lines else f"status {done.returncode}"}
        return {"state": "ok", "took_s": round(took_s, 2), "measured": json.loads(done.stdout)}


def without_settings() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("ORBITE_")}


def operation_of(result: dict, name: str) -> dict:
    return next(one for one in result["measured"]["operations"] if one["operation"] == name)


def cell(result: dict, name: str) -> str:
    if result["state"] != "ok":
        return result["state"]
    operation = operation_of(result, name)
    text = f"{operation['gb_per_s']:.2f}"
    if result["shape"] == LATENCY_SHAPE:
        text += f", {operation['total_ns']['p50'] / 1000:.2f} us"
    if operation["limits"]:
        text += f" ({operation['limits'][0]['ratio']:.2f})"
    return text


def show(document: dict, stream) -> None:
    every = ways(document["settings"]["workers"])
    found = {(one["shape"], one["threads"], one["transport"], one["workers"]): one
             for one in document["results"]}
    for shape in document["settings"]["shapes"]:
        rows = [[str(threads), name.upper(),
                 *(cell(found[shape, threads, way.transport, way.workers], name)
                   for way in every)]
                for threads in document["settings"]["threads"] for name in ("write", "read")]
        what = "GB/s, p50" if shape == LATENCY_SHAPE else "GB/s"
        write_table(f"{shape}: {what} (and the share of what the plainest program of that way "
                    "reaches)", ["threads", "op", *(way.name for way in every)], rows, stream)
    cores, load = document["machine"]["cores"], document["machine"]["load_average"][0]
    print(f"\n{document['machine']['cpu']}, {cores} cores, load average {load:.1f} at the start; "
          f"took {document['duration_s']:.0f} s", file=stream)
    for one in document["results"]:
        if one["state"] == FAILED:
            print(f"FAILED {one['shape']}, {one['threads']} threads, {one['transport']}, "
                  f"{one['workers']} workers: {one['reason']}", file=stream)
    left = sum(one["state"] == NOT_RUN for one in document["results"])
    if left:
        print(f"{left} of {len(document['results'])} runs were not made: --time-max", file=stream)


def number_list(text: str) -> list[int]:
    return list(dict.fromkeys(int(part) for part in text.split(",")))


def parse_arguments(arguments) -> argparse.Namespace:
    cores = len(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tool", type=Path, default=ROOT / "build" / "bin" / "orbite",
                        help="the executable (default build/bin/orbite; `make tool`)")
    parser.add_argument("--threads", type=number_list, metavar="LIST",
                        default=[one for one in THREADS if one <= cores],
                        help=f"threads that post (default those of "
                             f"{','.join(map(str, THREADS))} for which there are cores)")
    parser.add_argument("--shapes", type=lambda text: text.split(","), metavar="LIST",
                        default=SHAPES, help=f"as `orbite bench --shape` (default "
                                             f"{','.join(SHAPES)})")
    parser.add_argument("--workers", type=number_list, default=WORKERS, metavar="LIST",
                        help="numbers of copy workers (default "
                             f"{','.join(map(str, WORKERS))})")
    parser.add_argument("--seconds", type=float, default=SECONDS,
                        help=f"of transfers for each operation of a run (default {SECONDS:g})")
    parser.add_argument("--time-max", type=float, default=TIME_MAX_S, metavar="SECONDS",
                        help="no run is begun that would probably end later (default "
                             f"{TIME_MAX_S})")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench", metavar="DIR",
                        help="folder for host.json (default build/bench)")
    parser.add_argument("--json", action="store_true",
                        help="print the JSON document instead of the tables")
    return parser.parse_args(arguments)


def version_of(tool: Path) -> str:
    done = subprocess.run([str(tool), "--version"], capture_output=True, text=True, timeout=20,
                          check=True)
    return done.stdout.strip()


def main(arguments=None) -> int:
    options = parse_arguments(arguments)
    try:
        version = version_of(options.tool)
    except (OSError, subprocess.SubprocessError) as error:
        print(f"compare: {options.tool} cannot be run: {error}", file=sys.stderr)
        return 2
    started, begin = datetime.datetime.now(datetime.timezone.utc), time.monotonic()
    machine = machine_facts()
    with tempfile.TemporaryDirectory(prefix="orbite-host-") as folder:
        runs = Runs(options, Path(folder))
        runs.run_all()
    document = {"started": started.isoformat(timespec="seconds"),
                "duration_s": round(time.monotonic() - begin, 1), "machine": machine,
                "version": version,
                "settings": {"threads": options.threads, "shapes": options.shapes,
                             "workers": options.workers, "seconds": options.seconds},
                "results": runs.results}
    options.out.mkdir(parents=True, exist_ok=True)
    text = json.dumps(document, indent=1)
    (options.out / "host.json").write_text(text + "\n", encoding="utf-8")
    if options.json:
        print(text)
    else:
        show(document, sys.stdout)
        print(f"written: {options.out / 'host.json'}")
    return 1 if any(one["state"] == FAILED for one in runs.results) else 0


if __name__ == "__main__":
    sys.exit(main())
