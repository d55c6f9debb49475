# SPDX-License-Identifier: Apache-2.0
"""How soon a killed peer is a drained error, and what its death costs other peers.

A WRITE of 64 MiB to a victim that stands still is under way, while 64 KiB are written to another
peer without a pause, all of it over TCP. In the middle of that time nothing happens, or a process
of the victim's size is killed that has nothing to do with it, or the victim is. Printed: the time
from the kill of the victim to its drained error, and the p99 of the writes to the other peer in the
three cases. The second of them is what the end of a process costs on this machine, whoever it was.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import sys
import time
from pathlib import Path

from common import PLUGIN_DIR, ROOT, TCP_ONLY, SetupError, check_nixl, check_plugin, variants
from facts import library_facts, machine_facts, version_facts

sys.path.insert(0, str(ROOT / "tests" / "nixl"))
# Read by the server that the agents' processes are forked from, when it loads NIXL.
os.environ.setdefault("NIXL_LOG_LEVEL", "WARN")

from agents import AgentProcess, config_json  # noqa: E402

LARGE = 64 << 20
SMALL = 64 << 10
WINDOW_S = 0.4
GOAL_MS = 50.0
GOAL_RATIO = 1.5
STILL, STRANGER, VICTIM = "nothing dies", "a stranger dies", "the peer dies"
CASES = (STILL, STRANGER, VICTIM)


def start(name: str, size: int, plugin_dir: Path) -> tuple[AgentProcess, int]:
    agent = AgentProcess(name, plugin_dir=plugin_dir)
    agent.create({"config": config_json(**TCP_ONLY)})
    address = agent.allocate("block", size, 1)
    agent.register("block")
    return agent, address


def p99(times: list[float]) -> float:
    return statistics.quantiles(times, n=100)[98]


class Measurement:
    """The writer and the peer that lives, through all kills."""

    def __init__(self, plugin_dir: Path):
        self._plugin_dir = plugin_dir
        self._here, self._local = start("here", LARGE, plugin_dir)
        self._other, remote = start("other", SMALL, plugin_dir)
        self._here.add(self._other.metadata())
        self._to_other = self._here.prepare("WRITE", [(self._local, SMALL)], [(remote, SMALL)],
                                            "other")
        assert self._here.run(self._to_other) == "DONE"
        self.times: dict[str, list[float]] = {case: [] for case in CASES}
        self.took_ms: list[float] = []

    def close(self) -> None:
        for agent in (self._here, self._other):
            agent.close()

    def one(self, case: str) -> None:
        here = self._here
        victim, remote = start("victim", LARGE, self._plugin_dir)
        stranger, _ = start("stranger", LARGE, self._plugin_dir)
        here.add(victim.metadata())
        request = here.prepare("WRITE", [(self._local, LARGE)], [(remote, LARGE)], "victim")
        assert here.run(request) == "DONE"
        victim.stop()
        stranger.stop()
        assert here.post(request) == "PROC"
        writes = here.call_in_thread("timed_runs", self._to_other, WINDOW_S, request)
        time.sleep(WINDOW_S / 2)
        killed = {STRANGER: stranger, VICTIM: victim}.get(case)
        begin = time.monotonic()
        if killed is not None:
            killed.process.kill()
        times, ended = here.join(writes)
        victim.close()
        stranger.close()
        late = here.time_of_end(request)
        if case == VICTIM:
            self.took_ms.append(((ended or late) - begin) * 1e3)
        self.times[case] += times
        here.release(request)
        here.remove("victim")


def measure(kills: int, plugin_dir: Path) -> dict:
    machine = machine_facts()
    started = datetime.datetime.now(datetime.timezone.utc)
    measurement = Measurement(plugin_dir)
    try:
        for number in range(kills):
            for case in CASES:
                measurement.one(case)
            print(f"[{number + 1:3d}/{kills}] error after {measurement.took_ms[-1]:.1f} ms",
                  file=sys.stderr, flush=True)
    finally:
        measurement.close()
    found = {case: p99(times) * 1e6 for case, times in measurement.times.items()}
    took = measurement.took_ms
    return {"started": started.isoformat(timespec="seconds"), "machine": machine,
            "versions": version_facts(), "libraries": library_facts(plugin_dir), "kills": kills,
            "death_to_error_ms": {"median": statistics.median(took), "max": max(took),
                                  "each": took, "goal": GOAL_MS},
            "other_p99_us": found,
            "other_writes": {case: len(times) for case, times in measurement.times.items()},
            "other_p99_ratio": {"peer / nothing": found[VICTIM] / found[STILL],
                                "peer / stranger": found[VICTIM] / found[STRANGER],
                                "stranger / nothing": found[STRANGER] / found[STILL],
                                "goal": GOAL_RATIO}}


def show(document: dict) -> None:
    death, p99s, ratios = (document[name] for name in
                           ("death_to_error_ms", "other_p99_us", "other_p99_ratio"))
    print(f"killed peer to drained error: median {death['median']:.1f} ms, "
          f"max {death['max']:.1f} ms (goal {GOAL_MS:.0f} ms)")
    print("p99 of 64 KiB to another peer: " +
          ", ".join(f"{p99s[case]:.0f} us while {case}" for case in CASES))
    print(f"ratio of the peer's death to nothing {ratios['peer / nothing']:.2f} (goal "
          f"{GOAL_RATIO}), to a stranger's death {ratios['peer / stranger']:.2f}; "
          f"a stranger's death to nothing {ratios['stranger / nothing']:.2f}")


def parse_arguments(arguments) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=10, metavar="N",
                        help="how many victims, 1 to 1000 (default 10)")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench", metavar="DIR",
                        help="folder for peer_death.json (default build/bench)")
    parser.add_argument("--json", action="store_true",
                        help="print the JSON document instead of the lines")
    parser.add_argument("--plugin-dir", type=Path, default=PLUGIN_DIR,
                        help="folder with libplugin_ORBITE.so (default build/nixl-plugins)")
    options = parser.parse_args(arguments)
    if not 1 <= options.kills <= 1000:
        parser.error(f"--kills is {options.kills}; allowed: 1 to 1000")
    return options


def main(arguments=None) -> int:
    options = parse_arguments(arguments)
    try:
        check_nixl()
        check_plugin(variants(options.plugin_dir)["orbite"], options.plugin_dir)
    except SetupError as error:
        print(f"peer_death: {error}", file=sys.stderr)
        return 2
    document = measure(options.kills, options.plugin_dir)
    options.out.mkdir(parents=True, exist_ok=True)
    text = json.dumps(document, indent=1)
    (options.out / "peer_death.json").write_text(text + "\n", encoding="utf-8")
    if options.json:
        print(text)
    else:
        show(document)
    return 0


if __name__ == "__main__":
    sys.exit(main())
