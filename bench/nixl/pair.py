# SPDX-License-Identifier: Apache-2.0
"""Two worker processes with one NIXL agent each, and a bounded wait for every answer."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import Variant, worker_env

WORKER = Path(__file__).resolve().with_name("worker.py")
CALL_TIMEOUT_S = 30.0
CLOSE_TIMEOUT_S = 10.0
LOG_TAIL_BYTES = 6000
LOG_TAIL_LINES = 3


class WorkerFailed(Exception):
    """A worker answered with an error, died, or did not answer in time."""


class Worker:
    def __init__(self, name: str, env: dict[str, str], peer: socket.socket,
                 namespace: str | None = None):
        self.name = name
        self._log = tempfile.TemporaryFile()
        self._control, theirs = socket.socketpair()
        numbers = [theirs.fileno(), peer.fileno()]
        # `ip netns exec` becomes the worker, so the process is the worker's.
        prefix = ["ip", "netns", "exec", namespace] if namespace else []
        self.process = subprocess.Popen(
            [*prefix, sys.executable, str(WORKER), *map(str, numbers)], env=env, pass_fds=numbers,
            stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log)
        theirs.close()
        self._pending = b""

    def send(self, call: str, args: dict) -> None:
        try:
            self._control.sendall(json.dumps({"call": call, "args": args}).encode() + b"\n")
        except OSError as error:
            raise WorkerFailed(f"{self.name} {call}: {error}; {self.log_tail()}") from error

    def receive(self, call: str, timeout_s: float):
        end = time.monotonic() + timeout_s
        while b"\n" not in self._pending:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self._control], [], [], left)[0]:
                raise WorkerFailed(f"{self.name} {call}: no answer in {timeout_s:g} s")
            try:
                part = self._control.recv(1 << 16)
            except OSError:
                part = b""
            if not part:
                raise WorkerFailed(f"{self.name} {call}: the process ended; {self.log_tail()}")
            self._pending += part
        line, self._pending = self._pending.split(b"\n", 1)
        reply = json.loads(line)
        if "error" in reply:
            raise WorkerFailed(f"{self.name} {call}: {reply['error']}; {self.log_tail()}")
        return reply["result"]

    def log_tail(self) -> str:
        """The last lines that NIXL and its backends wrote; Python's own traces are left out."""
        size = os.fstat(self._log.fileno()).st_size
        tail = os.pread(self._log.fileno(), LOG_TAIL_BYTES, max(0, size - LOG_TAIL_BYTES))
        lines = [line for line in tail.decode(errors="replace").splitlines()
                 if line.strip() and not line.startswith((" ", "Traceback", "nixl_cu12._bind"))]
        return "its output ends: " + " | ".join(lines[-LOG_TAIL_LINES:])

    def end(self, timeout_s: float) -> int:
        """Closes the control channel and gives the exit status; kills what does not end."""
        self._control.close()
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()

    def discard(self) -> None:
        self._control.close()
        self._log.close()


class Pair:
    """Two connected agents, "a" and "b", of one variant."""

    def __init__(self, variant: Variant, region_bytes: int, seed: int = 1,
                 prog_thread: tuple[bool, bool] = (True, True), label: str = "pair",
                 region_bytes_b: int | None = None, threaded: bool = False,
                 namespaces: tuple[str | None, str | None] = (None, None)):
        self.variant = variant
        self.stoppable = variant.spins and any(prog_thread)
        ends = socket.socketpair()
        self.workers = {}
        try:
            for side, end, namespace in zip("ab", ends, namespaces):
                self.workers[side] = Worker(f"{variant.label} {side}", worker_env(variant), end,
                                            namespace)
            sizes = (region_bytes, region_bytes if region_bytes_b is None else region_bytes_b)
            options = [{"name": f"{label}-{side}", "backend": variant.backend, "seed": seed,
                        "region_bytes": size, "prog_thread": thread, "threaded": threaded,
                        "shared": variant.shared}
                       for side, size, thread in zip("ab", sizes, prog_thread)]
            self.opened = self.both("open", *options)
            self.exchanged = self.both("exchange")
        except BaseException:
            self.kill()
            raise
        finally:
            for end in ends:
                end.close()

    def call(self, side: str, name: str, wait_s: float = CALL_TIMEOUT_S, **args):
        self.workers[side].send(name, args)
        return self.workers[side].receive(name, wait_s)

    def both(self, name: str, args_a: dict | None = None, args_b: dict | None = None,
             wait_s: float = CALL_TIMEOUT_S) -> list:
        """The same command to both at once; the answers in the order a, b."""
        self.workers["a"].send(name, args_a or {})
        self.workers["b"].send(name, (args_a if args_b is None else args_b) or {})
        return [self.workers[side].receive(name, wait_s) for side in "ab"]

    def stop(self) -> None:
        """Takes a pair whose agents spin even when idle off the cores."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        if self.stoppable:
            for worker in self.workers.values():
                worker.process.send_signal(number)

    def close(self) -> None:
        """Orderly end of both agents. Raises WorkerFailed if one hangs or does not end with 0."""
        try:
            self.both("close", wait_s=CLOSE_TIMEOUT_S)
            for worker in self.workers.values():
                status = worker.end(CLOSE_TIMEOUT_S)
                if status != 0:
                    raise WorkerFailed(f"{worker.name} ended with status {status}; "
                                       f"{worker.log_tail()}")
        finally:
            self.kill()

    def end(self) -> None:
        """close() of a pair that may be stopped."""
        self.resume()
        self.close()

    def kill(self) -> None:
        for worker in self.workers.values():
            if worker.process.poll() is None:
                worker.process.kill()
                worker.process.wait()
            worker.discard()

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if kind is None:
            self.close()
        else:
            self.kill()
