# SPDX-License-Identifier: Apache-2.0
"""How far a long measurement has come."""

from __future__ import annotations

import sys
import time


class Progress:
    """A bar on a terminal, a line for every tenth of the way elsewhere; both on stderr."""

    def __init__(self):
        self._total, self._done, self._start = 1, 0, time.monotonic()
        self._bar = None

    def start(self, total: int) -> None:
        self._total = total
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress as Bar, TextColumn, TimeElapsedColumn

            self._bar = Bar(TextColumn("{task.completed:.0f}/{task.total:.0f}"), BarColumn(),
                            TimeElapsedColumn(), TextColumn("{task.description}"),
                            console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task("", total=total)
            self._bar.start()

    def tick(self, text: str) -> None:
        """Says what starts now; what was said before is done."""
        if self._bar is not None:
            self._bar.update(self._task, completed=self._done, description=text)
        elif self._done * 10 // self._total != (self._done - 1) * 10 // self._total:
            elapsed = time.monotonic() - self._start
            print(f"[{self._done:4d}/{self._total}] {elapsed:5.0f} s  {text}", file=sys.stderr,
                  flush=True)
        self._done += 1

    def end(self) -> None:
        if self._bar is not None:
            self._bar.stop()
