# SPDX-License-Identifier: Apache-2.0
"""Transfers between two real agents in two processes: controls N01 and N07."""

from __future__ import annotations

import time

import numpy as np
import pytest

from agents import AgentError, config_json, pattern
from conftest import accounts, repeats, until


def model(source: np.ndarray, source_parts, target: np.ndarray, target_parts) -> bytes:
    """`target` after the parts of `source` were copied over it, nothing else changed."""
    result = target.copy()
    for (from_offset, size), (to_offset, _) in zip(source_parts, target_parts, strict=True):
        result[to_offset : to_offset + size] = source[from_offset : from_offset + size]
    return result.tobytes()


def expect_moves(pair, operation: str, local, remote) -> None:
    here, there = pattern(pair.size, 1), pattern(pair.size, 2)
    pair.here.fill("block", 1)
    pair.there.fill("block", 2)
    state = pair.here.transfer(operation, pair.local(*local), pair.remote(*remote), "there")
    assert state == "DONE"
    if operation == "WRITE":
        expected = here.tobytes(), model(here, local, there, remote)
    else:
        expected = model(there, remote, here, local), there.tobytes()
    assert pair.here.content("block") == expected[0]
    assert pair.there.content("block") == expected[1]
    assert pair.guards_intact()


@pytest.mark.parametrize("operation", ["WRITE", "READ"])
def test_n01_fragmented_lists(make_any_pair, operation):
    """N01: 1000 fragments of odd sizes at odd places, in opposite orders on the two sides."""
    pair = make_any_pair(1 << 20)
    sizes = [1 + (37 * i) % 509 for i in range(1000)]
    local = [(1024 * i + 3, size) for i, size in enumerate(sizes)]
    remote = [(1024 * (999 - i) + 7, size) for i, size in enumerate(sizes)]
    expect_moves(pair, operation, local, remote)


@pytest.mark.parametrize("operation", ["WRITE", "READ"])
def test_n01_merged_aliases(make_any_pair, operation):
    """N01: runs that are adjacent on both sides, on one side only, and a list of one run."""
    pair = make_any_pair(1 << 18)
    adjacent = [(512 * i, 512) for i in range(256)]
    gaps = [(512 * i + 1024 * (i // 32), 512) for i in range(256)]
    expect_moves(pair, operation, adjacent, adjacent)
    expect_moves(pair, operation, adjacent, gaps)
    expect_moves(pair, operation, gaps, adjacent)


@pytest.mark.parametrize("operation", ["WRITE", "READ"])
@pytest.mark.parametrize("size", [1, 4096, (1 << 20) + 1, 48 << 20])
def test_n01_one_descriptor(make_any_pair, operation, size):
    """N01: one byte, a page, a little over a slice, many slices; the whole range at once."""
    pair = make_any_pair(size)
    expect_moves(pair, operation, [(0, size)], [(0, size)])


def test_n01_goes_over_tcp(make_pair):
    """N01: two processes with ordinary memory use TCP, and an agent's own transfers do not."""
    pair = make_pair()
    assert pair.here.transfer("WRITE", pair.local((0, 64)), pair.remote((0, 64)), "there") == "DONE"
    assert pair.here.routes() == {"tcp": 1}
    assert pair.here.transfer("WRITE", pair.local((0, 64)), pair.local((128, 64)), "here") == "DONE"
    assert pair.here.routes() == {"tcp": 1, "local": 1}


def test_n01_accounting_returns_to_baseline_only_after_drain(make_pair, probe):
    """N01: charges and loans stay while a peer that stands still may yet take the bytes."""
    pair = make_pair(64 << 20, probe=probe)
    baseline = accounts(pair.here.info()), accounts(pair.there.info())
    whole = (0, pair.size)
    request = pair.here.prepare("WRITE", pair.local(whole), pair.remote(whole), "there")
    assert pair.here.run(request) == "DONE"
    pair.there.stop()
    assert pair.here.post(request, b"drained") == "PROC"
    for _ in range(20):
        assert pair.here.poll(request) == "PROC"
    under_way = accounts(pair.here.info())
    assert under_way["bytes_in_flight"] >= pair.size
    assert under_way["loans"] > 0
    pair.there.resume()
    assert pair.here.wait(request) == "DONE"
    pair.here.release(request)
    assert pair.there.wait_notifications(1) == [("here", b"drained")]
    assert until(lambda: accounts(pair.here.info()) == baseline[0])
    assert until(lambda: accounts(pair.there.info()) == baseline[1])
    assert pair.there.content("block") == pair.here.content("block")
    assert pair.guards_intact()


def test_n07_repost_of_a_drained_success(make_any_pair):
    """N07: a request is posted again after each success and moves what is there then."""
    pair = make_any_pair()
    request = pair.here.prepare("WRITE", pair.local((0, 5000)), pair.remote((77, 5000)), "there")
    for seed in range(10, 20):
        pair.here.fill("block", seed)
        assert pair.here.run(request) == "DONE"
        assert pair.there.content("block")[77:5077] == pattern(pair.size, seed)[:5000].tobytes()
    pair.here.release(request)


def test_n07_repost_in_progress_is_refused(make_pair):
    """N07: post of a request in progress is REPOST_ACTIVE and changes nothing."""
    pair = make_pair(32 << 20)
    whole = (0, pair.size)
    request = pair.here.prepare("WRITE", pair.local(whole), pair.remote(whole), "there")
    assert pair.here.run(request) == "DONE"
    pair.there.stop()
    assert pair.here.post(request) == "PROC"
    with pytest.raises(AgentError) as refused:
        pair.here.post(request)
    assert refused.value.kind == "nixlRepostActiveError"
    assert pair.here.poll(request) == "PROC"
    pair.there.resume()
    assert pair.here.wait(request) == "DONE"


def test_n07_no_call_waits_for_payload(make_pair):
    """N07: a peer that stands still holds up neither post nor check nor release nor deregister."""
    pair = make_pair(64 << 20)
    whole = (0, pair.size)
    request = pair.here.prepare("WRITE", pair.local(whole), pair.remote(whole), "there")
    assert pair.here.run(request) == "DONE"
    pair.there.stop()
    begin = time.monotonic()
    assert pair.here.post(request) == "PROC"
    assert pair.here.poll(request) == "PROC"
    with pytest.raises(AgentError):
        pair.here.release(request)
    pair.here.release(request)
    pair.here.deregister("block")
    pair.here.remove("there")
    assert time.monotonic() - begin < 2
    pair.there.resume()


def test_n07_withheld_answers_block_no_call(make_proxied_pair):
    """N07: preparing sends not one byte; with every answer withheld each call still answers: post,
    poll, refused release, release of what was never posted, and a second post."""
    pair = make_proxied_pair(1 << 16)
    first = pair.prepare_whole()
    assert pair.here.run(first) == "DONE"
    pair.here.release(first)
    for round_ in repeats(50):
        passed = pair.proxy.passed()
        request, idle = pair.prepare_whole(), pair.prepare_whole()
        assert pair.proxy.passed() == passed
        pair.here.fill("block", round_)
        pair.proxy.hold(0, answers=True)
        assert pair.here.post(request) == "PROC"
        second = pair.prepare_whole()
        assert pair.here.post(second) == "PROC"
        pair.here.release(idle)
        for _ in range(10):
            assert pair.here.poll(request) == "PROC" and pair.here.poll(second) == "PROC"
        with pytest.raises(AgentError) as refused:
            pair.here.post(second)
        assert refused.value.kind == "nixlRepostActiveError"
        with pytest.raises(AgentError):
            pair.here.release(second)
        # Final, since the agent polls it no more: the engine keeps it.
        pair.here.release(second)
        pair.proxy.open()
        assert pair.here.wait(request) == "DONE"
        pair.here.release(request)
        assert until(lambda: not any(accounts(pair.here.info()).values()))
        assert pair.there.content("block") == pair.here.content("block")


def test_n07_preparing_moves_nothing(make_any_pair):
    """N07: no payload during preparation, and what was never posted is released."""
    pair = make_any_pair()
    before = pair.there.content("block")
    request = pair.here.prepare("WRITE", pair.local((0, 4096)), pair.remote((0, 4096)), "there",
                                b"never sent")
    pair.here.release(request)
    assert pair.there.content("block") == before
    assert pair.there.notifications() == []


@pytest.mark.parametrize(
    "local, remote",
    [
        ([(0, 0)], [(0, 0)]),
        ([(0, 64)], [(0, 65)]),
        ([(0, 64), (64, 64)], [(0, 64)]),
        ([((1 << 16) - 63, 64)], [(0, 64)]),
        ([(0, 64)], [((1 << 16) - 63, 64)]),
        ([(-1, 64)], [(0, 64)]),
    ],
    ids=["zero length", "unequal lengths", "unequal counts", "past our end", "past their end",
         "before our start"],
)
def test_n07_bad_lists_are_refused(make_any_pair, local, remote):
    """N07: zero-length, unequal and unregistered ranges fail before anything is admitted."""
    pair = make_any_pair()
    before = pair.there.content("block")
    with pytest.raises(AgentError):
        pair.here.prepare("WRITE", pair.local(*local), pair.remote(*remote), "there")
    assert pair.there.content("block") == before


def test_n07_budget_exhausted_fails_before_posting(start):
    """N07: a request beyond the configured budget is a typed error, and the next one works."""
    agent = start("budget", config=config_json(limits={"requests_max": 2}))
    address = agent.allocate("block", 4096, 1)
    agent.register("block")
    parts = [(address, 64)], [(address + 1024, 64)]
    held = [agent.prepare("WRITE", *parts, "budget") for _ in range(2)]
    with pytest.raises(AgentError) as refused:
        agent.prepare("WRITE", *parts, "budget")
    assert refused.value.kind == "nixlBackendError"
    assert "budget" in agent.log()
    agent.release(held.pop())
    assert agent.transfer("WRITE", *parts, "budget") == "DONE"


def test_n07_deregistered_range_cannot_be_posted(make_any_pair):
    """N07: every identity is checked again at the post: ours is gone, then theirs is."""
    pair = make_any_pair()
    before = pair.there.content("block")
    address = pair.here.allocate("spare", 4096, 3)
    pair.here.register("spare")
    ours = pair.here.prepare("WRITE", [(address, 64)], pair.remote((0, 64)), "there")
    theirs = pair.here.prepare("WRITE", pair.local((0, 64)), pair.remote((0, 64)), "there")
    pair.here.deregister("spare")
    with pytest.raises(AgentError) as refused:
        pair.here.run(ours)
    assert refused.value.kind == "nixlNotFoundError"
    pair.there.deregister("block")
    with pytest.raises(AgentError) as refused:
        pair.here.run(theirs)
    assert refused.value.kind in ("nixlNotFoundError", "nixlMismatchError")
    assert pair.there.content("block") == before


def test_unsupported_calls_say_so(make_pair):
    """The optional calls that ORBITE does not have answer NOT_SUPPORTED through the agent."""
    pair = make_pair()
    request = pair.here.prepare("WRITE", pair.local((0, 64)), pair.remote((0, 64)), "there")
    for function, argument in (("estimate", request), ("query", "block")):
        with pytest.raises(AgentError) as refused:
            pair.here.call(function, argument)
        assert refused.value.kind == "nixlNotSupportedError"


@pytest.mark.parametrize("mem_type", ["VRAM", "BLOCK", "OBJ", "FILE"])
def test_other_memory_types_are_refused(start, mem_type):
    """DRAM only: every other type fails before registration."""
    agent = start("dram")
    agent.allocate("block", 4096, 1)
    with pytest.raises(AgentError):
        agent.register("block", 0, mem_type)
    assert "memory type" in agent.log()
