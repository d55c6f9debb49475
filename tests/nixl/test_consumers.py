# SPDX-License-Identifier: Apache-2.0
"""What vLLM, SGLang, LMCache and Ray need of a backend for memory, one requirement a test."""

from __future__ import annotations

import pytest

from agents import AgentError, pattern

MIB = 1 << 20


@pytest.mark.parametrize("offset", [0x40, 0x10, 1, 4095])
def test_unaligned_regions(start, offset):
    """vLLM's region ends in ...040, SGLang's in ...010: no alignment of base or size is needed."""
    here, there = start("here"), start("there")
    size = MIB + 13
    local = here.allocate("block", size, 1, offset)
    remote = there.allocate("block", size, 2, offset)
    assert local % 4096 == offset and remote % 4096 == offset
    here.register("block")
    there.register("block")
    here.add(there.metadata())
    assert here.transfer("WRITE", [(local, size)], [(remote, size)], "there") == "DONE"
    assert there.content("block") == here.content("block")
    assert here.transfer("READ", [(local + 1, size - 1)], [(remote, size - 1)], "there") == "DONE"
    assert here.content("block")[1:] == there.content("block")[:-1]
    assert here.guards_intact() and there.guards_intact()


def test_adjacent_registrations(start):
    """LMCache registers page by page: 307 adjacent ranges, transfers cross no range."""
    here, there = start("here"), start("there")
    page, count = 64 * 1024, 307
    local = here.allocate("block", page * count, 1)
    remote = there.allocate("block", page * count, 2)
    parts = [(page * i, page) for i in range(count)]
    here.register_parts("block", parts, "pages")
    there.register_parts("block", parts, "pages")
    here.add(there.metadata())
    state = here.transfer("WRITE", [(local + o, s) for o, s in parts],
                          [(remote + o, s) for o, s in reversed(parts)], "there")
    assert state == "DONE"
    ours, theirs = here.content("block"), there.content("block")
    for i in range(count):
        to = page * (count - 1 - i)
        assert theirs[to : to + page] == ours[page * i : page * (i + 1)]


def test_several_small_regions_in_one_page(start):
    """SGLang's auxiliary buffers: 16 to 4096 bytes, several in one page, registered apart."""
    here, there = start("here"), start("there")
    local, remote = here.allocate("page", 4096, 1), there.allocate("page", 4096, 2)
    parts = [(0x10, 16), (0x30, 64), (0x71, 7), (0x100, 1024), (0x800, 2048)]
    here.register_parts("page", parts, "aux")
    there.register_parts("page", parts, "aux")
    here.add(there.metadata())
    assert here.transfer("WRITE", [(local + o, s) for o, s in parts],
                         [(remote + o, s) for o, s in parts], "there") == "DONE"
    expected = pattern(4096, 2)
    for offset, size in parts:
        expected[offset : offset + size] = pattern(4096, 1)[offset : offset + size]
    assert there.content("page") == expected.tobytes()


def test_several_engines_register_one_range(start):
    """LMCache native: 4 agents in one process register the same range, each with its thread."""
    agent = start("native")
    agent.allocate("shared", 4 * MIB, 1)
    assert agent.engines_on_one_range(4, "shared", 25) == [25] * 4
    assert agent.guards_intact()


def test_same_address_registered_again(start):
    """Ray: a tensor is deregistered, the allocator gives its address again, the peer reloads."""
    here, there = start("here"), start("there")
    local, remote = here.allocate("tensor", 65536, 1), there.allocate("tensor", 65536, 2)
    here.register("tensor")
    for seed in range(20):
        there.fill("tensor", seed)
        there.register("tensor")
        here.add(there.metadata())
        assert here.transfer("READ", [(local, 65536)], [(remote, 65536)], "there",
                             b"UUID") == "DONE"
        assert here.content("tensor") == pattern(65536, seed).tobytes()
        there.deregister("tensor")
        here.remove("there")


def test_same_peer_added_again_and_again(start):
    """Ray removes and adds one producer per tensor: cheap, and nothing of the old life survives."""
    here, there = start("here"), start("there")
    local, remote = here.allocate("block", 4096, 1), there.allocate("block", 4096, 2)
    here.register("block")
    there.register("block")
    metadata = there.metadata()
    assert here.add(metadata) == "there"
    old = here.prepare("READ", [(local, 64)], [(remote, 64)], "there")
    assert here.run(old) == "DONE"
    assert here.add_many(metadata, 200) < 0.01
    with pytest.raises(AgentError) as refused:
        here.post(old)
    assert refused.value.kind == "nixlNotFoundError"
    assert here.transfer("READ", [(local, 4096)], [(remote, 4096)], "there") == "DONE"
    assert here.content("block") == there.content("block")


@pytest.mark.parametrize("device", [0, 1, 7, (1 << 63) + 5])
def test_any_device_id(start, device):
    """LMCache uses the rank as device of its DRAM: any number is accepted."""
    here, there = start("here"), start("there")
    local, remote = here.allocate("block", 4096, 1), there.allocate("block", 4096, 2)
    here.register("block", device)
    there.register("block", device)
    here.add(there.metadata())
    assert here.transfer("WRITE", [(local, 4096, device)], [(remote, 4096, device)],
                         "there") == "DONE"
    assert there.content("block") == here.content("block")


@pytest.mark.parametrize("operation", ["READ", "WRITE"])
@pytest.mark.parametrize("size", [512, 8 * MIB])
def test_done_is_visible_at_the_peer(make_pair, operation, size):
    """SGLang tells the peer by other means right after DONE: the bytes are there already."""
    pair = make_pair(size)
    whole = (0, size)
    request = pair.here.prepare(operation, pair.local(whole), pair.remote(whole), "there")
    for seed in range(5):
        pair.here.fill("block", seed)
        assert pair.here.run(request) == "DONE"
        assert pair.there.content("block") == pair.here.content("block")
        pair.there.fill("block", 100 + seed)


def test_passive_side_makes_progress_without_its_application(start):
    """The target's only thread of its application sleeps in a read, and was never in the agent
    since registration; no progress thread was asked for."""
    here = start("here", progress_thread=False)
    there = start("there", progress_thread=False)
    size = 16 * MIB
    local, remote = here.allocate("block", size, 1), there.allocate("block", size, 2)
    here.register("block")
    there.register("block")
    here.add(there.metadata())
    for operation in ("READ", "WRITE", "READ"):
        assert here.transfer(operation, [(local, size)], [(remote, size)], "there") == "DONE"


def test_active_side_makes_progress_without_polling(make_pair):
    """vLLM polls once per engine step: the transfer goes on in between."""
    pair = make_pair(32 * MIB)
    whole = (0, pair.size)
    request = pair.here.prepare("WRITE", pair.local(whole), pair.remote(whole), "there", b"all")
    pair.here.post(request, b"all")
    assert pair.there.wait_notifications(1) == [("here", b"all")]
    assert pair.here.poll(request) == "DONE"


def test_small_local_transfer_ends_inside_the_post(start):
    """LMCache and HiCache sleep before they look again: microseconds of work end in the post."""
    agent = start("quick")
    address = agent.allocate("block", 65536, 1)
    agent.register("block")
    request = agent.prepare("WRITE", [(address, 4096)], [(address + 8192, 4096)], "quick")
    for _ in range(10):
        assert agent.post(request) == "DONE"


def test_many_transfers_leave_no_more_sockets_than_lanes(make_pair, probe):
    """10,000 transfers use the lanes that the first ones made."""
    pair = make_pair(1 << 17, probe=probe)
    for size, rounds in ((512, 9_900), (100_000, 100)):
        assert pair.here.many_transfers("WRITE", pair.local((0, size)), pair.remote((0, size)),
                                        "there", rounds) == rounds
    # One lane for small transfers and the configured two for large ones.
    assert pair.here.info()["lane_sockets"] <= 3
    assert pair.there.info()["served_lanes"] <= 3


@pytest.mark.parametrize("sync", ["NONE", "STRICT", "RW"])
def test_every_sync_mode(start, sync):
    """vLLM, LMCache and Ray use NONE, SGLang STRICT, HiCache RW."""
    agent = start("synced", sync=f"NIXL_THREAD_SYNC_{sync}")
    address = agent.allocate("block", 4096, 1)
    agent.register("block")
    assert agent.transfer("WRITE", [(address, 64)], [(address + 64, 64)], "synced") == "DONE"


def test_backend_created_in_a_helper_thread(start):
    """SGLang creates the backend in a helper thread with a deadline."""
    from agents import config_json

    agent = start("helped", create=False)
    thread = agent.call_in_thread("create", {"config": config_json()})
    agent.join(thread, 10)
    agent.notify("helped", b"x")
    assert agent.wait_notifications(1) == [("helped", b"x")]


def test_push_registration_message(start):
    """vLLM push: tens of kilobytes of msgpack from a consumer to a producer, then heartbeats."""
    producer, consumer = start("producer"), start("consumer")
    consumer.add(producer.metadata())
    registration = b"PUSH_REG:" + pattern(48_000, 7).tobytes()
    heartbeats = [b"HB:request-%d" % i for i in range(50)]
    consumer.notify_many("producer", [registration, *heartbeats])
    received = producer.wait_notifications(51)
    assert sorted(received) == sorted(("consumer", m) for m in [registration, *heartbeats])


def test_pull_of_many_blocks_with_notification(make_pair):
    """vLLM pull: 128 scattered blocks READ from a prepared list of every block, then a notice."""
    block, count = 32 * 1024, 256
    pair = make_pair(block * count)
    every = [(block * i, block) for i in range(count)]
    ours = pair.here.prepare_list("", pair.local(*every))
    theirs = pair.here.prepare_list("there", pair.remote(*every))
    local, remote = list(range(0, 128)), list(range(255, 127, -1))
    request = pair.here.prepare_by_index("READ", ours, local, theirs, remote, b"request-1:1")
    assert pair.here.run(request, b"request-1:1") == "DONE"
    assert pair.there.wait_notifications(1) == [("here", b"request-1:1")]
    here, there = pair.here.content("block"), pair.there.content("block")
    for to, source in zip(local, remote, strict=True):
        assert here[block * to : block * (to + 1)] == there[block * source : block * (source + 1)]
    assert here[block * 128 :] == pattern(pair.size, 1).tobytes()[block * 128 :]
    pair.here.release(request)
    pair.here.release_list(ours)
    pair.here.release_list(theirs)


def test_strided_prepared_lists(make_pair):
    """SGLang: prepared lists are strided (address, length, device, stride, count)."""
    block, count = 4096, 64
    pair = make_pair(2 * block * count)
    ours = pair.here.prepare_list("", [(pair.here_address, block, 0, 2 * block, count)])
    theirs = pair.here.prepare_list("there", [(pair.there_address, block, 0, 2 * block, count)])
    indices = list(range(count))
    request = pair.here.prepare_by_index("WRITE", ours, indices, theirs, indices[::-1])
    assert pair.here.run(request) == "DONE"
    here, there = pair.here.content("block"), pair.there.content("block")
    for i in indices:
        source, to = 2 * block * i, 2 * block * (count - 1 - i)
        assert there[to : to + block] == here[source : source + block]
    assert pair.guards_intact()


def test_handles_released_late_from_another_thread_after_the_peer_is_gone(make_pair):
    """SGLang, LMCache, Ray: only the garbage collector releases, whenever and wherever it runs."""
    pair = make_pair()
    requests = [pair.here.prepare("WRITE", pair.local((64 * i, 64)), pair.remote((64 * i, 64)),
                                  "there") for i in range(100)]
    for request in requests[:90]:
        assert pair.here.run(request) == "DONE"
    pair.there.kill()
    pair.here.drop_in_thread(requests[:50])
    pair.here.remove("there")
    pair.here.drop_in_thread(requests[50:])
    assert pair.here.transfer("WRITE", pair.local((0, 64)), pair.local((64, 64)), "here") == "DONE"


def test_partial_metadata(start):
    """NIXL's partial metadata: a peer that learns of one range can use that one only."""
    here, there = start("here"), start("there")
    local = here.allocate("block", 4096, 1)
    shown, hidden = there.allocate("shown", 4096, 2), there.allocate("hidden", 4096, 3)
    here.register("block")
    there.register("shown")
    there.register("hidden")
    here.add(there.partial_metadata(["shown"]))
    assert here.transfer("READ", [(local, 4096)], [(shown, 4096)], "there") == "DONE"
    with pytest.raises(AgentError):
        here.prepare("READ", [(local, 4096)], [(hidden, 4096)], "there")


def test_connection_can_be_made_ahead(start):
    """makeConnection saves the first transfer its handshake and may be repeated."""
    here, there = start("here"), start("there")
    here.add(there.metadata())
    here.connect("there")
    here.connect("there")


def blobs_in(metadata: bytes) -> list[range]:
    """Where our connection blob and the blob of the one registered range lie in what NIXL carries.
    Its own framing around them is not ours to damage: NIXL 1.5 does not survive that."""
    found = []
    start = metadata.index(b"ORBITE|c") + len(b"ORBITE|c") + 8
    found.append(range(start, start + int.from_bytes(metadata[start - 8 : start], "little")))
    # A list of one element: its count, then a string of a descriptor (24 bytes) and the blob.
    count = (1).to_bytes(8, "little")
    start = metadata.index(b"n" + (8).to_bytes(8, "little") + count + b"|") + 18 + 8
    size = int.from_bytes(metadata[start - 8 : start], "little")
    found.append(range(start + 24, start + size))
    return found


def test_damaged_metadata_is_refused(start):
    """Each byte of our blobs altered, as an application might carry them: MISMATCH or
    INVALID_PARAM, never a crash, and the good ones work afterwards."""
    here, there = start("here"), start("there")
    local, remote = here.allocate("block", 4096, 1), there.allocate("block", 4096, 2)
    here.register("block")
    there.register("block")
    good = there.metadata()
    for blob in blobs_in(good):
        assert len(blob) > 16
        for position in blob:
            damaged = bytearray(good)
            damaged[position] ^= 0x41
            with pytest.raises(AgentError) as refused:
                here.add(bytes(damaged))
            assert refused.value.kind in ("nixlMismatchError", "nixlInvalidParamError"), position
    assert here.add(good) == "there"
    assert here.transfer("WRITE", [(local, 4096)], [(remote, 4096)], "there") == "DONE"
    assert there.content("block") == here.content("block")
