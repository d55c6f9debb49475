# SPDX-License-Identifier: Apache-2.0
"""One NIXL agent with one registered region, driven by the commands of worker.py."""

from __future__ import annotations

import ctypes
import gc
import os
import re
import socket
import struct
import sys
import time

import numpy as np

import nixl_cu12
from common import ROOT, Content, compare, parse_routes
from layouts import Layout, block_pairs

LENGTH = struct.Struct("!I")
METADATA_BYTES_MAX = 64 * 1024 * 1024
PEER_TIMEOUT_S = 20.0
ROUTES_SYMBOL = "orbite_nixl_process_routes"


def send_blob(channel: socket.socket, blob: bytes) -> None:
    channel.sendall(LENGTH.pack(len(blob)) + blob)


def receive_exactly(channel: socket.socket, length: int) -> bytes:
    parts = bytearray()
    while len(parts) < length:
        part = channel.recv(length - len(parts))
        if not part:
            raise ConnectionError("the peer process closed its channel")
        parts += part
    return bytes(parts)


def receive_blob(channel: socket.socket) -> bytes:
    (length,) = LENGTH.unpack(receive_exactly(channel, LENGTH.size))
    if length > METADATA_BYTES_MAX:
        raise ValueError(f"blob of {length} bytes; allowed: up to {METADATA_BYTES_MAX}")
    return receive_exactly(channel, length)


def resident_kib() -> dict[str, int]:
    """Resident memory of this process: all of it, and the part that is no file's."""
    with open("/proc/self/status", encoding="utf-8") as status:
        found = re.findall(r"(VmRSS|RssAnon):\s*(\d+) kB", status.read())
    return {name: int(value) for name, value in found}


def loaded_libraries() -> list[str]:
    with open("/proc/self/maps", encoding="utf-8") as maps:
        paths = re.findall(r"(/\S*(?:liborbite_nixl|libplugin_ORBITE)\S*)$", maps.read(), re.M)
    return sorted(set(paths))


def route_of(agent: nixl_cu12.nixl_agent, backend: str) -> dict:
    """How this process's transfers travelled: {"name": ..., "counts": transfers by transport}."""
    if backend not in agent.backends:
        return {"name": "none", "counts": {}}
    if backend != "ORBITE":
        kind = os.environ.get("UCX_TLS", "default") if backend == "UCX" else "default"
        return {"name": f"{backend.lower()} {kind}", "counts": {}}
    for path in loaded_libraries():
        try:
            function = getattr(ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_NOLOAD), ROUTES_SYMBOL)
        except (AttributeError, OSError):
            continue
        function.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
        function.restype = ctypes.c_int
        text = ctypes.create_string_buffer(1024)
        if function(text, len(text)) >= 0:
            return {"name": "orbite", "counts": parse_routes(text.value.decode("ascii", "replace"))}
    return {"name": "orbite (not reported)", "counts": {}}


def shared_region(region_bytes: int) -> np.ndarray:
    """Memory that the peer can map, made by the library that the plugin has loaded."""
    sys.path.insert(0, str(ROOT / "python"))
    import orbite

    return np.frombuffer(orbite.SharedMemory(region_bytes), dtype=np.uint8)


class Endpoint:
    """Everything that one process of a pair can be asked to do."""

    def __init__(self, peer_channel: socket.socket):
        self._channel = peer_channel
        self._channel.settimeout(PEER_TIMEOUT_S)
        self.agent: nixl_cu12.nixl_agent | None = None
        self.peer = ""
        self.handles: dict[int, object] = {}
        self.prepped: list[object] = []
        self.registered: list[object] = []
        self.inbox: list[tuple[str, bytes]] = []

    def open(self, name: str, backend: str, prog_thread: bool, region_bytes: int, seed: int,
             threaded: bool = False, shared: bool = False):
        """`threaded` is for an agent that several threads use at a time."""
        self.backend = backend
        self.content = Content(seed)
        if not shared:
            self.region = np.empty(region_bytes, dtype=np.uint8)
            self.content.fill(self.region, 0)
        sync = nixl_cu12.nixl_thread_sync_t.NIXL_THREAD_SYNC_RW if threaded else None
        config = nixl_cu12.nixl_agent_config(enable_prog_thread=prog_thread, backends=[],
                                             sync_mode=sync)
        self.agent = nixl_cu12.nixl_agent(name, config)
        if backend not in self.agent.get_plugin_list():
            raise RuntimeError(f"NIXL finds no plugin {backend}; it lists "
                               f"{', '.join(self.agent.get_plugin_list()) or 'none'}")
        without = resident_kib()
        start = time.perf_counter_ns()
        self.agent.create_backend(backend, {})
        created_ns = time.perf_counter_ns() - start
        self.resident = {"without_backend": without, "with_backend": resident_kib()}
        if shared:
            self.region = shared_region(region_bytes)
            self.content.fill(self.region, 0)
        if region_bytes > 0:
            self.register([(self.base, region_bytes, 0, "")])
        return {"create_backend_ns": created_ns}

    @property
    def base(self) -> int:
        return self.region.ctypes.data

    def register(self, ranges) -> None:
        registered = self.agent.register_memory(ranges, "DRAM", backends=[self.backend])
        self.registered.append(registered)

    def exchange(self):
        """Swaps agent metadata and the region's address with the peer process."""
        send_blob(self._channel, struct.pack("!Q", self.base))
        send_blob(self._channel, self.agent.get_agent_metadata())
        (self.peer_base,) = struct.unpack("!Q", receive_blob(self._channel))
        metadata = receive_blob(self._channel)
        name = self.agent.add_remote_agent(metadata)
        self.peer = name.decode() if isinstance(name, bytes) else name
        return {"peer": self.peer, "metadata_bytes": len(metadata)}

    def connect(self):
        """The agent's own call that connects ahead of the first transfer."""
        start = time.perf_counter_ns()
        self.agent.make_connection(self.peer, backends=[self.backend])
        return {"connect_ns": time.perf_counter_ns() - start}

    def fill(self, key: int, extent: int, at: int = 0):
        self.content.fill(self.region[at : at + extent], key)

    def descriptors(self, base: int, layout: Layout, indices: np.ndarray):
        table = np.empty((len(indices), 3), dtype=np.uint64)
        table[:, 0] = np.uint64(base) + layout.offsets()[indices]
        table[:, 1] = layout.size
        table[:, 2] = 0
        return self.agent.get_xfer_descs(table, "DRAM")

    def targets(self, to_self: bool, remote_at: int) -> tuple[str, int]:
        if to_self:
            return self.agent.name, self.base + remote_at
        return self.peer, self.peer_base + remote_at

    def prepare(self, op: str, layout: list, order: str = "straight", style: str = "list",
                to_self: bool = False, local_at: int = 0, remote_at: int = 0, notif: str = ""):
        """Makes a request; style "list" uses initialize_xfer, "prepped" make_prepped_xfer.

        The times are those of the agent's calls on ready descriptor lists.
        """
        layout = Layout(*layout)
        local_index, remote_index = block_pairs(layout, order)
        remote_name, remote_base = self.targets(to_self, remote_at)
        local_base = self.base + local_at
        message, use, times = bytes.fromhex(notif), [self.backend], {}
        if style == "prepped":
            every = np.arange(layout.count, dtype=np.int32)
            local = self.descriptors(local_base, layout, every)
            remote = self.descriptors(remote_base, layout, every)
            start = time.perf_counter_ns()
            local = self.agent.prep_xfer_dlist("NIXL_INIT_AGENT", local, backends=use)
            remote = self.agent.prep_xfer_dlist(remote_name, remote, backends=use)
            middle = time.perf_counter_ns()
            handle = self.agent.make_prepped_xfer(op, local, local_index, remote, remote_index,
                                                  message, backends=use)
            times = {"prep_xfer_dlist_ns": middle - start,
                     "make_prepped_xfer_ns": time.perf_counter_ns() - middle}
            self.prepped += [local, remote]
        else:
            local = self.descriptors(local_base, layout, local_index)
            remote = self.descriptors(remote_base, layout, remote_index)
            start = time.perf_counter_ns()
            handle = self.agent.initialize_xfer(op, local, remote, remote_name, message,
                                                backends=use)
            times = {"initialize_xfer_ns": time.perf_counter_ns() - start}
        number = max(self.handles, default=0) + 1
        self.handles[number] = handle
        return {"handle": number, **times}

    def measure(self, handle: int, budget_s: float, iters_min: int, iters_max: int,
                warm_s: float = 0.0):
        """Posts one request again and again; each time runs from the post to its DONE."""
        request = self.handles[handle]
        if warm_s > 0:
            self._timed(request, warm_s, 1, iters_max)
        gc.disable()
        try:
            posts, times = self._timed(request, budget_s, iters_min, iters_max)
        finally:
            gc.enable()
        return {"iterations": len(times), "total_ns": sum(times),
                "p50_ns": float(np.median(times)), "p99_ns": float(np.percentile(times, 99)),
                "min_ns": min(times), "post_p50_ns": float(np.median(posts))}

    def _timed(self, request, budget_s, iters_min, iters_max):
        transfer, check, now = self.agent.transfer, self.agent.check_xfer_state, \
            time.perf_counter_ns
        posts, times = [], []
        end = now() + int(budget_s * 1e9)
        while len(times) < iters_max and (len(times) < iters_min or now() < end):
            start = now()
            state = transfer(request)
            posted = now()
            while state == "PROC":
                state = check(request)
            times.append(now() - start)
            posts.append(posted - start)
            if state != "DONE":
                raise RuntimeError(f"transfer ended in state {state}")
        return posts, times

    def post(self, handle: int, notif: str = ""):
        """One post, outside of any measurement, with an optional notification."""
        request = self.handles[handle]
        start = time.perf_counter_ns()
        state = self.agent.transfer(request, bytes.fromhex(notif))
        posted_ns = time.perf_counter_ns() - start
        while state == "PROC":
            state = self.agent.check_xfer_state(request)
        if state != "DONE":
            raise RuntimeError(f"transfer ended in state {state}")
        return {"post_ns": posted_ns, "total_ns": time.perf_counter_ns() - start}

    def verify(self, layout: list, extent: int, key: int, at: int = 0, source: dict | None = None):
        """Compares an area with its model: what `key` filled, and over it the blocks of a source.

        `source` names the source side's key, the operation and the order of the request; without
        it the area must still be exactly what `key` filled.
        """
        layout = Layout(*layout)
        area = self.region[at : at + extent]
        model = self.content.make(extent, key)
        written = 0
        if source is not None:
            local, remote = block_pairs(layout, source["order"])
            take, put = (local, remote) if source["op"] == "WRITE" else (remote, local)
            origin = self.content.make(extent, source["key"])
            layout.copy(origin, take, model, put)
            written = len(put)
        return compare(area, model, layout, written)

    def release(self, handle: int):
        self.agent.release_xfer_handle(self.handles.pop(handle))
        for prepped in self.prepped:
            self.agent.release_dlist_handle(prepped)
        self.prepped.clear()

    def notify(self, to_self: bool, message: str):
        # Without its argument `backend`: in nixl-cu12 1.5.1 that one is passed on as a number where
        # the binding takes a list, so every call with it raises TypeError.
        name = self.agent.name if to_self else self.peer
        self.agent.send_notif(name, bytes.fromhex(message))

    def drain(self) -> None:
        for name, messages in self.agent.get_new_notifs().items():
            name = name.decode() if isinstance(name, bytes) else name
            self.inbox += [(name, message) for message in messages]

    def notifs(self, count: int, timeout_s: float):
        """Hands out what has arrived as soon as `count` notifications have, or time is up."""
        end = time.monotonic() + timeout_s
        self.drain()
        while len(self.inbox) < count and time.monotonic() < end:
            time.sleep(0.0005)
            self.drain()
        arrived, self.inbox = self.inbox, []
        return {"notifs": [[name, message.hex()] for name, message in arrived]}

    def routes(self):
        return route_of(self.agent, self.backend)

    def close(self):
        for number in list(self.handles):
            self.release(number)
        if self.peer:
            self.agent.remove_remote_agent(self.peer)
        for registered in self.registered:
            self.agent.deregister_memory(registered, backends=[self.backend])
        self.registered.clear()
        self.agent = None
        gc.collect()
