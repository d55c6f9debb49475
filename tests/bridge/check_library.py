#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the built liborbite_nixl.so shows and needs.

`exports LIBRARY LIST`: its dynamic symbols are those of LIST and no others.
`needs LIBRARY`: it needs nothing but libc, libm, libstdc++ and libgcc, and finds all of them.
`soname LIBRARY NAME`: its SONAME is NAME.
`guards LIBRARY`: no function of it initialises something of the process when it is first called. A
child of fork() would wait for ever for the thread of its parent that was just doing that.
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


def guards(library: str) -> list[str]:
    symbols = [line.split() for line in output_of("readelf", "-sW", library).splitlines()]
    symbols = [symbol for symbol in symbols if len(symbol) == 8]
    if not any("close_all_in_child" in symbol[7] for symbol in symbols):
        return ["its local symbols are not there, so nothing can be said"]
    return [
        f"initialised when first called: {output_of('c++filt', symbol[7]).strip()}"
        for symbol in symbols
        if symbol[7].startswith("_ZGV") and symbol[3] != "TLS"
    ]


def main(arguments: list[str]) -> int:
    if len(arguments) == 3 and arguments[0] == "exports":
        errors = exports(arguments[1], set(Path(arguments[2]).read_text().split()))
    elif len(arguments) == 2 and arguments[0] == "needs":
        errors = needs(arguments[1])
    elif len(arguments) == 3 and arguments[0] == "soname":
        errors = soname(arguments[1], arguments[2])
    elif len(arguments) == 2 and arguments[0] == "guards":
        errors = guards(arguments[1])
    else:
        print(__doc__)
        return 2
    print("\n".join(errors) or "as it should be")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
