# SPDX-License-Identifier: Apache-2.0
"""Agents that end while their transfers cannot: control N06."""

from __future__ import annotations

from conftest import patient_config, repeats, until

SIZE = 1 << 20
IMPATIENT = {"close": {"timeout_ms": 20}}


def meet(agent, pair, size: int = SIZE) -> int:
    address = agent.allocate("block", size, 1)
    agent.register("block")
    agent.add(pair.there.metadata())
    return address


def test_n06_shutdown_with_a_receipt_withheld(make_proxied_pair, start, probe):
    """N06: the agent is destroyed, in bounded time, with a WRITE held in the middle. Its engine
    goes on in quarantine: library, thread and memory stay, it says so once. The receipt ends it."""
    pair = make_proxied_pair(SIZE)
    for round_ in repeats(50):
        agent = start(f"leaver-{round_}", config=patient_config(**IMPATIENT), probe=probe)
        address = meet(agent, pair)
        request = agent.prepare("WRITE", [(address, SIZE)], pair.remote((0, SIZE)), "there", b"end")
        assert agent.run(request, b"warm") == "DONE"
        agent.fill("block", round_)
        before = pair.proxy.passed("bulk")
        pair.proxy.hold(SIZE // 2, lane="bulk")
        assert agent.post(request, b"end") == "PROC"
        pair.proxy.wait_passed(before + SIZE // 2, lane="bulk")
        agent.end_agent()
        # Whatever is done now in this process, nothing of it has ended.
        assert agent.engine_threads() == 1 and agent.bridge_is_mapped()
        assert agent.log().count("in quarantine") == 1
        assert "keeps 1 executions and 1 registrations" in agent.log()
        pair.proxy.open()
        assert until(lambda agent=agent: agent.engine_threads() == 0)
        sender = f"leaver-{round_}"
        assert pair.there.wait_notifications(2) == [(sender, b"warm"), (sender, b"end")]
        assert pair.there.content("block") == agent.content("block")
        assert agent.log().count("in quarantine") == 1
        assert agent.guards_intact() and agent.exit() == 0
        agent.close()
    assert pair.guards_intact()


def test_n06_process_ends_with_a_receipt_withheld(make_proxied_pair, start, probe):
    """N06: the interpreter ends with such an engine in it: no crash, no hang, and the target gives
    its own memory back."""
    pair = make_proxied_pair(SIZE)
    for round_ in repeats(50):
        agent = start(f"leaver-{round_}", config=patient_config(**IMPATIENT), probe=probe)
        address = meet(agent, pair)
        request = agent.prepare("WRITE", [(address, SIZE)], pair.remote((0, SIZE)), "there")
        assert agent.run(request) == "DONE"
        before = pair.proxy.passed("bulk")
        pair.proxy.hold(SIZE // 2, lane="bulk")
        assert agent.post(request) == "PROC"
        pair.proxy.wait_passed(before + SIZE // 2, lane="bulk")
        if round_ % 2 == 0:
            agent.end_agent()
        assert agent.exit() == 0
        agent.close()
        pair.proxy.open()
        assert until(lambda: pair.there.info()["registrations"]["loans"] == 0)
        assert until(lambda: pair.there.info()["served_lanes"] == 0)
    assert pair.guards_intact()


def test_n06_target_leaves_while_it_is_written_to(make_proxied_pair, start, probe):
    """N06: the target is destroyed with a frame half received: it waits its bounded time, stops
    receiving and only then gives the memory up. The writer's end is its FIN: an error, drained."""
    pair = make_proxied_pair(SIZE)
    for round_ in repeats(50):
        target = start(f"target-{round_}", probe=probe, config=patient_config(
            advertise={"addresses": ["127.0.0.1"], "port": pair.proxy.port}, **IMPATIENT))
        pair.proxy.target = int(target.info()["listen"].rpartition(":")[2])
        address = target.allocate("block", SIZE, round_)
        target.register("block")
        pair.here.add(target.metadata())
        request = pair.here.prepare("WRITE", pair.local((0, SIZE)), [(address, SIZE)], target.name)
        assert pair.here.run(request) == "DONE"
        handle = pair.here.last_request()
        pair.here.fill("block", round_)
        before = pair.proxy.passed("bulk")
        pair.proxy.hold(SIZE // 2, lane="bulk")
        assert pair.here.post(request) == "PROC"
        pair.proxy.wait_passed(before + SIZE // 2, lane="bulk")
        target.end_agent()
        assert target.engine_threads() == 0
        left = target.content("block")
        assert until(lambda handle=handle: pair.here.result(handle)["terminal"] == 1)
        assert pair.here.result(handle)["logical"] == 3
        pair.proxy.open()
        assert target.content("block") == left and target.guards_intact()
        pair.here.release(request)
        pair.here.remove(target.name)
        assert target.exit() == 0
        target.close()
    assert pair.guards_intact()
