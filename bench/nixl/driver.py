# SPDX-License-Identifier: Apache-2.0
"""Posts several requests of one process at a time."""

from __future__ import annotations

import gc
import time
from concurrent.futures import ThreadPoolExecutor

from endpoint import Endpoint
from stats import percentiles_us, transfers_within


class Stream:
    """One request, posted again and again, with the times of its transfers.

    The clock is one for all processes of a host.
    """

    def __init__(self, endpoint: Endpoint, handle: int):
        self._request = endpoint.handles[handle]
        self._transfer, self._check = endpoint.agent.transfer, endpoint.agent.check_xfer_state
        self.starts: list[int] = []
        self.ends: list[int] = []
        self._state = "DONE"

    def post(self) -> None:
        self.starts.append(time.monotonic_ns())
        self._state = self._transfer(self._request)
        self._note_end()

    def look(self) -> bool:
        """Whether the transfer is done, after one look at it."""
        if self._state == "PROC":
            self._state = self._check(self._request)
            self._note_end()
        return self._state == "DONE"

    def _note_end(self) -> None:
        if self._state == "DONE":
            self.ends.append(time.monotonic_ns())
        elif self._state != "PROC":
            raise RuntimeError(f"transfer ended in state {self._state}")

    def wait(self, nap_s: float) -> None:
        while not self.look():
            if nap_s > 0:
                time.sleep(nap_s)

    def times(self) -> list[int]:
        return [end - start for start, end in zip(self.starts, self.ends)]


def post_until(end_ns: int, timed: Stream, background: list[Stream], nap_s: float) -> None:
    """Posts `timed` until a transfer ends after that time, and keeps the others under way."""
    for other in background:
        other.post()
    while True:
        timed.post()
        timed.wait(nap_s)
        if timed.ends[-1] >= end_ns:
            break
        for other in background:
            if other.look():
                other.post()
    for other in background:
        other.wait(nap_s)


class Driver:
    def __init__(self, endpoint: Endpoint):
        self._endpoint = endpoint

    def drive(self, handles: list[int], background: list[int], begin_ns: int, end_ns: int,
              nap_s: float = 0.0):
        """Posts each request by a thread of its own from begin to end, but at least once.

        The first thread also keeps the background requests under way. Transfers of all threads are
        counted within the given time; their percentiles are over all that were made.
        """
        timed = [Stream(self._endpoint, handle) for handle in handles]
        others = [Stream(self._endpoint, handle) for handle in background]
        time.sleep(max(0, begin_ns - time.monotonic_ns()) / 1e9)
        gc.disable()
        try:
            self._run(timed, others, end_ns, nap_s)
        finally:
            gc.enable()

        def within(streams):
            return [transfers_within(one.starts, one.ends, begin_ns, end_ns) for one in streams]

        every = [duration for one in timed for duration in one.times()]
        return {"within": within(timed), "background_within": within(others),
                "made": [len(one.ends) for one in timed],
                "background_made": [len(one.ends) for one in others], **percentiles_us(every)}

    @staticmethod
    def _run(timed: list[Stream], others: list[Stream], end_ns: int, nap_s: float) -> None:
        if len(timed) == 1:
            post_until(end_ns, timed[0], others, nap_s)
            return
        with ThreadPoolExecutor(len(timed)) as pool:
            running = [pool.submit(post_until, end_ns, one, others if one is timed[0] else [],
                                   nap_s) for one in timed]
            for one in running:
                one.result()
