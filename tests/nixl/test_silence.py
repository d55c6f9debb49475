# SPDX-License-Identifier: Apache-2.0
"""Peers that fall silent: stopped, cut off, deaf in one direction, slow, restarted at once; and
clocks that jump. Our own impression proves nothing; the peer's FIN or RST, its answer to a drain,
or an operator's word does."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from agents import AgentError, config_json
from conftest import accounts, repeats, until

MIB = 1 << 20
SIZE = 8 * MIB
IMPATIENT = {"tcp": {"progress_timeout_ms": 100}}
FAILED, PENDING, RETIRED = 3, 1, 2
DRAINED = ("nixlRemoteDisconnectError", "nixlBackendError")
HERE, THERE = "10.231.20.1", "10.231.20.2"


@pytest.fixture
def pair(make_pair, probe):
    made = make_pair(SIZE, probe=probe, here_config=config_json(**IMPATIENT))
    made.request = prepare_whole(made.here, made.here_address, made.there_address)
    assert made.here.run(made.request) == "DONE"
    return made


def prepare_whole(agent, local: int, remote: int) -> int:
    return agent.prepare("WRITE", [(local, SIZE)], [(remote, SIZE)], "there")


def unresolved(agent) -> list[dict]:
    return agent.info()["unresolved"]


def expect_silent(agent, request: int, address: str) -> dict:
    """Failed, not ended, and told once; what is told of it."""
    assert until(lambda: any(peer["pieces"] > 0 for peer in unresolved(agent)))
    (peer,) = unresolved(agent)
    assert (peer["name"], peer["requests"], peer["bytes"]) == ("there", 1, SIZE)
    assert "silent" in peer["reason"] and peer["address"].startswith(address + ":")
    for _ in range(20):
        assert agent.poll(request) == "PROC"
    assert accounts(agent.info())["bytes_in_flight"] == SIZE
    return peer


def expect_drained(agent, request: int) -> None:
    with pytest.raises(AgentError) as failed:
        agent.wait(request)
        raise AssertionError("it succeeded")
    assert failed.value.kind in DRAINED
    assert unresolved(agent) == []
    agent.release(request)
    assert until(lambda: accounts(agent.info())["bytes_in_flight"] == 0)


def test_stopped_peer_is_unresolved_until_it_goes_on(pair):
    """SIGSTOP, SIGCONT: the transfer has failed, named by peer and reason, and stays in progress;
    the peer's own answer ends it, as an error since nobody knows better."""
    for round_ in repeats(10):
        assert pair.here.run(pair.request) == "DONE"
        pair.there.stop()
        warned = pair.here.log().count("asking over another connection")
        assert pair.here.post(pair.request) == "PROC"
        handle = pair.here.last_request()
        expect_silent(pair.here, pair.request, "127.0.0.1")
        assert pair.here.result(handle)["logical"] == FAILED
        assert pair.here.result(handle)["drain"] == PENDING
        assert pair.here.log().count("asking over another connection") == warned + 1
        pair.there.resume()
        expect_drained(pair.here, pair.request)
        assert pair.guards_intact(), round_
        pair.request = prepare_whole(pair.here, pair.here_address, pair.there_address)
    assert pair.here.run(pair.request) == "DONE"
    assert pair.there.content("block") == pair.here.content("block")


def test_silent_peer_that_is_killed(pair):
    """SIGSTOP, SIGKILL: its kernel's word is proof."""
    pair.there.stop()
    assert pair.here.post(pair.request) == "PROC"
    expect_silent(pair.here, pair.request, "127.0.0.1")
    pair.there.kill()
    expect_drained(pair.here, pair.request)


@pytest.mark.parametrize("removed", [False, True], ids=["known", "removed"])
def test_operators_word(pair, removed):
    """An operator who has fenced the peer says so, by handle, or by epoch once the agent has
    removed it: everything retires, and the statement is logged and counted."""
    pair.there.stop()
    assert pair.here.post(pair.request) == "PROC"
    peer = expect_silent(pair.here, pair.request, "127.0.0.1")
    handle = pair.here.last_request()
    assert peer["retired"] is False
    if removed:
        pair.here.remove("there")
        assert unresolved(pair.here)[0]["retired"] is True
        assert pair.here.confirm_fenced(pair.here.last_peer()) != 0
        assert pair.here.confirm_epoch_fenced("00" * 16) != 0
        assert pair.here.confirm_epoch_fenced(peer["epoch"]) == 0
        assert pair.here.result(handle)["terminal"] == 1
        pair.here.release(pair.request)
    else:
        assert pair.here.confirm_fenced(pair.here.last_peer()) == 0
        expect_drained(pair.here, pair.request)
    assert unresolved(pair.here) == []
    assert pair.here.info()["counters"]["peers_confirmed_fenced"] == 1
    assert pair.here.log().count("an operator declared peer 'there'") == 1


def test_stopped_caller_takes_nobody_for_silent(pair):
    """We stand still ourselves for longer than the timeout: the answer that came meanwhile counts,
    not the time."""
    request = pair.here.prepare("WRITE", pair.local((0, 64)), pair.remote((0, 64)), "there")
    for _ in repeats(10):
        pair.here.post(request)
        pair.here.stop()
        time.sleep(2 * IMPATIENT["tcp"]["progress_timeout_ms"] / 1000)
        pair.here.resume()
        assert pair.here.wait(request) == "DONE"
    assert pair.here.info()["counters"]["lanes_failed"] == 0


@pytest.mark.parametrize("operation", ["READ", "WRITE"])
def test_slow_drain_is_not_silence(make_proxied_pair, operation):
    """Bytes come a few at a time, for longer than the timeout in all: whoever receives them, we of a
    READ, the target of a WRITE, waits for the rest. Progress is what counts."""
    timeout_ms = 400
    hasty = {"tcp": {"progress_timeout_ms": timeout_ms}}
    pair = make_proxied_pair(MIB, **{"here" if operation == "READ" else "there": hasty})
    answers = operation == "READ"
    request = pair.prepare_whole(operation)
    assert pair.here.run(request) == "DONE"
    pair.here.fill("block", 5)
    pair.there.fill("block", 6)
    pair.proxy.hold(0, lane="bulk", answers=answers)
    assert pair.here.post(request) == "PROC"
    begin = time.monotonic()
    while time.monotonic() - begin < 3 * timeout_ms / 1000:
        pair.proxy.hold(4096, lane="bulk", answers=answers)
        pair.proxy.wake()
        time.sleep(timeout_ms / 1000 / 20)
        assert pair.here.poll(request) == "PROC"
    assert unresolved(pair.here) == []
    pair.proxy.open()
    assert pair.here.wait(request) == "DONE"
    assert pair.there.content("block") == pair.here.content("block")
    assert pair.here.info()["counters"]["lanes_failed"] == 0


def test_restart_at_the_same_address_at_once(start, probe):
    """The successor listens on the dead one's port some milliseconds later: it is not taken for the
    dead one, which is gone for good, and it can be reached."""
    here, there = start("here", probe=probe), start("there", probe=probe)
    address = here.allocate("block", SIZE, 1)
    here.register("block")
    port = int(there.info()["listen"].rpartition(":")[2])
    listen = config_json(listen={"address": "127.0.0.1", "port": port})
    gaps = []
    for round_ in repeats(10):
        there_address = there.allocate("block", SIZE, round_)
        there.register("block")
        here.add(there.metadata())
        old = prepare_whole(here, address, there_address)
        assert here.run(old) == "DONE"
        there.stop()
        assert here.post(old) == "PROC"
        successor = start("there", create=False)
        successor.plugins()  # its agent stands; all that is missing is the engine
        there.kill()
        begin = time.monotonic()
        successor.create({"config": listen})
        gaps.append(time.monotonic() - begin)
        expect_drained(here, old)
        here.remove("there")
        there = successor
    print(f"restarted within {min(gaps) * 1e3:.1f} to {max(gaps) * 1e3:.1f} ms")
    there_address = there.allocate("block", SIZE, 99)
    there.register("block")
    here.add(there.metadata())
    request = prepare_whole(here, address, there_address)
    assert here.run(request) == "DONE"
    assert there.content("block") == here.content("block")


def test_jumps_of_the_wall_clock_mean_nothing(start, compile_library):
    """The wall clock jumps by an hour at every look, on one side and then on the other: no timeout
    comes early and none stays away."""
    shim = str(compile_library(Path(__file__).parent / "clock_shim.c", "libclock.so"))
    config = config_json(tcp={"progress_timeout_ms": 2000},
                         transfer={"default_timeout_ms": 60_000})
    jumping = start("jumping", config=config, environment={"LD_PRELOAD": shim})
    steady = start("steady", config=config)
    addresses = {}
    for agent in (jumping, steady):
        addresses[agent] = agent.allocate("block", MIB, 1)
        agent.register("block")
    for here, there in ((jumping, steady), (steady, jumping)):
        here.add(there.metadata())
        for operation in ("WRITE", "READ"):
            for size in (64, MIB):
                for _ in range(20):
                    assert here.transfer(operation, [(addresses[here], size)],
                                         [(addresses[there], size)], there.name) == "DONE"
    assert jumping.wall_clock_looks() > 0
    steady.stop()
    request = jumping.prepare("WRITE", [(addresses[jumping], MIB)], [(addresses[steady], MIB)],
                              "steady")
    assert jumping.post(request) == "PROC"
    assert until(lambda: "asking over another connection" in jumping.log())
    assert jumping.poll(request) == "PROC"
    steady.resume()
    with pytest.raises(AgentError):
        jumping.wait(request)


# Two hosts


@pytest.fixture
def hosts(cable, start, probe):
    """here and there on two hosts, lanes connected, and what cuts and mends their cable."""
    first, second = cable([f"{HERE}/24"], [f"{THERE}/24"])
    config = json.dumps(IMPATIENT | {"tcp": IMPATIENT["tcp"] | {"keepalive_idle_ms": 1000}})
    here = start("here", namespace=first.name, config=config, probe=probe)
    there = start("there", namespace=second.name, config=config, probe=probe)
    here.hosts = (first, second)
    local, remote = here.allocate("block", SIZE, 1), there.allocate("block", SIZE, 2)
    for agent in (here, there):
        agent.register("block")
    here.add(there.metadata())
    request = prepare_whole(here, local, remote)
    assert here.run(request) == "DONE"
    return here, there, request


def cut(agent, there: bool, back: bool) -> None:
    first, second = agent.hosts
    if there:
        first.lose_what_goes_to(THERE)
    if back:
        second.lose_what_goes_to(HERE)


def mend(agent) -> None:
    first, second = agent.hosts
    first.reach(THERE, second)
    second.reach(HERE, first)


@pytest.mark.parametrize(("there_lost", "back_lost"), [(True, True), (True, False), (False, True)],
                         ids=["cut", "we are not heard", "we do not hear"])
def test_cable_between_two_hosts(hosts, there_lost, back_lost):
    """A cable that loses everything, or everything in one direction: no impression is proof. Mended,
    the transfer ends, as an error, and work goes on."""
    here, there, request = hosts
    cut(here, there_lost, back_lost)
    assert here.post(request) == "PROC"
    expect_silent(here, request, THERE)
    mend(here)
    expect_drained(here, request)
    assert here.guards_intact() and there.guards_intact()
    local, remote = here.blocks_address("block"), there.blocks_address("block")
    fresh = prepare_whole(here, local, remote)
    here.fill("block", 77)
    assert here.run(fresh) == "DONE"
    assert there.content("block") == here.content("block")


def test_keepalive_notices_a_cut_cable_without_work(hosts):
    """Nothing is under way: the kernels' probes find the cable cut, and both ends let their
    connections go. Nothing was unproved, so nothing is unresolved."""
    here, there, request = hosts
    assert here.info()["lane_sockets"] > 0 and there.info()["served_lanes"] > 0
    cut(here, True, True)
    assert until(lambda: here.info()["lane_sockets"] == 0, 30)
    assert until(lambda: there.info()["served_lanes"] == 0, 30)
    assert unresolved(here) == []
    mend(here)
    assert here.run(request) == "DONE"
