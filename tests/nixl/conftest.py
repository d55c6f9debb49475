# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

import agents
from agents import AgentProcess, config_json, neighbor_json
from hosts import cables
from proxy import Proxy


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


@pytest.fixture
def cable():
    """make(here, there): two hosts with these addresses on the ends of one cable."""
    with cables() as make:
        yield make


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

    def __init__(self, start, size: int, here_config: str | None = None,
                 there_config: str | None = None, shared: bool = False, **options):
        self.size = size
        self.here = start("here", config=here_config, **options)
        self.there = start("there", config=there_config, **options)
        self.here_address = self.here.allocate("block", size, 1, 0, shared)
        self.there_address = self.there.allocate("block", size, 2, 0, shared)
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


class Neighbors(Pair):
    """A pair that reaches each other's memory without a socket, by `route`: cma or shm."""

    def __init__(self, start, size: int, route: str, **options):
        super().__init__(start, size, here_config=neighbor_json(), there_config=neighbor_json(),
                         shared=route == "shm", **options)
        self.route = route
        self.here.connect("there")
        self.there.connect("here")


@pytest.fixture(params=["cma", "shm"])
def make_neighbors(start, request):
    return lambda size=1 << 16, **options: Neighbors(start, size, request.param, **options)


@pytest.fixture(params=["tcp", "cma", "shm"])
def make_any_pair(start, request):
    """Pairs by each transport between two processes."""
    def make(size: int = 1 << 16, **options):
        if request.param == "tcp":
            return Pair(start, size, **options)
        return Neighbors(start, size, request.param, **options)
    return make


# How long the cable is pinched is the test's affair, also on a machine that stands still. One bulk
# lane: what is held in the middle is then the whole transfer.
PATIENT = {"progress_timeout_ms": 600_000, "bulk_lanes_per_peer": 1}


def patient_config(**sections: dict) -> str:
    """As config_json; whoever waits in the middle of a frame waits for long."""
    return config_json(**(sections | {"tcp": PATIENT | sections.get("tcp", {})}))


class ProxiedPair(Pair):
    """A pair whose `here` reaches `there` through a proxy. The engines can be asked."""

    def __init__(self, start, probe: str, size: int, here: dict | None = None,
                 there: dict | None = None):
        self.proxy = Proxy()
        advertised = {"addresses": ["127.0.0.1"], "port": self.proxy.port}
        try:
            super().__init__(
                start, size, probe=probe, here_config=patient_config(**(here or {})),
                there_config=patient_config(**({"advertise": advertised} | (there or {}))))
        except BaseException:
            self.proxy.close()
            raise
        self.port = int(self.there.info()["listen"].rpartition(":")[2])
        self.proxy.target = self.port

    def prepare_whole(self, operation: str = "WRITE", notification: bytes = b"") -> int:
        whole = (0, self.size)
        return self.here.prepare(operation, self.local(whole), self.remote(whole), "there",
                                 notification)


@pytest.fixture
def make_proxied_pair(start, probe):
    """Pairs with a proxy; `here` and `there` are sections of their configurations."""
    made: list[ProxiedPair] = []

    def make(size: int = 1 << 20, **configs: dict) -> ProxiedPair:
        made.append(ProxiedPair(start, probe, size, **configs))
        return made[-1]

    yield make
    for pair in made:
        pair.proxy.close()


def repeats(count: int) -> range:
    """The rounds of a control that depends on timing; a long run makes more of them."""
    return range(count * int(os.environ.get("ORBITE_TEST_REPEATS", "1")))


def until(condition, seconds: float = 20.0) -> bool:
    """Whether the condition came true within that time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.001)
    return True


def accounts(info: dict) -> dict[str, int]:
    """What an engine has lent or charged, from its own account."""
    lent = ("requests", "descriptors", "bytes_in_flight", "outbox_bytes", "inbox_bytes")
    used = {name: info["budgets"][name]["used"] for name in lent}
    return used | {"loans": info["registrations"]["loans"], "slices": info["slices_out"]}
