# SPDX-License-Identifier: Apache-2.0
"""A peer's process is killed, as vLLM, SGLang and LMCache end theirs: no goodbye is sent."""

from __future__ import annotations

import time

import pytest

from agents import AgentError
from conftest import accounts, until

MIB = 1 << 20
QUICK_S = 5.0


def outcome(agent, request) -> tuple[str, float]:
    """The name of the error of one run, and the seconds it took."""
    begin = time.monotonic()
    with pytest.raises(AgentError) as failed:
        agent.run(request)
        raise AssertionError("the transfer to a dead peer succeeded")
    return failed.value.kind, time.monotonic() - begin


@pytest.mark.parametrize("operation", ["WRITE", "READ"])
def test_killed_before_the_post(make_pair, operation):
    """SGLang: a post to a killed peer is REMOTE_DISCONNECT, soon."""
    pair = make_pair()
    request = pair.here.prepare(operation, pair.local((0, 4096)), pair.remote((0, 4096)), "there")
    assert pair.here.run(request) == "DONE"
    pair.there.kill()
    kind, seconds = outcome(pair.here, request)
    assert kind == "nixlRemoteDisconnectError"
    assert seconds < QUICK_S
    pair.here.release(request)


def test_killed_before_the_first_connection(make_pair):
    """A peer that was never connected and is gone: the same answer."""
    pair = make_pair()
    request = pair.here.prepare("WRITE", pair.local((0, 64)), pair.remote((0, 64)), "there")
    pair.there.kill()
    kind, seconds = outcome(pair.here, request)
    assert kind == "nixlRemoteDisconnectError"
    assert seconds < QUICK_S


@pytest.mark.parametrize("operation", ["WRITE", "READ"])
def test_killed_in_the_middle(make_pair, probe, operation):
    """The kernel of a killed peer closes its connections, which proves retirement: the transfer
    ends soon with an error and everything is given back."""
    pair = make_pair(64 * MIB, probe=probe)
    whole = (0, pair.size)
    request = pair.here.prepare(operation, pair.local(whole), pair.remote(whole), "there")
    assert pair.here.run(request) == "DONE"
    pair.there.stop()
    assert pair.here.post(request) == "PROC"
    pair.there.kill()
    begin = time.monotonic()
    with pytest.raises(AgentError) as failed:
        pair.here.wait(request)
    assert failed.value.kind in ("nixlRemoteDisconnectError", "nixlBackendError")
    assert time.monotonic() - begin < QUICK_S
    pair.here.release(request)
    assert until(lambda: all(used == 0 for used in accounts(pair.here.info()).values()))
    assert pair.here.guards_intact()


def test_s10_new_agent_of_the_same_name(make_pair, start):
    """0.10: NIXL 1.5 keeps the dead peer's metadata; once removed, its successor works, and
    requests for the dead one stay dead."""
    pair = make_pair()
    old = pair.here.prepare("WRITE", pair.local((0, 64)), pair.remote((0, 64)), "there")
    assert pair.here.run(old) == "DONE"
    pair.there.kill()
    kind, _ = outcome(pair.here, old)
    assert kind == "nixlRemoteDisconnectError"
    successor = start("there")
    address = successor.allocate("block", 4096, 9)
    successor.register("block")
    if pair.here.knows("there"):
        pair.here.remove("there")
    pair.here.add(successor.metadata())
    assert pair.here.transfer("WRITE", pair.local((0, 4096)), [(address, 4096)], "there",
                              b"to the successor") == "DONE"
    assert successor.wait_notifications(1) == [("here", b"to the successor")]
    assert successor.content("block") == pair.here.content("block")[:4096]
    before = successor.content("block")
    with pytest.raises(AgentError):
        pair.here.run(old)
    assert successor.content("block") == before


def test_survivor_serves_others_meanwhile(make_pair, start):
    """One peer's death costs another peer nothing."""
    pair = make_pair()
    other = start("other")
    address = other.allocate("block", MIB, 3)
    other.register("block")
    pair.here.add(other.metadata())
    request = pair.here.prepare("WRITE", pair.local((0, 64)), pair.remote((0, 64)), "there")
    assert pair.here.run(request) == "DONE"
    pair.there.kill()
    for _ in range(50):
        assert pair.here.transfer("READ", pair.local((0, 65536)), [(address, 65536)],
                                  "other") == "DONE"
    assert outcome(pair.here, request)[0] == "nixlRemoteDisconnectError"


def test_dead_reader_leaves_the_owner_alone(make_pair, probe):
    """The owner of the memory gets its loans back when a reader or writer dies in the middle."""
    pair = make_pair(64 * MIB, probe=probe)
    whole = (0, pair.size)
    baseline = accounts(pair.there.info())
    for operation in ("READ", "WRITE"):
        pair.here.post(pair.here.prepare(operation, pair.local(whole), pair.remote(whole), "there"))
    pair.here.kill()
    assert until(lambda: accounts(pair.there.info()) == baseline)
    pair.there.deregister("block")
    assert until(lambda: pair.there.info()["registrations"]["fenced"] == 0)
    assert pair.there.guards_intact()
