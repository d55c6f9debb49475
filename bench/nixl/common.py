# SPDX-License-Identifier: Apache-2.0
"""Vocabulary of the NIXL demo and benchmark: content, variants, routes, medians."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import json
import os
import re
import statistics
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

# Before numpy, whose absence it explains.
from layouts import MIB, Layout

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
PLUGIN_DIR = ROOT / "build" / "nixl-plugins"
OPERATIONS = ("WRITE", "READ")
CONTENT_BASE_BYTES = 8 * MIB
WORD_MASK = (1 << 64) - 1


class SetupError(Exception):
    """Something that the person who started the program has to put right."""


def mix(value: int) -> int:
    """One step of splitmix64: spreads a small number over 64 bits."""
    value = (value + 0x9E3779B97F4A7C15) & WORD_MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & WORD_MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & WORD_MASK
    return value ^ (value >> 31)


class Content:
    """Seeded pseudo-random bytes: the same (seed, key, length) gives the same bytes anywhere.

    A base of random words is combined with a word of its own for each key and each chunk, so
    no two rounds, sides or chunks hold equal bytes at equal places.
    """

    def __init__(self, seed: int):
        words = CONTENT_BASE_BYTES // 8
        self._base = np.random.SFC64(seed).random_raw(words)

    def fill(self, area: np.ndarray, key: int) -> None:
        if len(area) % 8 != 0:
            raise ValueError(f"area of {len(area)} bytes; allowed: multiples of 8")
        words = area.view(np.uint64)
        for start in range(0, len(words), len(self._base)):
            chunk = words[start : start + len(self._base)]
            word = np.uint64(mix(mix(key) ^ start))
            np.bitwise_xor(self._base[: len(chunk)], word, out=chunk)

    def make(self, length: int, key: int) -> np.ndarray:
        area = np.empty(length, dtype=np.uint8)
        self.fill(area, key)
        return area


def compare(area: np.ndarray, model: np.ndarray, layout: Layout, written: int) -> dict:
    """Compares an area with its model; the guards are all bytes outside the layout's blocks."""
    result = {"bytes_verified": written * layout.size, "bytes_compared": len(area),
              "bytes_wrong": 0, "guards_intact": True, "ok": True}
    if np.array_equal(area, model):
        return result
    wrong = area != model
    total = int(np.count_nonzero(wrong))
    inside = int(np.count_nonzero(layout.blocks(wrong)))
    result.update(ok=False, bytes_wrong=total, guards_intact=total == inside,
                  bytes_verified=max(0, written * layout.size - inside),
                  first_wrong_offset=int(np.argmax(wrong)))
    return result


@dataclass(frozen=True)
class Variant:
    """One thing that is measured: a NIXL backend, its memory, and its processes' environment."""

    key: str
    label: str
    backend: str
    env: dict = field(default_factory=dict)
    # What every transfer to the peer must go by; None where the backend does not tell.
    route: str | None = None
    # Whether the regions are shared allocations, which processes of one host can map.
    shared: bool = False
    # Configuration of ORBITE's engines. Without any they are told nothing.
    settings: dict = field(default_factory=dict)

    @property
    def spins(self) -> bool:
        """Whether NIXL's progress thread spins on a core for this backend."""
        return self.backend == "UCX"


# Through sockets even between processes of one host.
TCP_ONLY = {"shm": {"enabled": False}, "cma": {"enabled": False}}
# With what each of ours is compared: like with like.
RIVALS = {"orbite-shm": "ucx", "orbite": "ucx", "orbite-tcp": "ucx-tcp"}


def orbite_over_tcp(key: str, label: str, plugin_dir: Path) -> Variant:
    return Variant(key, label, "ORBITE", {"NIXL_PLUGIN_DIR": str(plugin_dir)}, route="tcp",
                   settings=TCP_ONLY)


def ucx_over_tcp() -> str:
    """NIXL refuses transports that have nothing for GPUs where there is one."""
    return "tcp,cuda_copy" if Path("/dev/nvidiactl").exists() else "tcp"


def variants(plugin_dir: Path) -> dict[str, Variant]:
    ours, loopback = {"NIXL_PLUGIN_DIR": str(plugin_dir)}, {"UCX_NET_DEVICES": "lo"}
    every = (
        Variant("orbite-shm", "ORBITE SHM", "ORBITE", ours, route="shm", shared=True),
        Variant("orbite", "ORBITE CMA", "ORBITE", ours, route="cma"),
        Variant("ucx", "UCX default", "UCX", loopback),
        orbite_over_tcp("orbite-tcp", "ORBITE TCP", plugin_dir),
        Variant("ucx-tcp", "UCX tcp", "UCX", {"UCX_TLS": ucx_over_tcp(), **loopback}),
    )
    return {variant.key: variant for variant in every}


def compared(keys) -> list[tuple[str, str]]:
    """Ours and its rival, where both are among these variants."""
    return [(ours, rival) for ours, rival in RIVALS.items() if ours in keys and rival in keys]


def pick_variant(name: str, plugin_dir: Path) -> Variant:
    known = variants(plugin_dir)
    key = name.strip().lower()
    if key not in known:
        raise SetupError(f"unknown backend {name!r}; allowed: {', '.join(known)}")
    check_plugin(known[key], plugin_dir)
    return known[key]


def check_plugin(variant: Variant, plugin_dir: Path) -> None:
    if variant.backend != "ORBITE":
        return
    if not (plugin_dir / "libplugin_ORBITE.so").is_file():
        raise SetupError(f"no libplugin_ORBITE.so in {plugin_dir}: run 'make plugin' first")


def check_nixl() -> None:
    if importlib.util.find_spec("nixl_cu12") is None:
        raise SetupError("the Python package nixl-cu12 is not installed for this interpreter: "
                         "pip install --no-deps nixl-cu12==1.5.1")


@functools.cache
def scratch_dir() -> tempfile.TemporaryDirectory:
    """Removed when this process ends."""
    return tempfile.TemporaryDirectory(prefix="orbite-bench-")


def settings_file(settings: dict) -> Path:
    text = json.dumps(settings, sort_keys=True)
    name = hashlib.sha256(text.encode()).hexdigest()[:16]
    path = Path(scratch_dir().name) / f"{name}.json"
    path.write_text(text + "\n", encoding="utf-8")
    return path


def worker_env(variant: Variant) -> dict[str, str]:
    """The caller's environment without settings that would leak from one backend to another."""
    env = {name: value for name, value in os.environ.items()
           if name not in ("NIXL_PLUGIN_DIR", "ORBITE_CONFIG") and not name.startswith("UCX_")}
    env.update(variant.env)
    if variant.settings:
        env["ORBITE_CONFIG"] = str(settings_file(variant.settings))
    env.setdefault("UCX_LOG_LEVEL", "error")
    env["OMP_NUM_THREADS"] = "1"
    env["OPENBLAS_NUM_THREADS"] = "1"
    return env


def parse_routes(text: str) -> dict[str, int]:
    """'tcp:123,local:4' as a mapping from transport to number of transfers."""
    return {name: int(count) for name, count in re.findall(r"([\w-]+):(\d+)", text)}


def routes_used(before: dict, after: dict) -> dict[str, int]:
    """How many transfers went by each transport between two readings."""
    return {name: count - before.get(name, 0) for name, count in sorted(after.items())
            if count > before.get(name, 0)}


def route_name(before: dict, after: dict, fallback: str) -> str:
    """The transports whose count grew between two readings."""
    return "+".join(routes_used(before, after)) or fallback


def gigabytes_per_s(payload: int, total_ns: int) -> float:
    return payload / total_ns if total_ns > 0 else 0.0


def median(values) -> float | None:
    values = [value for value in values if value is not None]
    return statistics.median(values) if values else None


def ratio(top: float | None, bottom: float | None) -> float | None:
    return top / bottom if top is not None and bottom else None
