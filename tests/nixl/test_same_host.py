# SPDX-License-Identifier: Apache-2.0
"""Agents of one host that reach each other's memory themselves: the SHM part of control N01, and
what NIXL's users do to it."""

from __future__ import annotations

import numpy as np
import pytest

from agents import AgentError, neighbor_json, pattern
from conftest import Neighbors, accounts, repeats, until


def moved(pair, operation: str, size: int) -> bool:
    """One transfer of the first `size` bytes, with content of its own."""
    pair.here.fill("block", 5)
    pair.there.fill("block", 6)
    source, target = (pair.here, pair.there) if operation == "WRITE" else (pair.there, pair.here)
    state = pair.here.transfer(operation, pair.local((0, size)), pair.remote((0, size)), "there")
    assert state == "DONE"
    return target.content("block")[:size] == source.content("block")[:size]


@pytest.mark.parametrize("operation", ["WRITE", "READ"])
def test_n01_each_memory_goes_its_way(make_neighbors, operation):
    """N01: ordinary memory cannot select SHM, an actual shared allocation can."""
    pair = make_neighbors(1 << 20)
    assert moved(pair, operation, 1 << 20)
    assert pair.here.routes() == {pair.route: 1}
    assert pair.guards_intact()


def test_n01_a_list_of_both_memories_is_not_shared(make_neighbors):
    """N01: of a request that touches ordinary memory too, nothing goes by SHM."""
    pair = make_neighbors(1 << 16)
    address = pair.there.allocate("ordinary", 4096, 3)
    pair.there.register("ordinary")
    pair.here.add(pair.there.metadata())
    pair.here.connect("there")
    remote = pair.remote((0, 4096)) + [(address, 4096)]
    assert pair.here.transfer("WRITE", pair.local((0, 4096), (4096, 4096)), remote,
                              "there") == "DONE"
    assert pair.here.routes() == {"cma": 1}
    assert pair.there.content("ordinary") == pair.here.content("block")[4096:8192]


def test_n01_accounting_returns_to_baseline_only_after_drain(make_neighbors, probe):
    """N01: charges and loans are back when the transfer is done, at both ends."""
    pair = make_neighbors(8 << 20, probe=probe)
    baseline = accounts(pair.here.info()), accounts(pair.there.info())
    whole = (0, pair.size)
    request = pair.here.prepare("WRITE", pair.local(whole), pair.remote(whole), "there")
    assert accounts(pair.here.info()) != baseline[0]
    assert pair.here.run(request, b"drained") == "DONE"
    pair.here.release(request)
    assert pair.there.wait_notifications(1) == [("here", b"drained")]
    assert until(lambda: accounts(pair.here.info()) == baseline[0])
    assert until(lambda: accounts(pair.there.info()) == baseline[1])
    assert pair.there.content("block") == pair.here.content("block")


def test_a_peer_that_stands_still_holds_up_no_transfer(make_neighbors):
    """Its memory is within reach; only its notification waits for it."""
    pair = make_neighbors(8 << 20)
    pair.there.stop()
    assert pair.here.transfer("WRITE", pair.local((0, pair.size)), pair.remote((0, pair.size)),
                              "there") == "DONE"
    pair.there.resume()
    assert pair.there.content("block") == pair.here.content("block")


def test_n01_a_notification_never_comes_before_its_bytes(make_neighbors):
    pair = make_neighbors(4 << 20)
    whole = (0, pair.size)
    request = pair.here.prepare("WRITE", pair.local(whole), pair.remote(whole), "there")
    for seed in range(10, 10 + len(repeats(20))):
        pair.here.fill("block", seed)
        pair.here.post(request, b"%d" % seed)
        assert pair.there.wait_notifications(1) == [("here", b"%d" % seed)]
        assert pair.there.content("block") == pair.here.content("block")
        assert pair.here.wait(request) == "DONE"


def test_the_death_of_a_peer_is_an_error_soon(make_neighbors):
    """After it, every transfer fails; none is left in progress."""
    pair = make_neighbors(1 << 20)
    assert moved(pair, "WRITE", 1 << 20)
    pair.there.kill()
    with pytest.raises(AgentError) as failed:
        for _ in range(100):
            pair.here.transfer("WRITE", pair.local((0, 4096)), pair.remote((0, 4096)), "there")
    assert failed.value.kind in ("nixlRemoteDisconnectError", "nixlBackendError",
                                 "nixlNotFoundError", "nixlMismatchError")


def test_memory_that_was_deregistered_is_not_written(make_neighbors):
    """Again and again: what is posted afterwards is refused, and nothing lands late."""
    pair = make_neighbors(1 << 20)
    for round_ in repeats(10):
        address = pair.there.allocate("brief", 1 << 20, 9, 0, pair.route == "shm")
        pair.there.register("brief")
        pair.here.remove("there")
        pair.here.add(pair.there.metadata())
        pair.here.connect("there")
        request = pair.here.prepare("WRITE", pair.local((0, 1 << 20)), [(address, 1 << 20)],
                                    "there")
        pair.here.fill("block", round_)
        assert pair.here.run(request) == "DONE"
        pair.there.deregister("brief")
        pair.there.fill("brief", 77)
        with pytest.raises(AgentError):
            pair.here.run(request)
        assert pair.there.content("brief") == pattern(1 << 20, 77).tobytes()


def test_shared_memory_stays_as_long_as_its_registration(start):
    """Its owner cannot close it under a registration; afterwards it can."""
    agent = start("here", config=neighbor_json())
    agent.allocate("block", 1 << 16, 1, 0, True)
    agent.register("block")
    assert not agent.call("close_shared", "block")
    agent.deregister("block")
    assert until(lambda: agent.call("close_shared", "block"))


def test_without_settings_and_without_a_connect(start):
    """Both agents as a user makes them: transfers work from the first one on."""
    pair = Neighbors(start, 1 << 20, "cma")
    late = start("late", config=neighbor_json())
    late_address = late.allocate("block", 4096, 4)
    late.register("block")
    pair.here.add(late.metadata())
    assert pair.here.transfer("WRITE", pair.local((0, 4096)), [(late_address, 4096)],
                              "late") == "DONE"
    assert np.frombuffer(late.content("block"), dtype=np.uint8).tobytes() == (
        pair.here.content("block")[:4096])
