# SPDX-License-Identifier: Apache-2.0
"""What the real agent does that a backend would not expect. Each test names its point; points 7 to
9, 12 and 13 are in test_loader.py, point 10 in test_peer_death.py."""

from __future__ import annotations

import pytest

from agents import AgentError, ProcessGone
from conftest import accounts, until

SIZE = 64 << 20


@pytest.fixture
def held(make_pair, probe):
    """A large WRITE in progress: its target stands still until the test resumes it."""
    pair = make_pair(SIZE, probe=probe)
    pair.request = pair.here.prepare("WRITE", pair.local((0, SIZE)), pair.remote((0, SIZE)),
                                     "there")
    # The connections stand before the target stops.
    assert pair.here.run(pair.request) == "DONE"
    pair.baseline = accounts(pair.here.info())
    pair.there.stop()
    assert pair.here.post(pair.request, b"ended") == "PROC"
    return pair


def refused_release(pair) -> None:
    with pytest.raises(AgentError) as refused:
        pair.here.release(pair.request)
    assert refused.value.kind == "nixlRepostActiveError"


def expect_adopted(pair) -> None:
    """The engine finished what NIXL has forgotten, and gave everything back."""
    assert accounts(pair.here.info())["bytes_in_flight"] >= SIZE
    pair.there.resume()
    assert pair.there.wait_notifications(1) == [("here", b"ended")]
    assert pair.there.content("block") == pair.here.content("block")
    # The request itself is gone too.
    expected = {name: 0 for name in pair.baseline}
    assert until(lambda: accounts(pair.here.info()) == expected)
    assert pair.guards_intact()


def test_s01_poisoned_handle_is_adopted_at_the_second_release(held):
    """0.1: after a refused release the agent answers by itself and the next one is final."""
    refused_release(held)
    with pytest.raises(AgentError):
        held.here.poll(held.request)
    held.here.release(held.request)
    expect_adopted(held)


def test_s01_post_of_a_poisoned_handle_is_refused(held):
    """0.1: NIXL posts the refused handle again while it runs; the release after that is final."""
    refused_release(held)
    with pytest.raises(AgentError) as refused:
        held.here.post(held.request, b"again")
    assert refused.value.kind == "nixlRepostActiveError"
    held.here.release(held.request)
    expect_adopted(held)
    assert held.there.notifications() == []


def test_s01_poisoned_handle_left_to_the_garbage_collector(held):
    """0.1: Python keeps a refused handle and releases it once more when the agent ends."""
    held.here.drop_in_thread([held.request])
    assert accounts(held.here.info())["bytes_in_flight"] >= SIZE
    held.there.resume()
    assert held.there.wait_notifications(1) == [("here", b"ended")]
    held.here.end_agent()
    assert held.here.exit() == 0


def test_s02_refusal_is_never_in_progress(held):
    """0.2: IN_PROG from releaseReqH would free the wrapper; the refusal is an error instead."""
    refused_release(held)
    held.there.resume()
    assert held.there.wait_notifications(1) == [("here", b"ended")]
    held.here.release(held.request)
    assert until(lambda: accounts(held.here.info())["requests"] == 0)


def test_s03_failed_handle_is_not_posted_again(make_pair):
    """0.3: NIXL hands a failed request to postXfer; the engine refuses it and nothing moves."""
    pair = make_pair()
    request = pair.here.prepare("WRITE", pair.local((0, 64)), pair.remote((0, 64)), "there")
    pair.there.deregister("block")
    before = pair.there.content("block")
    for _ in range(3):
        with pytest.raises(AgentError) as refused:
            pair.here.run(request)
        assert refused.value.kind != "nixlRepostActiveError"
    assert pair.there.content("block") == before
    pair.here.release(request)


def test_s04_explicit_deregistration_unloads_first(make_pair, probe):
    """0.4: unloadMD(self), then deregisterMem."""
    pair = make_pair(probe=probe)
    for round_ in range(20):
        assert pair.here.info()["registrations"]["live"] == 1
        pair.here.deregister("block")
        assert pair.here.info()["registrations"]["live"] == 0, round_
        pair.here.register("block")


def test_s04_agent_destruction_deregisters_first(make_pair):
    """0.4: deregisterMem, then unloadMD of the same range, then the engine."""
    pair = make_pair()
    assert pair.here.transfer("WRITE", pair.local((0, 64)), pair.remote((0, 64)), "there") == "DONE"
    for agent in (pair.here, pair.there):
        agent.end_agent()
        assert agent.exit() == 0


def test_s05_duplicate_in_one_deregistration_list(start, probe):
    """0.5: both pointers come twice, and the second registration stays until the agent ends."""
    agent = start("duplicate", probe=probe)
    address = agent.allocate("block", 8192, 1)
    agent.allocate("other", 4096, 2)
    agent.register("other")
    agent.register("block")
    agent.register("block")
    assert agent.info()["registrations"]["live"] == 3
    agent.deregister_twice_in_one_list("block")
    assert agent.info()["registrations"]["live"] == 2
    agent.register("block")
    assert agent.transfer("WRITE", [(address, 64)], [(address + 4096, 64)], "duplicate") == "DONE"
    agent.end_agent()
    assert agent.exit() == 0


def test_s06_public_data_of_a_list_is_not_appended(make_pair):
    """0.6: NIXL passes the string of the descriptor before; every range still loads and works."""
    pair = make_pair(1 << 16)
    base = pair.there.allocate("many", 64 * 1024, 3)
    parts = [(1024 * i, 512) for i in range(64)]
    pair.there.register_parts("many", parts, "many parts")
    pair.here.remove("there")
    pair.here.add(pair.there.metadata())
    for offset, size in parts:
        state = pair.here.transfer("READ", pair.local((offset, size)), [(base + offset, size)],
                                   "there")
        assert state == "DONE"
    here, there = pair.here.content("block"), pair.there.content("many")
    assert all(here[o : o + s] == there[o : o + s] for o, s in parts)


def test_s11_files_are_refused_whatever_their_address(start):
    """0.11: file ranges are another backend's; ORBITE refuses them at registration."""
    agent = start("files")
    agent.allocate("block", 4096, 1)
    with pytest.raises(AgentError):
        agent.register("block", 0, "FILE")


def test_s14_three_threads_on_one_agent_without_locks(start):
    """0.14, vLLM and SGLang: transfers, handshakes and notifications at once with SYNC_NONE."""
    agent, target, newcomer = start("agent"), start("target"), start("newcomer")
    local, remote = agent.allocate("block", 1 << 18, 1), target.allocate("block", 1 << 18, 2)
    agent.register("block")
    target.register("block")
    agent.add(target.metadata())
    transfers = agent.call_in_thread("many_transfers", "WRITE", [(local, 1 << 18)],
                                     [(remote, 1 << 18)], "target", 300)
    handshakes = agent.call_in_thread("many_handshakes", newcomer.metadata(), "newcomer", 300)
    notifications = agent.call_in_thread("many_notifications_to_self", 300)
    assert agent.join(transfers) == 300
    assert agent.join(handshakes) == 300
    assert agent.join(notifications) == 300
    assert target.content("block") == agent.content("block")


def test_s15_telemetry_is_the_agents(make_pair):
    """0.15: nobody asks a backend for telemetry; the agent's own has times and sizes."""
    pair = make_pair(1 << 20, telemetry=True)
    whole = (0, pair.size)
    request = pair.here.prepare("WRITE", pair.local(whole), pair.remote(whole), "there")
    assert pair.here.run(request) == "DONE"
    values = pair.here.telemetry(request)
    assert values["bytes"] == pair.size and values["descriptors"] == 1
    assert 0 < values["post_us"] <= values["transfer_us"]


def test_agent_destroyed_with_transfers_in_flight(held):
    """The agent ends without releasing anything, its target standing still: bounded, no crash."""
    held.here.end_agent()
    assert held.here.exit() == 0
    held.there.resume()
    assert held.there.guards_intact()


def test_process_ends_with_transfers_in_flight(held):
    """The interpreter ends with the agent alive in it."""
    assert held.here.exit() == 0
    held.there.resume()
    assert held.there.guards_intact()


def test_target_destroyed_with_transfers_in_flight(make_pair):
    """The passive agent ends while others write to it and read from it."""
    pair = make_pair(SIZE)
    requests = [
        pair.here.prepare(operation, pair.local((i * 8 << 20, 8 << 20)),
                          pair.remote((i * 8 << 20, 8 << 20)), "there")
        for i, operation in enumerate(["WRITE", "READ"] * 4)]
    for request in requests:
        assert pair.here.post(request) in ("PROC", "DONE")
    pair.there.end_agent()
    for request in requests:
        try:
            assert pair.here.wait(request) == "DONE"
        except AgentError as error:
            assert error.kind in ("nixlRemoteDisconnectError", "nixlBackendError",
                                  "nixlNotFoundError")
    assert pair.guards_intact()
    assert pair.there.exit() == 0


def test_peer_removed_with_a_transfer_in_flight(held):
    """Metadata is invalidated under a transfer: the handle ends, the bytes still arrive."""
    held.here.remove("there")
    with pytest.raises(AgentError) as refused:
        held.here.poll(held.request)
    assert refused.value.kind == "nixlNotFoundError"
    held.there.resume()
    assert held.there.wait_notifications(1) == [("here", b"ended")]
    assert held.there.content("block") == held.here.content("block")
    held.here.release(held.request)
    assert until(lambda: accounts(held.here.info())["requests"] == 0)


def test_memory_deregistered_with_a_transfer_in_flight(held):
    """deregisterMem fences at once and succeeds; the range is given back when the last loan is."""
    held.here.deregister("block")
    registrations = held.here.info()["registrations"]
    assert registrations["live"] == 0 and registrations["fenced"] == 1
    held.there.resume()
    assert held.there.wait_notifications(1) == [("here", b"ended")]
    assert held.here.wait(held.request) == "DONE"
    assert until(lambda: held.here.info()["registrations"]["fenced"] == 0)
    assert held.there.content("block") == held.here.content("block")


def test_gone_process_is_seen_by_the_harness(start):
    """The harness itself: a dead or silent agent is an error within its bound, not a hang."""
    agent = start("short")
    agent.stop()
    with pytest.raises(ProcessGone):
        agent.call("notifications", timeout=0.2)
    agent.resume()
    agent.kill()
    with pytest.raises(ProcessGone):
        agent.notifications()
