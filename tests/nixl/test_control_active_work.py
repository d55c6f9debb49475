# SPDX-License-Identifier: Apache-2.0
"""Transfers that are held in the middle: controls N02 (release and cancel of active work) and N03
(logical failure before retirement). The cable between the two processes is pinched after some bytes
of a WRITE; nothing of the engines is simulated."""

from __future__ import annotations

import contextlib
import random

import pytest

from agents import AgentError
from conftest import accounts, repeats, until

MIB = 1 << 20
SIZE = 4 * MIB
# orbite_nixl_logical_t, _drain_t, _effect_t and _status_t
SUCCESS, CANCELED, FAILED = 1, 2, 3
PENDING, RETIRED = 1, 2
NOTHING, UNKNOWN = 0, 3
DEADLINE_EXCEEDED, PEER_SILENT = 301, 506
DISCONNECTED = ("nixlRemoteDisconnectError", "nixlBackendError")
TIMEOUT_MS = 100


def counters(agent) -> dict[str, int]:
    return agent.info()["counters"]


def warm(pair) -> dict[str, int]:
    """Every lane stands; what the accounts are then, with nothing prepared."""
    request = pair.prepare_whole()
    assert pair.here.run(request) == "DONE"
    pair.here.release(request)
    assert pair.here.transfer("WRITE", pair.local((0, 64)), pair.remote((0, 64)), "there") == "DONE"
    assert until(lambda: set(pair.proxy.lanes()) == {"bulk", "latency"})
    assert until(lambda: not any(accounts(pair.here.info()).values()))
    return accounts(pair.here.info())


def hold_write(pair, round_: int, notification: bytes = b"") -> int:
    """A WRITE of everything of which a part, another one each time, has gone to the target."""
    pair.here.fill("block", round_)
    request = pair.prepare_whole(notification=notification)
    part = random.Random(round_).randrange(1000, SIZE - 1000)
    before = pair.proxy.passed("bulk")
    pair.proxy.hold(part, lane="bulk")
    assert pair.here.post(request, notification) == "PROC"
    pair.proxy.wait_passed(before + part, lane="bulk")
    return request


def expect_held(pair, request: int) -> None:
    """In progress, and everything that it uses is charged."""
    for _ in range(5):
        assert pair.here.poll(request) == "PROC"
    used = accounts(pair.here.info())
    assert used["bytes_in_flight"] == SIZE and used["requests"] >= 1
    assert used["loans"] == 1 and used["slices"] >= 1


def kind_of_end(pair, request: int) -> str:
    with pytest.raises(AgentError) as failed:
        pair.here.wait(request)
        raise AssertionError("it succeeded")
    return failed.value.kind


def expect_no_later_write(pair) -> None:
    """What has ended touches nothing any more: other bytes at the source, and the target stays."""
    before = pair.there.content("block")
    pair.here.fill("block", 1_000_000)
    pair.here.notify("there", b"marker")
    assert pair.there.wait_notifications(1) == [("here", b"marker")]
    assert pair.there.content("block") == before
    assert pair.guards_intact()


def test_n02_release_of_active_work_is_refused(make_proxied_pair):
    """N02: the release is negative and cancels nothing; everything stays charged; when the cable is
    opened the transfer ends as if nobody had asked, and is retired once."""
    pair = make_proxied_pair(SIZE)
    idle = warm(pair)
    for round_ in repeats(50):
        before = counters(pair.here)
        request = hold_write(pair, round_, b"%d" % round_)
        bridge_request = pair.here.last_request()
        expect_held(pair, request)
        with pytest.raises(AgentError) as refused:
            pair.here.release(request)
        assert refused.value.kind == "nixlRepostActiveError"
        # The agent polls a refused handle no more; the engine answers as before.
        result = pair.here.result(bridge_request)
        assert (result["terminal"], result["drain"], result["logical"]) == (0, PENDING, 0)
        assert accounts(pair.here.info())["bytes_in_flight"] == SIZE
        pair.proxy.open()
        assert pair.there.wait_notifications(1) == [("here", b"%d" % round_)]
        assert until(lambda handle=bridge_request: pair.here.result(handle)["terminal"] == 1)
        assert pair.here.result(bridge_request)["logical"] == SUCCESS
        assert pair.there.content("block") == pair.here.content("block")
        pair.here.release(request)
        assert until(lambda: accounts(pair.here.info()) == idle)
        after = counters(pair.here)
        assert after["executions_succeeded"] == before["executions_succeeded"] + 1
        assert after["executions_canceled"] == 0 and after["executions_failed"] == 0
    assert pair.there.notifications() == []
    assert pair.guards_intact()


def test_n02_poll_stays_in_progress_until_the_one_receipt(make_proxied_pair):
    """N02: a held transfer stays in progress, its registration fenced with it; opening the cable
    gives one end, one retirement, and everything back."""
    pair = make_proxied_pair(SIZE)
    idle = warm(pair)
    for round_ in repeats(50):
        retired = pair.here.info()["registrations"]["retired_total"]
        done = counters(pair.here)["executions_succeeded"]
        request = hold_write(pair, round_)
        expect_held(pair, request)
        pair.here.deregister("block")
        expect_held(pair, request)
        assert pair.here.info()["registrations"]["retired_total"] == retired
        pair.proxy.open()
        assert pair.here.wait(request) == "DONE"
        assert pair.here.poll(request) == "DONE"
        assert pair.there.content("block") == pair.here.content("block")
        pair.here.release(request)
        assert until(lambda: accounts(pair.here.info()) == idle)
        assert counters(pair.here)["executions_succeeded"] == done + 1
        assert pair.here.info()["registrations"]["retired_total"] == retired + 1
        pair.here.register("block")


def test_n02_cancel_of_queued_work_proves_that_nothing_was_posted(make_proxied_pair):
    """N02: behind a held transfer a second one is only queued. Its cancel is final at once, with no
    effect; the running one, canceled too, stays in progress and drains."""
    pair = make_proxied_pair(SIZE, here={"tcp": {"lane_bytes_in_flight_max": MIB}})
    idle = warm(pair)
    for round_ in repeats(50):
        before = counters(pair.here)
        target_before = pair.there.content("block")
        pair.proxy.hold(1000, lane="bulk")
        running = pair.prepare_whole()
        bridge_running = pair.here.last_request()
        queued = pair.prepare_whole(notification=b"never")
        bridge_queued = pair.here.last_request()
        pair.here.fill("block", round_)
        assert pair.here.post(running) == "PROC"
        assert pair.here.post(queued, b"never") == "PROC"
        assert pair.here.cancel(bridge_queued) == 0
        assert pair.here.result(bridge_queued) == {
            "terminal": 1, "logical": CANCELED, "drain": RETIRED, "effect": NOTHING, "status": 300,
            "bytes_prefix": 0}
        assert kind_of_end(pair, queued) == "nixlCancelledError"
        assert pair.there.content("block")[2000:] == target_before[2000:]

        assert pair.here.cancel(bridge_running) == 0
        for _ in range(5):
            assert pair.here.poll(running) == "PROC"
        assert pair.here.result(bridge_running)["drain"] == PENDING
        pair.proxy.open()
        # What had not been sent is dropped, what had been is in place.
        assert kind_of_end(pair, running) == "nixlCancelledError"
        prefix = pair.here.result(bridge_running)["bytes_prefix"]
        assert 0 < prefix < SIZE
        here, there = pair.here.content("block"), pair.there.content("block")
        assert there[:prefix] == here[:prefix] and there[prefix:] == target_before[prefix:]
        for request in (running, queued):
            with pytest.raises(AgentError):
                pair.here.post(request)
            pair.here.release(request)
        assert until(lambda: accounts(pair.here.info()) == idle)
        assert counters(pair.here)["executions_canceled"] == before["executions_canceled"] + 2
    assert pair.there.notifications() == []


def test_n03_timeout_is_no_receipt(make_proxied_pair):
    """N03: past its deadline a WRITE has failed, and stays in progress for as long as its receipt
    is withheld; another request's end does not change that. Then it is an error, and touches
    nothing more."""
    pair = make_proxied_pair(SIZE, here={"transfer": {"default_timeout_ms": TIMEOUT_MS}})
    # Until the lanes stand; the deadline is that of these transfers too.
    while counters(pair.here)["executions_succeeded"] == 0:
        with contextlib.suppress(AgentError):
            pair.here.run(pair.prepare_whole())
    failed = counters(pair.here)["executions_failed"]
    for round_ in repeats(50):
        request = hold_write(pair, round_)
        handle = pair.here.last_request()
        assert until(lambda handle=handle: pair.here.result(handle)["logical"] == FAILED)
        # On the lane for small work, which is not held.
        pair.here.notify("there", b"another")
        assert pair.there.wait_notifications(1) == [("here", b"another")]
        for _ in range(5):
            assert pair.here.poll(request) == "PROC"
        result = pair.here.result(handle)
        assert (result["terminal"], result["drain"]) == (0, PENDING)
        assert result["status"] == DEADLINE_EXCEEDED
        with pytest.raises(AgentError) as refused:
            pair.here.post(request)
        assert refused.value.kind == "nixlRepostActiveError"
        pair.proxy.open()
        assert until(lambda handle=handle: pair.here.result(handle)["terminal"] == 1)
        assert pair.here.result(handle)["status"] == DEADLINE_EXCEEDED
        pair.here.release(request)
        expect_no_later_write(pair)
    assert counters(pair.here)["executions_failed"] == failed + len(repeats(50))


def test_n03_unknown_effect_with_one_receipt_withheld(make_proxied_pair):
    """N03: one of two lanes is reset under a WRITE. Its frames' effect is unknown, and the answer
    that would prove their end is withheld: in progress, although everything else has ended. With
    the answer it is an error of unknown effect; no byte is sent again."""
    pair = make_proxied_pair(SIZE, here={"tcp": {"bulk_lanes_per_peer": 2}})
    warm(pair)
    handle = 0
    for round_ in repeats(50):
        assert pair.here.run(pair.prepare_whole()) == "DONE"
        pair.proxy.hold(SIZE // 2, lane="bulk")
        pair.proxy.hold(0, lane="control")
        pair.here.fill("block", round_)
        request = pair.prepare_whole()
        handle = pair.here.last_request()
        assert pair.here.post(request) == "PROC"
        assert pair.proxy.reset(lane="bulk") >= 1
        pair.proxy.hold(0, lane="bulk")
        assert until(lambda handle=handle: pair.here.result(handle)["logical"] == FAILED)
        assert until(lambda: "control" in pair.proxy.lanes())
        for _ in range(5):
            assert pair.here.poll(request) == "PROC"
        assert pair.here.result(handle)["drain"] == PENDING
        assert accounts(pair.here.info())["bytes_in_flight"] == SIZE
        pair.proxy.open()
        assert kind_of_end(pair, request) in DISCONNECTED
        result = pair.here.result(handle)
        assert (result["effect"], result["drain"]) == (UNKNOWN, RETIRED)
        with pytest.raises(AgentError):
            pair.here.post(request)
        pair.here.release(request)
        expect_no_later_write(pair)
    assert counters(pair.here)["lanes_drained"] >= len(repeats(50))


def test_n03_read_that_ends_short_says_its_exact_prefix(make_proxied_pair):
    """N03: the connection of a READ ends after a part of the answer: a short completion, with the
    exact prefix, and nothing behind it is touched."""
    pair = make_proxied_pair(MIB // 2)
    whole = (0, pair.size)
    for round_ in repeats(50):
        assert pair.here.transfer("READ", pair.local(whole), pair.remote(whole), "there") == "DONE"
        pair.there.fill("block", round_)
        pair.here.fill("block", round_ + 500)
        untouched = pair.here.content("block")
        part = random.Random(round_).randrange(100, pair.size)
        before = pair.proxy.passed("bulk", answers=True)
        pair.proxy.hold(part, lane="bulk", answers=True)
        request = pair.here.prepare("READ", pair.local(whole), pair.remote(whole), "there")
        handle = pair.here.last_request()
        assert pair.here.post(request) == "PROC"
        pair.proxy.wait_passed(before + part, lane="bulk", answers=True)
        assert pair.here.poll(request) == "PROC"
        assert pair.proxy.reset(lane="bulk") == 1
        pair.proxy.open()
        assert kind_of_end(pair, request) in DISCONNECTED
        prefix = pair.here.result(handle)["bytes_prefix"]
        assert prefix <= part
        here, there = pair.here.content("block"), pair.there.content("block")
        assert here[:prefix] == there[:prefix] and here[prefix:] == untouched[prefix:]
        pair.here.release(request)
    assert pair.guards_intact()


def test_n03_dropped_wrapper_keeps_its_owners(make_proxied_pair):
    """N03: a handle that the garbage collector takes while its transfer is held: the engine keeps
    everything until the receipt, then gives everything back."""
    pair = make_proxied_pair(SIZE)
    idle = warm(pair)
    for round_ in repeats(50):
        adopted = counters(pair.here)["requests_adopted"]
        request = hold_write(pair, round_, b"%d" % round_)
        # The agent's wrapper makes two attempts: it is refused once, then final.
        with pytest.raises(AgentError):
            pair.here.release(request)
        pair.here.drop_in_thread([request])
        used = accounts(pair.here.info())
        assert used["bytes_in_flight"] == SIZE and used["loans"] == 1
        pair.proxy.open()
        assert pair.there.wait_notifications(1) == [("here", b"%d" % round_)]
        assert pair.there.content("block") == pair.here.content("block")
        assert until(lambda: accounts(pair.here.info())["bytes_in_flight"] == 0)
        assert counters(pair.here)["requests_adopted"] in (adopted, adopted + 1)
    pair.here.end_agent()
    assert pair.here.exit() == 0
    assert idle["loans"] == 0 and pair.there.guards_intact()
