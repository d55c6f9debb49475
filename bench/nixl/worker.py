# SPDX-License-Identifier: Apache-2.0
"""A process with one NIXL agent. Not for use by hand: demo.py and bench.py start it.

    worker.py CONTROL_FD PEER_FD

Commands come as JSON lines {"call": name, "args": {...}} over the control socket; each is
answered by one line, {"result": ...} or {"error": ...}. The peer socket carries metadata between
the two processes of a pair. The process ends when the control socket closes.
"""

from __future__ import annotations

import ctypes
import json
import select
import signal
import socket
import sys
import traceback

from driver import Driver
from endpoint import Endpoint
from probes import Probes

PR_SET_PDEATHSIG = 1
POLLS_BETWEEN_LOOKS = 64


class Worker:
    def __init__(self, control: socket.socket, peer: socket.socket):
        self._control = control
        self._lines = control.makefile("rb")
        self._poll = False
        self._endpoint = Endpoint(peer)
        self._probes = Probes(self._endpoint)
        self._driver = Driver(self._endpoint)

    def rest(self):
        """Nothing; but a target that spins stops it, since a command has come."""
        return {}

    def poll(self):
        """Spins on the agent until the next command arrives, as a polled target does."""
        self._poll = True

    def drive_then_poll(self, **arguments):
        """drive(), and from its answer on poll()."""
        self._poll = True
        return self._driver.drive(**arguments)

    def _spin(self) -> None:
        ready = select.poll()
        ready.register(self._control, select.POLLIN)
        drain = self._endpoint.drain
        while not ready.poll(0):
            for _ in range(POLLS_BETWEEN_LOOKS):
                drain()

    def _find(self, name: str):
        for owner in (self, self._endpoint, self._probes, self._driver):
            method = getattr(owner, name, None)
            if method is not None and not name.startswith("_"):
                return method
        raise ValueError(f"unknown command {name!r}")

    def answer(self, line: bytes) -> None:
        try:
            request = json.loads(line)
            reply = {"result": self._find(request["call"])(**request.get("args", {}))}
        except Exception as error:  # every failure is the answer, not the end of the process
            traceback.print_exc()
            first = (str(error).splitlines() or [""])[0]
            reply = {"error": f"{type(error).__name__}: {first}"}
        self._control.sendall(json.dumps(reply).encode() + b"\n")

    def serve(self) -> None:
        while True:
            if self._poll:
                self._spin()
                self._poll = False
            line = self._lines.readline()
            if not line:
                return
            self.answer(line)


def main() -> int:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    control, peer = (socket.socket(fileno=int(number)) for number in sys.argv[1:3])
    Worker(control, peer).serve()
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    sys.exit(main())
