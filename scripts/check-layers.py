#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the layer rule: a folder includes only itself and the folders before it.

usage: check-layers.py [ROOT]      exit 1 and one line for each violation
       check-layers.py --self-test plants each kind of violation and expects it to be reported
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

import tree_check

ROOMS = (
    "base platform config wire telemetry memory copy peer policy transfer notify transport engine"
).split()
SUFFIXES = {".h", ".hpp", ".c", ".cpp", ".def"}
INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)')
C_HEADER = "include/orbite/nixl.h"
SOUTHBOUND = "plugins/nixl/southbound"
# What NIXL's own tree calls the headers that a backend includes.
NIXL_HEADERS = {
    "nixl.h",
    "nixl_descriptors.h",
    "nixl_params.h",
    "nixl_types.h",
    "backend/backend_aux.h",
    "backend/backend_engine.h",
    "backend/backend_plugin.h",
    "backend_aux.h",
    "backend_engine.h",
    "backend_plugin.h",
    "common/nixl_log.h",
    "telemetry_event.h",
}


@dataclass(frozen=True)
class Include:
    file: str
    line: int
    name: str
    quoted: bool


def strip_comments(text: str) -> str:
    """Blanks comments, keeps line numbers. Strings that hold `//` do not occur in includes."""
    text = re.sub(r"/\*.*?\*/", lambda found: "\n" * found.group().count("\n"), text, flags=re.S)
    return re.sub(r"^\s*//.*$", "", text, flags=re.M)


def includes_of(root: Path, file: Path) -> list[Include]:
    found = []
    relative = file.relative_to(root).as_posix()
    for number, line in enumerate(strip_comments(file.read_text()).split("\n"), start=1):
        match = INCLUDE.match(line)
        if match:
            quoted = match.group(1) is not None
            found.append(Include(relative, number, match.group(1) or match.group(2), quoted))
    return found


def resolve(root: Path, include: Include) -> str | None:
    """Path of the included file below the root, or None when it is none of ours."""
    here = (root / include.file).parent
    places = [here] if include.quoted else []
    places += [root / "src", root / "include"]
    if include.file.startswith("plugins/nixl/"):
        places += [root / SOUTHBOUND, root / "plugins/nixl"]
    if include.file.startswith(("bridge/", "tests/", "tools/", "bench/", "sim/")):
        places += [root, root / "bridge"]
    if include.file.startswith("tests/"):
        places += [root / "tests", root / "tests/unit", root / SOUTHBOUND, root / "plugins/nixl"]
    if include.file.startswith("tools/"):
        places += [root / "tools/orbite"]
    for place in places:
        candidate = (place / include.name).resolve()
        if candidate.is_file() and candidate.is_relative_to(root):
            return candidate.relative_to(root).as_posix()
    return None


def is_nixl_header(name: str) -> bool:
    return name in NIXL_HEADERS or name.startswith(("nixl/", "backend/"))


def room_of(path: str) -> str | None:
    parts = path.split("/")
    return parts[1] if len(parts) > 2 and parts[0] == "src" else None


def check_src(include: Include, target: str | None) -> str | None:
    room = room_of(include.file)
    if room not in ROOMS:
        return f"'{room or include.file}' is no room; the rooms are: {' '.join(ROOMS)}"
    if target is None:
        return None
    if target == C_HEADER:
        return "the engine does not know the C ABI: only bridge, plugins and tests include it"
    if target.startswith("include/"):
        return None
    target_room = room_of(target)
    if target_room not in ROOMS:
        return f"a room includes only rooms and include/orbite, not {target}"
    if ROOMS.index(target_room) > ROOMS.index(room):
        return f"room '{room}' comes before '{target_room}' and must not include it"
    return check_siblings(include.file, target)


def check_siblings(file: str, target: str) -> str | None:
    """Transports know what lies directly in src/transport, and never one another."""
    prefix = "src/transport/"
    if not (file.startswith(prefix) and target.startswith(prefix)):
        return None
    source, other = file.split("/")[2:], target.split("/")[2:]
    if len(other) == 1 or source[0] == other[0]:
        return None
    who = f"transport '{source[0]}'" if len(source) > 1 else "the common part of the transports"
    return f"{who} must not include transport '{other[0]}'"


def check_public(include: Include, target: str | None) -> str | None:
    if target is not None and not target.startswith("include/orbite/"):
        return f"a public header includes only public headers, not {target}"
    return None


def check_bridge(include: Include, target: str | None) -> str | None:
    if target is not None and not target.startswith(("src/", "include/", "bridge/")):
        return f"the bridge includes only src, include/orbite and itself, not {target}"
    return None


def check_plugin(include: Include, target: str | None) -> str | None:
    if target is None or target == C_HEADER or target.startswith("plugins/nixl/"):
        return None
    return f"the plugin includes only orbite/nixl.h, itself and NIXL's headers, not {target}"


def check_include(root: Path, include: Include) -> str | None:
    target = resolve(root, include)
    in_plugin = include.file.startswith("plugins/nixl/")
    inside = include.file.startswith(("src/", "include/", "bridge/"))
    if inside and target is None and is_nixl_header(include.name):
        return f"NIXL's header '{include.name}' belongs to the plugin alone"
    if include.quoted and target is None and not (in_plugin and is_nixl_header(include.name)):
        return f'no file for #include "{include.name}" (system headers go in <>)'
    if inside and not include.quoted and target is not None:
        return f'<{include.name}> is a file of this project: write "{include.name}"'
    rules = {"src": check_src, "include": check_public, "bridge": check_bridge}
    rule = check_plugin if in_plugin else rules.get(include.file.split("/")[0])
    return rule(include, target) if rule else None


def check_tree(root: Path) -> tuple[list[str], int]:
    root = root.resolve()
    violations, count = [], 0
    for folder in ("include", "src", "bridge", "plugins", "sim", "tools", "tests", "bench"):
        for file in sorted((root / folder).rglob("*")):
            if file.suffix not in SUFFIXES or not file.is_file():
                continue
            count += 1
            for include in includes_of(root, file):
                message = check_include(root, include)
                if message:
                    violations.append(f"{include.file}:{include.line}: {message}")
    return violations, count


# file, its text, words that the report must hold (None: no report)
CASES: list[tuple[str, str, str | None]] = [
    ("src/base/good.hpp", "#include <vector>\n", None),
    ("src/wire/good.cpp", '#include "wire/good.hpp"\n#include "base/good.hpp"\n', None),
    ("src/wire/good.hpp", '#include "good.hpp"\n', None),
    ("src/base/upward.cpp", '\n#include "wire/good.hpp"\n', "upward.cpp:2: room 'base' comes"),
    ("src/base/commented.cpp", '// #include "wire/good.hpp"\n/*\n#include "x.hpp"\n*/\n', None),
    ("src/wire/missing.cpp", '#include "wire/none.hpp"\n', "missing.cpp:1: no file for"),
    ("src/wire/angled.cpp", "#include <base/good.hpp>\n", "angled.cpp:1: <base/good.hpp> is a"),
    ("src/lost/lost.cpp", "#include <vector>\n", "lost.cpp:1: 'lost' is no room"),
    ("src/transport/common.hpp", '#include "base/good.hpp"\n', None),
    ("src/transport/tcp/lane.hpp", '#include "transport/common.hpp"\n', None),
    ("src/transport/tcp/lane.cpp", '#include "transport/tcp/lane.hpp"\n', None),
    ("src/transport/shm/a.cpp", '#include "transport/tcp/lane.hpp"\n', "a.cpp:1: transport 'shm'"),
    ("src/transport/b.cpp", '#include "transport/tcp/lane.hpp"\n', "b.cpp:1: the common part"),
    ("src/engine/engine.cpp", '#include "transport/tcp/lane.hpp"\n', None),
    ("src/engine/native.cpp", "#include <nixl_types.h>\n", "native.cpp:1: NIXL's header"),
    ("src/engine/abi.cpp", '#include "orbite/nixl.h"\n', "abi.cpp:1: the engine does not know"),
    ("src/engine/up.cpp", '#include "../../bridge/table.hpp"\n', "up.cpp:1: a room includes only"),
    ("include/orbite/nixl.h", "#include <stdint.h>\n", None),
    ("include/orbite/error.hpp", '#include "orbite/error_codes.def"\n', None),
    ("include/orbite/error_codes.def", "X(1)\n", None),
    ("include/orbite/leak.hpp", '#include "base/good.hpp"\n', "leak.hpp:1: a public header"),
    ("bridge/table.hpp", '#include "engine/../base/good.hpp"\n#include "orbite/nixl.h"\n', None),
    ("bridge/real.cpp", '#include "backend/backend_engine.h"\n', "real.cpp:1: NIXL's header"),
    ("bridge/sim.cpp", '#include "sim/world.hpp"\n', "sim.cpp:1: the bridge includes only"),
    ("sim/world.hpp", '#include "base/good.hpp"\n', None),
    ("plugins/nixl/southbound/backend/backend_engine.h", "#include <string>\n", None),
    ("plugins/nixl/orbite/b.cpp", '#include "backend/backend_engine.h"\n', None),
    ("plugins/nixl/orbite/c.cpp", '#include "orbite/nixl.h"\n#include <orbite/nixl.h>\n', None),
    ("plugins/nixl/orbite/d.cpp", '#include "base/good.hpp"\n', "d.cpp:1: the plugin includes"),
    ("plugins/nixl/orbite/e.cpp", "#include <orbite/error.hpp>\n", "e.cpp:1: the plugin includes"),
    ("tests/unit/base/good_test.cpp", '#include "base/good.hpp"\n', None),
    ("tests/unit/base/bad_test.cpp", '#include "base/none.hpp"\n', "bad_test.cpp:1: no file for"),
]


if __name__ == "__main__":
    sys.exit(tree_check.main("check-layers", __doc__, check_tree, CASES))
