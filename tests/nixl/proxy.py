# SPDX-License-Identifier: Apache-2.0
"""A stretch of cable between two processes on loopback that a test can pinch.

A Proxy forwards connections to one port of 127.0.0.1. A Gate says how many bytes may still pass in
one direction; what comes after them waits in the proxy, or in the sender's socket, until the gate
is opened. A connection's lane is known from the hello that it begins with.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
import time

LANES = {0: "latency", 1: "bulk", 2: "control"}
HELLO_BYTES_TO_LANE = 105
BUFFER_BYTES = 256 << 10
WAIT_S = 20.0


class Gate:
    """How many bytes may pass, for each lane that has a bound of its own, and for the others."""

    def __init__(self):
        self.allowed: dict[str, int | None] = {"": None}

    def room(self, lane: str) -> int:
        allowed = self.allowed.get(lane, self.allowed[""])
        return BUFFER_BYTES if allowed is None else allowed

    def spend(self, lane: str, size: int) -> None:
        key = lane if lane in self.allowed else ""
        if self.allowed[key] is not None:
            self.allowed[key] -= size


class Stream:
    """One direction of one connection."""

    def __init__(self, source: socket.socket, sink: socket.socket, gate: Gate):
        self.source, self.sink, self.gate = source, sink, gate
        self.waiting = b""
        self.passed = 0
        self.ended = False  # the source has sent its FIN
        self.closed = False  # and the sink has been told


class Connection:
    def __init__(self, client: socket.socket, server: socket.socket, proxy: Proxy):
        self.client, self.server = client, server
        self.to_target = Stream(client, server, proxy.to_target)
        self.to_caller = Stream(server, client, proxy.to_caller)
        self.streams = (self.to_target, self.to_caller)
        self.head = b""
        self.lane = ""

    def see(self, data: bytes) -> None:
        if not self.lane:
            self.head += data[: HELLO_BYTES_TO_LANE - len(self.head)]
            if len(self.head) == HELLO_BYTES_TO_LANE:
                self.lane = LANES[self.head[-1]]

    def close(self, reset: bool) -> None:
        for end in (self.client, self.server):
            if reset:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            end.close()


class Proxy:
    """Forwards what comes to `port` to `target`, a port that the test sets."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.listener.setblocking(False)
        self.port = self.listener.getsockname()[1]
        self.target = 0
        self.to_target, self.to_caller = Gate(), Gate()
        self.connections: list[Connection] = []
        self.lock = threading.Lock()
        self.bell, self.ear = socket.socketpair()
        self.running = True
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    # What a test does. A lane of "" is every lane without a bound of its own.

    def hold(self, after: int = 0, lane: str = "", answers: bool = False) -> None:
        """From now on `after` more bytes pass on these lanes: towards the target, or its answers.
        With a lane of "" connections that are still to come are held too."""
        with self.lock:
            (self.to_caller if answers else self.to_target).allowed[lane] = after

    def open(self) -> None:
        with self.lock:
            for gate in (self.to_target, self.to_caller):
                gate.allowed = {"": None}
        self.bell.send(b"x")

    def wake(self) -> None:
        """After a hold that lets more pass than the one before."""
        self.bell.send(b"x")

    def passed(self, lane: str = "", answers: bool = False) -> int:
        """Bytes that have passed on the connections that stand."""
        with self.lock:
            return sum((each.to_caller if answers else each.to_target).passed
                       for each in self.connections if lane in ("", each.lane))

    def wait_passed(self, count: int, lane: str = "", answers: bool = False) -> None:
        end = time.monotonic() + WAIT_S
        while self.passed(lane, answers) < count:
            assert time.monotonic() < end, f"{self.passed(lane, answers)} of {count} bytes passed"
            time.sleep(0.0005)

    def lanes(self) -> list[str]:
        with self.lock:
            return sorted(each.lane for each in self.connections)

    def reset(self, lane: str = "") -> int:
        """Ends connections with RST on both sides; how many."""
        with self.lock:
            chosen = [each for each in self.connections if lane in ("", each.lane)]
            for each in chosen:
                each.close(reset=True)
                self.connections.remove(each)
        self.bell.send(b"x")
        return len(chosen)

    def close(self) -> None:
        self.running = False
        self.bell.send(b"x")
        self.thread.join(WAIT_S)
        for each in self.connections:
            each.close(reset=True)
        for end in (self.listener, self.bell, self.ear):
            end.close()

    # The thread.

    def _run(self) -> None:
        while self.running:
            poll = select.poll()
            poll.register(self.listener, select.POLLIN)
            poll.register(self.ear, select.POLLIN)
            with self.lock:
                self._forward_all()
                wanted: dict[int, int] = {}
                for each in self.connections:
                    for stream in each.streams:
                        self._want(each, stream, wanted)
            for descriptor, events in wanted.items():
                poll.register(descriptor, events)
            ready = poll.poll(1000)
            if any(descriptor == self.ear.fileno() for descriptor, _ in ready):
                self.ear.recv(4096)
            if any(descriptor == self.listener.fileno() for descriptor, _ in ready):
                self._accept()

    @staticmethod
    def _want(each: Connection, stream: Stream, wanted: dict[int, int]) -> None:
        if not stream.ended and len(stream.waiting) < BUFFER_BYTES:
            wanted[stream.source.fileno()] = wanted.get(stream.source.fileno(), 0) | select.POLLIN
        if stream.waiting and stream.gate.room(each.lane) > 0:
            wanted[stream.sink.fileno()] = wanted.get(stream.sink.fileno(), 0) | select.POLLOUT

    def _accept(self) -> None:
        client, _ = self.listener.accept()
        try:
            server = socket.create_connection(("127.0.0.1", self.target), timeout=WAIT_S)
        except OSError:
            client.close()
            return
        for end in (client, server):
            end.setblocking(False)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self.lock:
            self.connections.append(Connection(client, server, self))

    def _forward_all(self) -> None:
        for each in list(self.connections):
            try:
                for stream in each.streams:
                    self._forward(each, stream)
            except OSError:
                each.close(reset=True)
                self.connections.remove(each)
                continue
            if all(stream.closed for stream in each.streams):
                each.close(reset=False)
                self.connections.remove(each)

    def _forward(self, each: Connection, stream: Stream) -> None:
        if not stream.ended and len(stream.waiting) < BUFFER_BYTES:
            with contextlib.suppress(BlockingIOError):
                data = stream.source.recv(BUFFER_BYTES - len(stream.waiting))
                stream.ended = not data
                stream.waiting += data
                if stream is each.to_target:
                    each.see(data)
        room = stream.gate.room(each.lane)
        if stream.waiting and room > 0:
            with contextlib.suppress(BlockingIOError):
                sent = stream.sink.send(stream.waiting[:room])
                stream.waiting = stream.waiting[sent:]
                stream.passed += sent
                stream.gate.spend(each.lane, sent)
        if stream.ended and not stream.waiting and not stream.closed:
            stream.sink.shutdown(socket.SHUT_WR)
            stream.closed = True
