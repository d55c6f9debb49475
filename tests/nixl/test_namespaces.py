# SPDX-License-Identifier: Apache-2.0
"""Two hosts: agents in two network namespaces with a cable between them.

The namespaces and the cable are made here and removed here; nothing else is sent to.
"""

from __future__ import annotations

import json

import pytest

from hosts import Host

SIZE = 8 << 20


def introduce(start, first: Host, second: Host, here_config: dict, there_config: dict):
    here = start("here", namespace=first.name, config=json.dumps(here_config))
    there = start("there", namespace=second.name, config=json.dumps(there_config))
    addresses = []
    for agent, seed in ((here, 1), (there, 2)):
        addresses.append(agent.allocate("block", SIZE, seed))
        agent.register("block")
    here.add(there.metadata())
    there.add(here.metadata())
    return here, there, *addresses


def move_both_ways(here, there, here_address: int, there_address: int) -> None:
    half = SIZE // 2
    assert here.transfer("WRITE", [(here_address, half)], [(there_address, half)],
                         "there") == "DONE"
    assert there.content("block")[:half] == here.content("block")[:half]
    assert here.transfer("READ", [(here_address + half, half)], [(there_address + half, half)],
                         "there") == "DONE"
    assert there.content("block")[half:] == here.content("block")[half:]
    there.notify("here", b"done\0")
    assert here.wait_notifications(1) == [("there", b"done\0")]
    assert here.guards_intact() and there.guards_intact()


@pytest.mark.parametrize(("here_address", "there_address"),
                         [("10.231.7.1/24", "10.231.7.2/24"), ("fd42:7::1/64", "fd42:7::2/64")],
                         ids=["ipv4", "ipv6"])
def test_no_settings_reach_a_peer_on_another_host(start, cable, here_address, there_address):
    """The default advertises the addresses of the default route's interface."""
    first, second = cable([here_address], [there_address])
    here, there, *addresses = introduce(start, first, second, {}, {})
    move_both_ways(here, there, *addresses)
    assert first.received_bytes() > SIZE // 2
    assert second.received_bytes() > SIZE // 2
    assert here.routes() == {"tcp": 2}


def test_peers_of_one_namespace_use_loopback_and_no_interface(start, cable):
    first, second = cable(["10.231.8.1/24"], ["10.231.8.2/24"])
    before = first.received_bytes()
    here, there, *addresses = introduce(start, first, first, {}, {})
    move_both_ways(here, there, *addresses)
    assert first.received_bytes() - before < 100_000
    assert "10.231.8." not in first.connections()
    assert second.received_bytes() < 100_000


def test_listen_address_port_range_and_source_address_are_kept(start, cable):
    first, second = cable(["10.231.9.1/24", "10.231.9.11/24"], ["10.231.9.2/24", "10.231.9.12/24"])
    here, there, *addresses = introduce(
        start, first, second,
        {"tcp": {"source_address": "10.231.9.11"}},
        {"listen": {"address": "10.231.9.12", "port": 17000, "port_max": 17003}})
    half = SIZE // 2
    assert here.transfer("WRITE", [(addresses[0], half)], [(addresses[1], half)], "there") == "DONE"
    outgoing = [line.split()[3:5] for line in first.connections().splitlines()]
    assert outgoing
    for local, remote in outgoing:
        assert local.rpartition(":")[0] == "10.231.9.11"
        address, _, port = remote.rpartition(":")
        assert address == "10.231.9.12"
        assert 17000 <= int(port) <= 17003


def test_advertised_address_is_what_peers_connect_to(start, cable):
    first, second = cable(["10.231.10.1/24"], ["10.231.10.2/24", "10.231.10.22/24"])
    here, there, *addresses = introduce(start, first, second, {},
                                        {"advertise": {"addresses": ["10.231.10.22"]}})
    assert here.transfer("READ", [(addresses[0], SIZE)], [(addresses[1], SIZE)], "there") == "DONE"
    assert here.content("block") == there.content("block")
    assert "10.231.10.22:" in first.connections()
    assert "10.231.10.2:" not in first.connections()
