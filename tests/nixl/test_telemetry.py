# SPDX-License-Identifier: Apache-2.0
"""The numbers of an engine as Prometheus text, read through the C library by a foreign parser."""

from __future__ import annotations

import ctypes
import re
import time
from ctypes import POINTER, byref, c_char, c_char_p, c_int32, c_size_t, c_uint16, c_uint32, c_uint64
from ctypes import c_void_p
from dataclasses import dataclass

import pytest
from prometheus_client.parser import text_string_to_metric_families

import agents

LOOPBACK = (
    b'{"listen": {"address": "127.0.0.1"}, "advertise": {"addresses": ["127.0.0.1"]},'
    b' "cma": {"enabled": false}, "shm": {"enabled": false},'
    b' "tcp": {"connect_timeout_ms": 500, "bulk_lanes_per_peer": 1},'
    b' "limits": {"peers_max": 1, "requests_max": 8}}'
)
WRITE, READ = 1, 0
SUCCESS, FAILED = 1, 3
BUFFER_TOO_SMALL, BUDGET_EXHAUSTED = 109, 200
LONGEST_S = 30


class Record(ctypes.Structure):
    _fields_ = [("size", c_uint32), ("abi_major", c_uint16), ("abi_minor", c_uint16)]


class Headed(ctypes.Structure):
    def __init__(self, **fields):
        super().__init__(record=Record(ctypes.sizeof(self), 0, 2), **fields)


class Error(Headed):
    _fields_ = [("record", Record), ("status", c_int32), ("native_errno", c_int32),
                ("message", c_char * 400)]


class Options(Headed):
    _fields_ = [("record", Record), ("name", c_char_p), ("name_bytes", c_size_t),
                ("config", c_char_p), ("config_bytes", c_size_t)]


class Memory(Headed):
    _fields_ = [("record", Record), ("address", c_uint64), ("length", c_uint64),
                ("device_id", c_uint64), ("kind", c_uint32), ("access", c_uint32),
                ("retired", c_void_p), ("context", c_void_p)]


class Descriptor(ctypes.Structure):
    _fields_ = [("address", c_uint64), ("length", c_uint64), ("owner", c_uint64)]


class Prepare(Headed):
    _fields_ = [("record", Record), ("operation", c_uint32), ("reserved", c_uint32),
                ("peer", c_uint64), ("local", POINTER(Descriptor)), ("remote", POINTER(Descriptor)),
                ("count", c_size_t)]


class Result(Headed):
    _fields_ = [("record", Record), ("terminal", c_int32), ("logical", c_int32),
                ("drain", c_int32), ("effect", c_int32), ("status", c_int32),
                ("native_errno", c_int32), ("bytes_prefix", c_uint64), ("bytes_total", c_uint64),
                ("route", c_char * 16)]


@pytest.fixture(scope="module")
def library() -> ctypes.CDLL:
    return ctypes.CDLL(str(agents.PLUGIN_DIR / "liborbite_nixl.so"))


@dataclass
class Block:
    bytes: ctypes.Array
    registration: int


class Engine:
    """One engine and short forms of its calls, each of which must succeed."""

    def __init__(self, library: ctypes.CDLL, name: bytes):
        self._library = library
        self.error = Error()
        options = Options(name=name, name_bytes=len(name), config=LOOPBACK,
                          config_bytes=len(LOOPBACK))
        self.handle = c_uint64()
        self._name = name
        self._blocks: list[ctypes.Array] = []  # stay until the engine is released
        self._checked("engine_create", byref(options), byref(self.handle))

    def call(self, name: str, *arguments) -> int:
        return getattr(self._library, f"orbite_nixl_{name}")(*arguments, byref(self.error))

    def _checked(self, name: str, *arguments) -> None:
        assert self.call(name, *arguments) == 0, self.error.message

    def _made(self, name: str, *arguments) -> int:
        handle = c_uint64()
        self._checked(name, *arguments, byref(handle))
        return handle.value

    def _blob(self, name: str, *arguments) -> bytes:
        size = c_size_t(0)
        assert self.call(name, *arguments, None, byref(size)) == BUFFER_TOO_SMALL
        buffer = ctypes.create_string_buffer(size.value)
        self._checked(name, *arguments, buffer, byref(size))
        return buffer.raw[: size.value]

    def release(self) -> None:
        if self.handle.value != 0:
            self._checked("engine_release", self.handle)
            self.handle = c_uint64()

    def block(self, size: int) -> Block:
        block = (c_char * size)()
        self._blocks.append(block)
        memory = Memory(address=ctypes.addressof(block), length=size, access=7)
        return Block(block, self._made("memory_register", self.handle, byref(memory)))

    def export(self, block: Block) -> bytes:
        return self._blob("memory_export", self.handle, c_uint64(block.registration))

    def connection(self) -> bytes:
        return self._blob("peer_export", self.handle)

    def import_peer(self, other: Engine) -> int:
        blob = other.connection()
        return self._made("peer_import", self.handle, other._name, c_size_t(len(other._name)), blob,
                          c_size_t(len(blob)))

    def import_block(self, peer: int, blob: bytes, block: Block) -> int:
        return self._made("range_import", self.handle, c_uint64(peer), blob, c_size_t(len(blob)),
                          c_uint64(ctypes.addressof(block.bytes)),
                          c_uint64(ctypes.sizeof(block.bytes)))

    def prepare(self, operation: int, peer: int, size: int, here: Block, there: Block,
                there_range: int) -> int:
        local = Descriptor(ctypes.addressof(here.bytes), size, here.registration)
        remote = Descriptor(ctypes.addressof(there.bytes), size, there_range)
        prepare = Prepare(operation=operation, peer=peer, local=ctypes.pointer(local),
                          remote=ctypes.pointer(remote), count=1)
        return self._made("request_prepare", self.handle, byref(prepare))

    def run(self, request: int) -> int:
        """Posts, and drives to the end: the logical outcome."""
        result = Result()
        self._checked("request_post", self.handle, c_uint64(request), None, byref(result))
        end = time.monotonic() + LONGEST_S
        while not result.terminal:
            assert time.monotonic() < end
            self._checked("request_check", self.handle, c_uint64(request), byref(result))
        return result.logical

    def text(self) -> str:
        return self._blob("telemetry_text", self.handle).decode("ascii")


def documented() -> dict[str, tuple[str, str]]:
    """{name: (type, meaning)} of the page."""
    page = (agents.ROOT / "docs" / "telemetry.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| [^|]*\| ([^|]+) \|$", page, flags=re.M)
    return {name: (kind, meaning) for name, kind, meaning in rows}


class Scrape:
    def __init__(self, text: str):
        self.families = {}
        for family in text_string_to_metric_families(text):
            # The parser names a counter without its suffix.
            name = family.name + ("_total" if family.type == "counter" else "")
            assert name not in self.families, f"{name} is there twice"
            self.families[name] = family
        self.samples = [sample for family in self.families.values() for sample in family.samples]

    def value(self, name: str, **labels: str) -> float:
        found = [sample.value for sample in self.samples
                 if sample.name == name and labels.items() <= sample.labels.items()]
        assert len(found) == 1, (name, labels, found)
        return found[0]

    def total(self, name: str, **labels: str) -> float:
        return sum(sample.value for sample in self.samples
                   if sample.name == name and labels.items() <= sample.labels.items())


@pytest.fixture
def engines(library):
    made: list[Engine] = []

    def make(name: bytes) -> Engine:
        made.append(Engine(library, name))
        return made[-1]

    yield make
    for engine in made:
        engine.release()


SMALL, LARGE = 4096, 1 << 20


@pytest.fixture
def scraped(engines) -> tuple[Scrape, Scrape]:
    """A WRITE, three READs of another class, and a post to somebody who is gone."""
    here, there = engines(b'he\\re "1"\n\xc3\xbc'), engines(b"there")
    block, target = here.block(LARGE), there.block(LARGE)
    peer = here.import_peer(there)
    target_range = here.import_block(peer, there.export(target), target)
    write = here.prepare(WRITE, peer, SMALL, block, target, target_range)
    read = here.prepare(READ, peer, LARGE, block, target, target_range)
    assert here.run(write) == SUCCESS
    assert [here.run(read) for _ in range(3)] == [SUCCESS] * 3
    target_before = Scrape(there.text())
    assert here.call("peer_self", here.handle, byref(c_uint64())) == BUDGET_EXHAUSTED
    assert b"limits.peers_max" in here.error.message
    there.release()
    assert here.run(write) == FAILED
    return Scrape(here.text()), target_before


def test_the_text_holds_what_the_page_documents_and_nothing_else(scraped) -> None:
    here, _ = scraped
    shown = {name: (family.type, family.documentation) for name, family in here.families.items()}
    assert shown == documented()
    for name, (kind, _) in shown.items():
        assert re.fullmatch(r"orbite_[a-z_]+", name)
        assert name.endswith("_total") == (kind == "counter")


def test_every_sample_names_its_engine(scraped) -> None:
    here, there = scraped
    assert {sample.labels["engine"] for sample in here.samples} == {'he\\re "1"\n\\xc3\\xbc'}
    assert {sample.labels["engine"] for sample in there.samples} == {"there"}


def test_executions_are_counted_per_route_and_outcome(scraped) -> None:
    here, there = scraped
    writes = {"transport": "tcp", "operation": "write", "class": "latency"}
    reads = {"transport": "tcp", "operation": "read", "class": "bulk"}
    retired = "orbite_executions_retired_total"
    assert here.value("orbite_executions_posted_total", **writes) == 2
    assert here.value(retired, outcome="success", **writes) == 1
    assert here.value(retired, outcome="failed", **writes) == 1
    assert here.value(retired, outcome="canceled", **writes) == 0
    assert here.value("orbite_execution_bytes_total", **writes) == SMALL
    assert here.value("orbite_executions_failed_total", **writes) == 1
    assert here.value("orbite_executions_posted_total", **reads) == 3
    assert here.value(retired, outcome="success", **reads) == 3
    assert here.value("orbite_execution_bytes_total", **reads) == 3 * LARGE
    assert here.total("orbite_executions_posted_total") == 5
    assert here.total("orbite_executions_active") == 0
    assert here.total("orbite_executions_unquiesced") == 0
    assert here.total("orbite_unquiesced_bytes") == 0
    assert there.total("orbite_executions_posted_total") == 0


def test_latencies_are_a_histogram_in_seconds(scraped) -> None:
    here, _ = scraped
    route = {"transport": "tcp", "operation": "read", "class": "bulk"}
    buckets = [
        (float(sample.labels["le"]), sample.value) for sample in here.samples
        if sample.name == "orbite_execution_seconds_bucket"
        and route.items() <= sample.labels.items()
    ]
    bounds = [bound for bound, _ in buckets]
    counts = [count for _, count in buckets]
    assert bounds == sorted(set(bounds))
    assert bounds[0] == pytest.approx(1e-6)
    assert bounds[-1] == float("inf")
    assert counts == sorted(counts)
    assert counts[-1] == here.value("orbite_execution_seconds_count", **route) == 3
    total = here.value("orbite_execution_seconds_sum", **route)
    assert 0 < total < 3 * LONGEST_S
    # Each value lies below the bound of its bucket.
    last = next(bound for bound, count in buckets if count == 3)
    assert total <= 3 * last


def test_connections_frames_and_budgets_are_told(scraped) -> None:
    here, there = scraped
    assert here.value("orbite_lanes_connected_total") == 2
    assert here.value("orbite_lanes_failed_total") >= 1
    assert there.value("orbite_served_accepted_total") == 2
    assert there.value("orbite_served_lanes") == 2
    assert there.value("orbite_served_frames_total") >= 4
    assert there.value("orbite_served_rejected_total") == 0
    assert here.value("orbite_budget_max", budget="peers", key="limits.peers_max") == 1
    assert here.value("orbite_budget_used", budget="peers") == 1
    assert here.value("orbite_budget_refused_total", budget="peers") == 1
    assert here.value("orbite_budget_used", budget="requests") == 2
    assert here.value("orbite_budget_used", budget="bytes_in_flight") == 0
    assert there.value("orbite_budget_used", budget="served_lanes") == 2
    assert here.value("orbite_registered_bytes") == LARGE
    assert here.value("orbite_quarantined_bytes") == 0
