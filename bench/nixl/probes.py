# SPDX-License-Identifier: Apache-2.0
"""What a worker process measures about itself: CPU time, memory, sockets, registration."""

from __future__ import annotations

import os
import threading
import time

import numpy as np

from endpoint import Endpoint, resident_kib


class Probes:
    def __init__(self, endpoint: Endpoint):
        self._endpoint = endpoint

    def cpu(self, seconds: float):
        """CPU time, user and system, of all threads while this one waits."""
        waiting = threading.Event()
        wall, spent = time.monotonic_ns(), time.process_time_ns()
        waiting.wait(seconds)
        spent = time.process_time_ns() - spent
        wall = time.monotonic_ns() - wall
        return {"cpu_ns": spent, "wall_ns": wall, "threads": len(os.listdir("/proc/self/task"))}

    def memory(self):
        """Resident memory in KiB: before and after the backend was created, and now."""
        return {**self._endpoint.resident, "now": resident_kib()}

    def sockets(self):
        count = 0
        for name in os.listdir("/proc/self/fd"):
            try:
                count += os.readlink(f"/proc/self/fd/{name}").startswith("socket:")
            except OSError:  # the listing's own descriptor is gone by now
                continue
        return {"sockets": count}

    def register_many(self, count: int, size: int, gap: int):
        """Registers `count` ranges of one area in one call, and takes them back in one."""
        endpoint = self._endpoint
        area = np.zeros(count * (size + gap), dtype=np.uint8)
        table = np.zeros((count, 3), dtype=np.uint64)
        table[:, 0] = np.uint64(area.ctypes.data) + np.arange(count, dtype=np.uint64) * \
            np.uint64(size + gap)
        table[:, 1] = size
        ranges = endpoint.agent.get_reg_descs(table, "DRAM")
        use = [endpoint.backend]
        start = time.perf_counter_ns()
        endpoint.agent.register_memory(ranges, backends=use)
        registered = time.perf_counter_ns()
        endpoint.agent.deregister_memory(ranges, backends=use)
        return {"register_ns": registered - start,
                "deregister_ns": time.perf_counter_ns() - registered}
