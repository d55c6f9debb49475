# SPDX-License-Identifier: Apache-2.0
"""Notifications between real agents in two processes: control N08."""

from __future__ import annotations

import time

import pytest

from agents import AgentError, config_json
from conftest import repeats, until

EVERY_BYTE = bytes(range(256))


@pytest.mark.parametrize(
    "message", [b"n\0tification", EVERY_BYTE, b"\0", b"x" * 40_000, EVERY_BYTE * 2_000],
    ids=["embedded NUL", "every byte", "a NUL alone", "40 kB", "512 kB"])
def test_n08_binary_payload(make_pair, message):
    """N08: any bytes arrive once, alone and with a transfer, under the sender's name."""
    pair = make_pair()
    pair.here.notify("there", message)
    assert pair.there.wait_notifications(1) == [("here", message)]
    for operation in ("WRITE", "READ"):
        request = pair.here.prepare(operation, pair.local((0, 64)), pair.remote((0, 64)), "there",
                                    message)
        assert pair.here.run(request, message) == "DONE"
        assert pair.there.wait_notifications(1) == [("here", message)]
    assert pair.there.notifications() == []


def test_n08_empty_message(make_pair):
    """N08: genNotif of no bytes is a message."""
    pair = make_pair()
    pair.here.notify("there", b"")
    assert pair.there.wait_notifications(1) == [("here", b"")]


def test_n08_to_itself(start):
    """N08: an agent's own messages come back to it, in order."""
    agent = start("myself")
    messages = [b"first", b"", EVERY_BYTE]
    agent.notify_many("myself", messages)
    assert agent.wait_notifications(3) == [("myself", message) for message in messages]


def test_n08_receiver_needs_not_know_the_sender(start):
    """N08, vLLM pull: the producer never loads the consumer's metadata and still receives."""
    producer, consumer = start("producer"), start("consumer")
    consumer.add(producer.metadata())
    consumer.notify("producer", b"HB:request-1,request-2")
    assert producer.wait_notifications(1) == [("consumer", b"HB:request-1,request-2")]


def test_n08_transfer_notification_comes_after_its_bytes(make_pair):
    """N08: whoever sees the notification sees the bytes."""
    pair = make_pair(8 << 20)
    whole = (0, pair.size)
    request = pair.here.prepare("WRITE", pair.local(whole), pair.remote(whole), "there", b"all")
    pair.here.post(request, b"all")
    assert pair.there.wait_notifications(1) == [("here", b"all")]
    assert pair.there.content("block") == pair.here.content("block")
    assert pair.here.wait(request) == "DONE"


def test_n08_one_notification_for_each_post(make_pair):
    """N08: each post sends its own once; the agent carries the last one over to a post that names
    none."""
    pair = make_pair()
    request = pair.here.prepare("WRITE", pair.local((0, 64)), pair.remote((0, 64)), "there")
    sent = [b"first", b"second", b""]
    for message in sent:
        assert pair.here.run(request, message) == "DONE"
    pair.here.notify("there", b"marker")
    received = pair.there.wait_notifications(4)
    assert received == [("here", m) for m in (b"first", b"second", b"second", b"marker")]
    assert pair.there.notifications() == []


def test_n08_oversized_message_is_refused(start):
    """N08: one byte over the limit is refused and nothing of it arrives, bytes included."""
    config = config_json(notifications={"message_bytes_max": 1000})
    here, there = start("here", config=config), start("there", config=config)
    local, remote = here.allocate("block", 64, 1), there.allocate("block", 64, 2)
    here.register("block")
    there.register("block")
    here.add(there.metadata())
    before = there.content("block")
    with pytest.raises(AgentError):
        here.notify("there", b"x" * 1001)
    with pytest.raises(AgentError):
        here.transfer("WRITE", [(local, 64)], [(remote, 64)], "there", b"x" * 1001)
    assert there.content("block") == before
    here.notify("there", b"y" * 1000)
    assert there.wait_notifications(1) == [("here", b"y" * 1000)]


def test_n08_unreachable_target(start):
    """N08: a target that is gone does not hold up the others, and the failure is told."""
    here, gone, alive = start("here"), start("gone"), start("alive")
    here.add(gone.metadata())
    here.add(alive.metadata())
    gone.kill()
    begin = time.monotonic()
    told = False
    # The first message may be accepted before the loss shows.
    for _ in range(200):
        try:
            here.notify("gone", b"lost")
        except AgentError as error:
            assert error.kind in ("nixlRemoteDisconnectError", "nixlBackendError")
            told = True
            break
        time.sleep(0.01)
    here.notify("alive", b"arrives")
    assert alive.wait_notifications(1) == [("here", b"arrives")]
    assert told or "gone" in here.log()
    assert time.monotonic() - begin < 15


def test_n08_stale_epoch(start):
    """N08: what was sent to an agent's former life never reaches the next one of that name."""
    here, first = start("here"), start("there")
    here.add(first.metadata())
    here.notify("there", b"to the first")
    assert first.wait_notifications(1) == [("here", b"to the first")]
    first.kill()
    second = start("there")
    try:
        here.notify("there", b"to the dead")
    except AgentError as error:
        assert error.kind in ("nixlRemoteDisconnectError", "nixlMismatchError")
    here.remove("there")
    here.add(second.metadata())
    here.notify("there", b"to the second")
    assert second.wait_notifications(1) == [("here", b"to the second")]
    assert second.notifications() == []


def test_n08_stale_sender_epoch(start):
    """N08: messages of a sender's two lives both arrive, each once; no more than were sent."""
    target, first = start("target"), start("sender")
    first.add(target.metadata())
    first.notify("target", b"from the first")
    assert target.wait_notifications(1) == [("sender", b"from the first")]
    first.kill()
    second = start("sender")
    second.add(target.metadata())
    second.notify("target", b"from the second")
    assert target.wait_notifications(1) == [("sender", b"from the second")]
    assert target.notifications() == []


def test_n08_inbox_that_nobody_drains(start):
    """Ray, SGLang, LMCache: nobody calls getNotifs. Nothing stalls, fails or grows."""
    config = config_json(notifications={"message_bytes_max": 4096, "inbox_bytes_max": 65536})
    here, there = start("here"), start("there", config=config)
    local, remote = here.allocate("block", 64, 1), there.allocate("block", 64, 2)
    here.register("block")
    there.register("block")
    here.add(there.metadata())
    request = here.prepare("READ", [(local, 64)], [(remote, 64)], "there", b"UUID" * 1000)
    for _ in range(300):
        assert here.run(request, b"UUID" * 1000) == "DONE"
    kept = there.notifications()
    assert 1 <= len(kept) <= 65536 // 4000
    assert set(kept) == {("here", b"UUID" * 1000)}


def test_n08_overflow_of_a_drained_inbox_is_told(start):
    """Once somebody drains the inbox, a message that does not fit fails its transfer."""
    config = config_json(notifications={"message_bytes_max": 4096, "inbox_bytes_max": 65536})
    here, there = start("here"), start("there", config=config)
    local, remote = here.allocate("block", 64, 1), there.allocate("block", 64, 2)
    here.register("block")
    there.register("block")
    here.add(there.metadata())
    here.notify("there", b"drained")
    assert there.wait_notifications(1) == [("here", b"drained")]
    done = 0
    with pytest.raises(AgentError) as refused:
        for _ in range(100):
            assert here.transfer("WRITE", [(local, 64)], [(remote, 64)], "there",
                                 b"z" * 4000) == "DONE"
            done += 1
    assert refused.value.kind == "nixlBackendError"
    assert len(there.notifications()) == done
    assert here.transfer("WRITE", [(local, 64)], [(remote, 64)], "there", b"again") == "DONE"
    assert there.wait_notifications(1) == [("here", b"again")]


def test_n08_unreachable_target_among_others(start, probe):
    """N08: one of two targets is dead. What is sent to it is told or logged and counted as failed,
    what is sent to the other arrives exactly once."""
    here, gone, alive = start("here", probe=probe), start("gone"), start("alive")
    here.add(gone.metadata())
    here.add(alive.metadata())
    here.notify("gone", b"in time")
    assert gone.wait_notifications(1) == [("here", b"in time")]
    gone.kill()
    accepted = 0
    for round_ in repeats(50):
        try:
            here.notify("gone", b"lost %d" % round_)
            accepted += 1
        except AgentError as error:
            assert error.kind in ("nixlRemoteDisconnectError", "nixlBackendError")
        here.notify("alive", b"%d" % round_)
        assert alive.wait_notifications(1) == [("here", b"%d" % round_)]
    assert alive.notifications() == []
    assert until(lambda: here.info()["counters"]["notifications_failed"] == accepted)
    assert here.log().count("notification to peer 'gone' not delivered") == accepted


def test_n08_no_write_is_repeated_for_its_notification(start, probe):
    """N08: the target takes the bytes and refuses the notification: the transfer has failed, its
    bytes are in place, and one frame was sent for each attempt."""
    config = config_json(notifications={"message_bytes_max": 65000, "inbox_bytes_max": 65536})
    here, there = start("here", probe=probe), start("there", probe=probe, config=config)
    local, remote = here.allocate("block", 64, 1), there.allocate("block", 64, 2)
    here.register("block")
    there.register("block")
    here.add(there.metadata())
    here.notify("there", b"somebody drains this inbox")
    assert len(there.wait_notifications(1)) == 1
    here.notify("there", b"x" * 65000)
    assert until(lambda: here.info()["counters"]["notifications_sent"] == 2)
    for round_ in repeats(50):
        here.fill("block", round_)
        frames = there.info()["counters"]["served_frames"]
        request = here.prepare("WRITE", [(local, 64)], [(remote, 64)], "there", b"y" * 1000)
        with pytest.raises(AgentError) as failed:
            here.run(request, b"y" * 1000)
        assert failed.value.kind == "nixlBackendError"
        assert there.content("block") == here.content("block")
        # Other bytes at the source: they must not follow.
        here.fill("block", 1000)
        with pytest.raises(AgentError):
            here.post(request)
        assert there.info()["counters"]["served_frames"] == frames + 1
        here.release(request)
    assert [len(message) for _, message in there.notifications()] == [65000]
