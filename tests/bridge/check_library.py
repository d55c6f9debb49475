#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the built liborbite_nixl.so shows and needs.

`exports LIBRARY LIST`: its dynamic symbols are those of LIST and no others.
`needs LIBRARY`: it needs nothing but libc, libm, libstdc++ and libgcc, and finds all of them.
`soname LIBRARY NAME`: its SONAME is NAME.
"""

import re
import subprocess
import sys
from pathlib import Path

ALLOWED = re.compile(r"(linux-vdso|libc|libm|libstdc\+\+|libgcc_s|ld-linux[\w-]*)\.so\.\d+$")


def output_of(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def exports(library: str, expected: set[str]) -> list[str]:
    lines = output_of("nm", "-D", "--defined-only", library).splitlines()
    # A version node of the linker script is an absolute symbol of its own name.
    found = {line.split()[2].split("@")[0] for line in lines if line.split()[1] != "A"}
    return [f"exported but not listed: {name}" for name in sorted(found - expected)] + [
        f"listed but not exported: {name}" for name in sorted(expected - found)
    ]


def needs(library: str) -> list[str]:
    errors = []
    names = [line.split()[0] for line in output_of("ldd", library).splitlines()]
    for name in names:
        if ALLOWED.fullmatch(Path(name).name) is None:
            errors.append(f"needs {name}")
    if not any(Path(name).name.startswith("libstdc++.so") for name in names):
        errors.append(f"ldd does not list libstdc++, so it was misread: {names}")
    if "not found" in output_of("ldd", library):
        errors.append(output_of("ldd", library))
    return errors


def soname(library: str, expected: str) -> list[str]:
    found = re.search(r"SONAME.*\[(.*)\]", output_of("readelf", "-d", library))
    actual = found.group(1) if found else "none"
    return [] if actual == expected else [f"SONAME is {actual}, not {expected}"]


def main(arguments: list[str]) -> int:
    if len(arguments) == 3 and arguments[0] == "exports":
        errors = exports(arguments[1], set(Path(arguments[2]).read_text().split()))
    elif len(arguments) == 2 and arguments[0] == "needs":
        errors = needs(arguments[1])
    elif len(arguments) == 3 and arguments[0] == "soname":
        errors = soname(arguments[1], arguments[2])
    else:
        print(__doc__)
        return 2
    print("\n".join(errors) or "as it should be")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
