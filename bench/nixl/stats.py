# SPDX-License-Identifier: Apache-2.0
"""Statistics over the starts and ends of transfers, in ns."""

from __future__ import annotations

import numpy as np

PERCENTILES = {"p50_us": 50, "p90_us": 90, "p99_us": 99, "p999_us": 99.9}


def transfers_within(starts: list[int], ends: list[int], begin: int, end: int) -> float:
    """How many transfers lie between begin and end; one that lies there in part counts in part."""
    first, last = np.asarray(starts, np.int64), np.asarray(ends, np.int64)
    inside = np.minimum(last, end) - np.maximum(first, begin)
    return float(np.sum(np.clip(inside, 0, None) / np.maximum(last - first, 1)))


def percentiles_us(times: list[int]) -> dict[str, float]:
    """Each is a time that was measured: of so few that none is above it, the longest."""
    found = np.percentile(np.asarray(times) / 1000, list(PERCENTILES.values()), method="higher")
    return dict(zip(PERCENTILES, map(float, found)))
