# SPDX-License-Identifier: Apache-2.0
"""Memory and metadata that are given up while they are in use: controls N04 (deregistration,
rollback, duplicates) and N05 (unload, invalidation, restart)."""

from __future__ import annotations

import pytest

from agents import AgentError, config_json
from conftest import accounts, repeats, until

KIB = 1 << 10
# One frame: it is admitted as a whole or not at all.
SIZE = 512 * KIB
PENDING = 1
GONE = ("nixlRemoteDisconnectError", "nixlBackendError", "nixlMismatchError", "nixlNotFoundError")


def registrations(agent) -> dict[str, int]:
    return agent.info()["registrations"]


def hold_write(pair, round_: int, notification: bytes = b"") -> int:
    """A WRITE of which the target has the half; it has admitted it, and lent its memory to it."""
    pair.here.fill("block", round_)
    request = pair.prepare_whole(notification=notification)
    before = pair.proxy.passed("bulk")
    pair.proxy.hold(SIZE // 2, lane="bulk")
    assert pair.here.post(request, notification) == "PROC"
    pair.proxy.wait_passed(before + SIZE // 2, lane="bulk")
    assert until(lambda: registrations(pair.there)["loans"] == 1)
    return request


def expect_refused(call, *arguments) -> str:
    with pytest.raises(AgentError) as refused:
        call(*arguments)
    return refused.value.kind


def test_n04_deregister_with_a_local_borrower(make_proxied_pair):
    """N04: the fence stands at once and the agent gets its success; registration and charge stay
    until the transfer has retired, and each is ended once."""
    pair = make_proxied_pair(SIZE)
    assert pair.here.run(pair.prepare_whole()) == "DONE"
    for round_ in repeats(50):
        before = registrations(pair.here)
        other = pair.here.prepare("WRITE", pair.local((0, 64)), pair.remote((0, 64)), "there")
        request = hold_write(pair, round_)
        pair.here.deregister("block")
        now = registrations(pair.here)
        assert (now["live"], now["fenced"], now["loans"]) == (0, 1, 1)
        assert now["bytes"] == SIZE and now["retired_total"] == before["retired_total"]
        # What was prepared before is refused by the engine, what comes later by the agent too.
        expect_refused(pair.here.post, other)
        expect_refused(pair.prepare_whole)
        assert pair.here.poll(request) == "PROC"
        pair.proxy.open()
        assert pair.here.wait(request) == "DONE"
        assert pair.there.content("block") == pair.here.content("block")
        assert until(lambda: registrations(pair.here)["fenced"] == 0)
        after = registrations(pair.here)
        assert after["retired_total"] == before["retired_total"] + 1 and after["bytes"] == 0
        for handle in (request, other):
            pair.here.release(handle)
        pair.here.register("block")
    assert pair.guards_intact()


def test_n04_deregister_with_a_remote_borrower(make_proxied_pair):
    """N04: the target deregisters under a frame that it has admitted. New frames are refused; the
    memory stays lent until this one has ended, and no byte lands later."""
    pair = make_proxied_pair(SIZE)
    for round_ in repeats(50):
        assert pair.here.run(pair.prepare_whole()) == "DONE"
        small = pair.here.prepare("WRITE", pair.local((0, 64)), pair.remote((0, 64)), "there")
        assert pair.here.run(small) == "DONE"
        retired = registrations(pair.there)["retired_total"]
        request = hold_write(pair, round_)
        pair.there.deregister("block")
        now = registrations(pair.there)
        assert (now["live"], now["fenced"], now["loans"]) == (0, 1, 1)
        assert now["retired_total"] == retired
        assert expect_refused(pair.here.run, small) in GONE
        assert pair.here.poll(request) == "PROC"
        pair.proxy.open()
        assert pair.here.wait(request) == "DONE"
        assert until(lambda: registrations(pair.there)["fenced"] == 0)
        assert registrations(pair.there)["retired_total"] == retired + 1
        written = pair.there.content("block")
        assert written == pair.here.content("block")
        pair.here.fill("block", 1_000_000)
        late = pair.prepare_whole()
        assert expect_refused(pair.here.run, late) in GONE
        assert pair.there.content("block") == written
        for handle in (request, small, late):
            pair.here.release(handle)
        pair.there.register("block")
        pair.here.remove("there")
        pair.here.add(pair.there.metadata())
    assert pair.guards_intact()


def test_n04_later_registration_of_a_list_fails(start, probe):
    """N04: the third range of one list is refused: the agent rolls the first two back, each is
    retired once, and nothing is charged."""
    agent = start("limited", config=config_json(limits={"registrations_max": 2}), probe=probe)
    base = agent.allocate("block", 4 * KIB, 1)
    for round_ in repeats(50):
        parts = [(0, 64), (KIB, 64), (2 * KIB, 64)]
        expect_refused(agent.register_parts, "block", parts, "too many")
        now = registrations(agent)
        assert (now["live"], now["fenced"], now["bytes"]) == (0, 0, 0)
        # Two of the list, and the one of before.
        assert now["retired_total"] == 3 * round_ + 2
        agent.register_parts("block", [(0, KIB)], "good")
        assert agent.transfer("WRITE", [(base, 64)], [(base + 512, 64)], "limited") == "DONE"
        agent.deregister("good")
    assert agent.guards_intact()


def test_n04_rollback_of_a_list_that_holds_a_range_in_use(make_proxied_pair):
    """N04: a list that names a range in use and then one too many: its rollback ends its own
    registrations and not the one that the transfer borrows."""
    pair = make_proxied_pair(SIZE, here={"limits": {"registrations_max": 3}})
    assert pair.here.run(pair.prepare_whole()) == "DONE"
    pair.here.allocate("more", 4 * KIB, 3)
    for round_ in repeats(50):
        retired = registrations(pair.here)["retired_total"]
        request = hold_write(pair, round_)
        expect_refused(pair.here.register_parts, "more", [(0, 64), (64, 64), (128, 64)], "more")
        now = registrations(pair.here)
        assert (now["live"], now["loans"], now["retired_total"]) == (1, 1, retired + 2)
        pair.proxy.open()
        assert pair.here.wait(request) == "DONE"
        assert pair.there.content("block") == pair.here.content("block")
        pair.here.release(request)


def test_n05_invalidate_during_an_admitted_copy(make_proxied_pair, start):
    """N05: the agent forgets the peer and can poll no more; the engine still answers, keeps what
    was admitted and ends it. New posts fail, another peer is unaffected, the peer can come back."""
    pair = make_proxied_pair(SIZE)
    other = start("other")
    other_address = other.allocate("block", 64 * KIB, 3)
    other.register("block")
    pair.here.add(other.metadata())
    metadata = pair.there.metadata()
    assert pair.here.run(pair.prepare_whole()) == "DONE"
    for round_ in repeats(50):
        stale = pair.here.prepare("WRITE", pair.local((0, 64)), pair.remote((0, 64)), "there")
        request = hold_write(pair, round_, b"%d" % round_)
        handle = pair.here.last_request()
        pair.here.remove("there")
        assert expect_refused(pair.here.poll, request) == "nixlNotFoundError"
        assert pair.here.result(handle)["drain"] == PENDING
        used = accounts(pair.here.info())
        assert used["bytes_in_flight"] == SIZE and used["loans"] == 1
        assert expect_refused(pair.here.post, stale) == "nixlNotFoundError"
        expect_refused(pair.prepare_whole)
        assert pair.here.transfer("READ", pair.local((0, 64)), [(other_address, 64)],
                                  "other") == "DONE"
        # A new life of the peer in our books does not bring the old request back.
        pair.here.add(metadata)
        expect_refused(pair.here.post, stale)
        assert pair.here.result(handle)["drain"] == PENDING
        pair.proxy.open()
        assert pair.there.wait_notifications(1) == [("here", b"%d" % round_)]
        assert until(lambda handle=handle: pair.here.result(handle).get("terminal", 1) == 1)
        for gone in (request, stale):
            pair.here.release(gone)
        assert until(lambda: accounts(pair.here.info())["loans"] == 0)
        pair.here.fill("block", round_)
        assert pair.here.run(pair.prepare_whole()) == "DONE"
        assert pair.there.content("block") == pair.here.content("block")
    assert pair.there.notifications() == []
    assert pair.guards_intact() and other.guards_intact()


def test_n05_restart_on_the_same_port(start, probe):
    """N05: the peer is killed and its successor listens on the same port. The old epoch's requests
    end as errors and never reach it, the new epoch works, another peer is unaffected."""
    here, other = start("here", probe=probe), start("other")
    address = here.allocate("block", 64 * KIB, 1)
    other_address = other.allocate("block", 64 * KIB, 2)
    here.register("block")
    other.register("block")
    here.add(other.metadata())
    there = start("there", probe=probe)
    port = int(there.info()["listen"].rpartition(":")[2])
    listen = {"address": "127.0.0.1", "port": port}
    stale = None
    for round_ in repeats(50):
        there_address = there.allocate("block", 64 * KIB, round_)
        there.register("block")
        epoch = there.info()["epoch"]
        here.add(there.metadata())
        if stale is not None:
            before = there.content("block")
            assert expect_refused(here.run, stale) in GONE
            assert there.content("block") == before
            here.release(stale)
        stale = here.prepare("WRITE", [(address, 64)], [(there_address, 64)], "there", b"old")
        assert here.transfer("WRITE", [(address, 64 * KIB)], [(there_address, 64 * KIB)], "there",
                             b"%d" % round_) == "DONE"
        assert there.wait_notifications(1) == [("here", b"%d" % round_)]
        assert there.content("block") == here.content("block")
        there.kill()
        there = start("there", probe=probe, config=config_json(listen=listen))
        assert there.info()["epoch"] != epoch
        # Our books still hold the dead one: its successor listens there and is not taken for it.
        assert expect_refused(here.run, stale, b"old") in GONE
        assert there.notifications() == []
        assert here.transfer("READ", [(address, 4096)], [(other_address, 4096)], "other") == "DONE"
        here.remove("there")
    here.release(stale)
    assert here.guards_intact() and other.guards_intact()
