# SPDX-License-Identifier: Apache-2.0
"""Where the blocks of a request lie."""

from __future__ import annotations

from dataclasses import astuple, dataclass

try:
    import numpy as np
except ImportError:
    raise SystemExit("the Python package numpy is not installed for this interpreter; "
                     "'make demo' and 'make bench' prepare one that has it") from None

KIB = 1024
MIB = 1024 * 1024
GAP_BYTES = 128
TAIL_GUARD_BYTES = 4096


@dataclass(frozen=True)
class Layout:
    """`count` blocks of `size` bytes, a guard gap before the first and after each run of them.

    Blocks of one run touch. After each group of runs a further gap lies, as between the tensors of
    a KV cache; `runs_per_group` 0 is one group of all.
    """

    count: int
    size: int
    gap: int = GAP_BYTES
    run: int = 1
    runs_per_group: int = 0
    group_gap: int = 0

    def __post_init__(self):
        whole = self.run * max(1, self.runs_per_group)
        if self.count < 1 or self.count % whole != 0:
            raise ValueError(f"count is {self.count}; allowed: positive multiples of {whole}")

    @property
    def stride(self) -> int:
        """Bytes from one run to the next of its group."""
        return self.run * self.size + self.gap

    @property
    def _runs(self) -> int:
        return self.runs_per_group or self.count // self.run

    @property
    def _groups(self) -> int:
        return self.count // (self.run * self._runs)

    @property
    def _group_stride(self) -> int:
        return self._runs * self.stride + self.group_gap

    @property
    def payload(self) -> int:
        return self.count * self.size

    @property
    def span(self) -> int:
        return self.gap + self._groups * self._group_stride

    @property
    def extent(self) -> int:
        """Bytes that are filled and compared: the span and a tail guard."""
        return self.span + TAIL_GUARD_BYTES

    @property
    def name(self) -> str:
        unit, text = (MIB, "MiB") if self.size % MIB == 0 else (KIB, "KiB")
        return f"{self.count} x {self.size // unit} {text}"

    def _places(self, indices: np.ndarray) -> tuple[np.ndarray, ...]:
        """Group, run of the group and block of the run of these blocks."""
        return np.unravel_index(indices, (self._groups, self._runs, self.run))

    def offsets(self) -> np.ndarray:
        group, run, block = self._places(np.arange(self.count))
        found = self.gap + group * self._group_stride + run * self.stride + block * self.size
        return found.astype(np.uint64)

    def blocks(self, area: np.ndarray) -> np.ndarray:
        """The blocks of an area as a writable view: group, run, block of the run, byte."""
        groups = area[self.gap : self.span].reshape(self._groups, self._group_stride)
        runs = groups[:, : self._runs * self.stride].reshape(self._groups, self._runs, self.stride)
        return runs[:, :, : self.run * self.size].reshape(self._groups, self._runs, self.run,
                                                          self.size)

    def copy(self, origin: np.ndarray, take: np.ndarray, area: np.ndarray,
             put: np.ndarray) -> None:
        """What a request does to the bytes: blocks `take` of one area to `put` of another."""
        self.blocks(area)[self._places(put)] = self.blocks(origin)[self._places(take)]


def shape(layout: Layout) -> list[int]:
    """A layout as it goes to a worker."""
    return list(astuple(layout))


WORKLOADS = {
    "1x4KiB": Layout(1, 4 * KIB),
    "1x64KiB": Layout(1, 64 * KIB),
    "1x64MiB": Layout(1, 64 * MIB),
    "1024x64KiB": Layout(1024, 64 * KIB),
    "4096x4KiB": Layout(4096, 4 * KIB),
    "256x256KiB": Layout(256, 256 * KIB),
}
LATENCY_WORKLOAD = "1x4KiB"

KV_LAYERS = 60
KV_BLOCKS = 16
KV_GROUP_GAP_BLOCKS = 8


def kv_cache(block_bytes: int, blocks: int = KV_BLOCKS, layers: int = KV_LAYERS) -> Layout:
    """Every second block of `blocks` in each of the tensors K and V of all layers."""
    tensors = 2 * layers
    return Layout(tensors * blocks, block_bytes, gap=block_bytes, runs_per_group=blocks,
                  group_gap=KV_GROUP_GAP_BLOCKS * block_bytes)


def adjacent(count: int, size: int, percent: int) -> Layout:
    """Blocks of which that share follows its predecessor without a gap."""
    if not 0 <= percent < 100 or 100 % (100 - percent) != 0:
        raise ValueError(f"percent is {percent}; allowed: those whose rest divides 100")
    return Layout(count, size, run=100 // (100 - percent))


def region_bytes_for(layouts) -> int:
    return max(layout.extent for layout in layouts)


def block_pairs(layout: Layout, order: str) -> tuple[np.ndarray, np.ndarray]:
    """Local and remote block indices of one request; both processes compute the same ones.

    straight: block i to block i; shuffle: every block, scattered; half: every second local
    block to scattered remote places.
    """
    every = np.arange(layout.count, dtype=np.int32)
    if order == "straight":
        return every, every
    scattered = np.random.default_rng(layout.count).permutation(layout.count).astype(np.int32)
    if order == "shuffle":
        return every, scattered
    if order == "half":
        return every[::2].copy(), scattered[: len(every[::2])].copy()
    raise ValueError(f"order is {order!r}; allowed: straight, shuffle, half")
