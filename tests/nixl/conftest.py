# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

import agents
from agents import AgentProcess, config_json


def pytest_sessionstart(session):
    """Everything here needs the plugin, so its absence is one message and not many failures."""
    for name in ("libplugin_ORBITE.so", "liborbite_nixl.so"):
        if not (agents.PLUGIN_DIR / name).exists():
            raise pytest.UsageError(f"{agents.PLUGIN_DIR / name} is missing: run `make plugin`")


@pytest.fixture
def start():
    """Starts agent processes and ends them after the test, however it goes."""
    started: list[AgentProcess] = []

    def start_agent(name: str, create: bool = True, config: str | None = None, **options):
        process = AgentProcess(name, **options)
        started.append(process)
        if create:
            process.create({"config": config_json() if config is None else config})
        return process

    yield start_agent
    for process in started:
        process.close()


@pytest.fixture(scope="session")
def compile_library(tmp_path_factory):
    """Compiles a C source into a shared library for a test."""

    def compile_one(source: Path, name: str, *flags: str) -> Path:
        target = tmp_path_factory.mktemp("library") / name
        command = [os.environ.get("CC", "cc"), "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1",
                   "-fPIC", "-shared", f"-I{agents.ROOT / 'include'}", "-o", str(target),
                   str(source), *flags]
        subprocess.run(command, check=True, timeout=60)
        return target

    return compile_one


@pytest.fixture(scope="session")
def probe(compile_library):
    """The path of the library by which an agent's process can show the accounts of its engine."""
    source = Path(__file__).parent / "probe" / "engine_probe.c"
    return str(compile_library(source, "libengine_probe.so", "-ldl"))


class Pair:
    """Two agents in two processes that know each other, with a block of memory each."""

    def __init__(self, start, size: int, **options):
        self.size = size
        self.here = start("here", **options)
        self.there = start("there", **options)
        self.here_address = self.here.allocate("block", size, 1)
        self.there_address = self.there.allocate("block", size, 2)
        for agent in (self.here, self.there):
            agent.register("block")
        self.here.add(self.there.metadata())
        self.there.add(self.here.metadata())

    def local(self, *parts: tuple[int, int]) -> list[tuple[int, int]]:
        return [(self.here_address + offset, size) for offset, size in parts]

    def remote(self, *parts: tuple[int, int]) -> list[tuple[int, int]]:
        return [(self.there_address + offset, size) for offset, size in parts]

    def guards_intact(self) -> bool:
        return self.here.guards_intact() and self.there.guards_intact()


@pytest.fixture
def make_pair(start):
    return lambda size=1 << 16, **options: Pair(start, size, **options)


def accounts(info: dict) -> dict[str, int]:
    """What an engine has lent or charged, from its own account."""
    lent = ("requests", "descriptors", "bytes_in_flight", "outbox_bytes", "inbox_bytes")
    used = {name: info["budgets"][name]["used"] for name in lent}
    return used | {"loans": info["registrations"]["loans"], "slices": info["slices_out"]}
