# SPDX-License-Identifier: Apache-2.0
"""How soon a killed peer is a drained error, and what its death costs other peers.

A WRITE of 64 MiB to a victim is under way when the victim is killed; meanwhile 64 KiB are written
to another peer without a pause. Printed: the time from the kill to the terminal error, and the p99
of the writes to the other peer while victims die, against the p99 while one stands still.

usage: peer_death.py [--kills N] [--json FILE]; ORBITE_TEST_PLUGIN_DIR names the plugin.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "nixl"))

from agents import AgentProcess, config_json  # noqa: E402

LARGE = 64 << 20
SMALL = 64 << 10
WINDOW_S = 0.4
GOAL_MS = 50.0
GOAL_RATIO = 1.5


def start(name: str, size: int) -> tuple[AgentProcess, int]:
    agent = AgentProcess(name)
    agent.create({"config": config_json()})
    address = agent.allocate("block", size, 1)
    agent.register("block")
    return agent, address


def p99(times: list[float]) -> float:
    return statistics.quantiles(times, n=100)[98]


def one_death(here: AgentProcess, local: int, to_other: int, kill: bool) -> tuple[float, list]:
    """The milliseconds from the kill to the end, and the times of writes to the other peer."""
    victim, remote = start("victim", LARGE)
    here.add(victim.metadata())
    request = here.prepare("WRITE", [(local, LARGE)], [(remote, LARGE)], "victim")
    assert here.run(request) == "DONE"
    victim.stop()
    assert here.post(request) == "PROC"
    writes = here.call_in_thread("timed_runs", to_other, WINDOW_S)
    time.sleep(WINDOW_S / 2)
    took_ms = 0.0
    if kill:
        waiting = here.call_in_thread("time_of_end", request)
        time.sleep(WINDOW_S / 8)
        begin = time.monotonic()
        victim.process.kill()
        took_ms = (here.join(waiting) - begin) * 1e3
    times = here.join(writes)
    victim.close()
    here.time_of_end(request)
    here.release(request)
    here.remove("victim")
    return took_ms, times


def measure(kills: int) -> dict:
    here, local = start("here", LARGE)
    other, remote = start("other", SMALL)
    here.add(other.metadata())
    to_other = here.prepare("WRITE", [(local, SMALL)], [(remote, SMALL)], "other")
    assert here.run(to_other) == "DONE"
    took, calm, dying = [], [], []
    for _ in range(kills):
        calm += one_death(here, local, to_other, kill=False)[1]
        took_ms, times = one_death(here, local, to_other, kill=True)
        took.append(took_ms)
        dying += times
    for agent in (here, other):
        agent.close()
    return {"kills": kills, "death_to_error_ms": {"median": statistics.median(took),
                                                  "max": max(took)},
            "other_p99_us": {"peer stands still": p99(calm) * 1e6, "peers die": p99(dying) * 1e6},
            "other_p99_ratio": p99(dying) / p99(calm)}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    result = measure(options.kills)
    if options.json is not None:
        options.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    death, others = result["death_to_error_ms"], result["other_p99_us"]
    print(f"killed peer to drained error: median {death['median']:.1f} ms, "
          f"max {death['max']:.1f} ms (goal {GOAL_MS:.0f} ms)")
    print(f"p99 of 64 KiB to another peer: {others['peers die']:.0f} us while peers die, "
          f"{others['peer stands still']:.0f} us while one stands still, ratio "
          f"{result['other_p99_ratio']:.2f} (goal {GOAL_RATIO})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
