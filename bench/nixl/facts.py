# SPDX-License-Identifier: Apache-2.0
"""Facts about the machine and what is measured on it, and tables of it. Needs no other package."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import re
from pathlib import Path

def read_text(path: str, default: str = "unknown") -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return default


def machine_facts() -> dict:
    model = re.search(r"model name\s*:\s*(.+)", read_text("/proc/cpuinfo", ""))
    memory = re.search(r"MemTotal:\s*(\d+) kB", read_text("/proc/meminfo", ""))
    system = re.search(r'PRETTY_NAME="(.+)"', read_text("/etc/os-release", ""))
    return {
        "cpu": model.group(1) if model else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_mib": int(memory.group(1)) // 1024 if memory else None,
        "kernel": platform.release(),
        "system": system.group(1) if system else platform.system(),
        "tcp_congestion_control": read_text("/proc/sys/net/ipv4/tcp_congestion_control"),
        "load_average": list(os.getloadavg()),
    }


def version_facts() -> dict:
    def version(package: str) -> str | None:
        try:
            return importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            return None

    packages = ("nixl-cu12", "numpy", "matplotlib", "rich")
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}


def library_facts(plugin_dir: Path) -> dict:
    """SHA-256 of the measured libraries, so that a figure can be traced to its build."""
    names = ("libplugin_ORBITE.so", "liborbite_nixl.so")
    return {name: hashlib.sha256((plugin_dir / name).read_bytes()).hexdigest()
            for name in names if (plugin_dir / name).is_file()}


def write_table(title: str, columns: list[str], rows: list[list[str]], stream) -> None:
    """A rich table on a terminal, aligned plain text elsewhere."""
    if stream.isatty() and importlib.util.find_spec("rich") is not None:
        from rich.console import Console
        from rich.table import Table

        table = Table(title=title)
        for index, column in enumerate(columns):
            table.add_column(column, justify="left" if index == 0 else "right")
        for row in rows:
            table.add_row(*row)
        Console(file=stream).print(table)
        return
    widths = [max(len(row[index]) for row in [columns, *rows]) for index in range(len(columns))]
    print(f"\n{title}", file=stream)
    for row in [columns, ["-" * width for width in widths], *rows]:
        cells = [text.ljust(width) if index == 0 else text.rjust(width)
                 for index, (text, width) in enumerate(zip(row, widths))]
        print("  ".join(cells).rstrip(), file=stream)
    stream.flush()
