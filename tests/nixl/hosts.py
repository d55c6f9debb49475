# SPDX-License-Identifier: Apache-2.0
"""Network namespaces with a cable between them, made and removed by the test that uses them."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess

_numbers = itertools.count()


def ip(*arguments: str) -> str:
    return subprocess.run(["ip", *arguments], check=True, timeout=20, capture_output=True,
                          text=True).stdout


class Host:
    """A network namespace with one end of a cable, `cable0`, which is its default route."""

    def __init__(self, name: str):
        self.name = name

    def create(self) -> None:
        ip("netns", "add", self.name)
        self.run("link", "set", "lo", "up")

    def run(self, *arguments: str) -> str:
        return ip("-n", self.name, *arguments)

    def connect(self, addresses: list[str], gateways: list[str]) -> None:
        for address in addresses:
            flags = ["nodad"] if ":" in address else []
            self.run("address", "add", address, "dev", "cable0", *flags)
        self.run("link", "set", "cable0", "up")
        for gateway in gateways:
            self.run("route", "add", "default", "via", gateway, "dev", "cable0")

    def lose_what_goes_to(self, address: str) -> None:
        """From now on our frames to it bear an address of nobody, and are dropped at its end."""
        self.run("neighbor", "replace", address, "lladdr", "02:00:00:00:00:01", "dev", "cable0",
                 "nud", "permanent")

    def reach(self, address: str, host: Host) -> None:
        """Ends lose_what_goes_to."""
        link = json.loads(ip("-n", host.name, "-j", "link", "show", "cable0"))[0]
        self.run("neighbor", "replace", address, "lladdr", link["address"], "dev", "cable0",
                 "nud", "permanent")

    def received_bytes(self) -> int:
        link = json.loads(ip("-n", self.name, "-s", "-j", "link", "show", "cable0"))[0]
        return link["stats64"]["rx"]["bytes"]

    def connections(self) -> str:
        return subprocess.run(["ip", "netns", "exec", self.name, "ss", "-Htn"], check=True,
                              timeout=20, capture_output=True, text=True).stdout

    def remove(self) -> None:
        """Also of what was never created, or only in part."""
        subprocess.run(["ip", "netns", "delete", self.name], check=False, timeout=20,
                       capture_output=True)


@contextlib.contextmanager
def cables():
    """make(here, there): two hosts with these addresses on the ends of one cable."""
    hosts: list[Host] = []

    def make(here: list[str], there: list[str]) -> tuple[Host, Host]:
        number = f"{os.getpid()}-{next(_numbers)}"
        first, second = Host(f"orbite-a-{number}"), Host(f"orbite-b-{number}")
        hosts.extend((first, second))
        for host in (first, second):
            host.create()
        first.run("link", "add", "cable0", "type", "veth", "peer", "name", "cable0", "netns",
                  second.name)

        def gateways(addresses: list[str]) -> list[str]:
            return [addresses[0].split("/")[0]]

        first.connect(here, gateways(there))
        second.connect(there, gateways(here))
        return first, second

    try:
        yield make
    finally:
        for host in hosts:
            host.remove()
