#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The layout of include/orbite/nixl.h, as a C compiler sees it.

`generate HEADER` prints a C program that prints the layout: every macro and enumerator with its
value, every type with its size, every field with its offset, every function with its signature.
`compare HEADER PROGRAM MANIFEST EXPORTS` runs the compiled program and compares what it prints with
the checked-in manifest, and the functions of the header with the list of exports. Changing the
manifest is changing the ABI: a new minor version for what is added, a new major one for the rest.
"""

import difflib
import re
import subprocess
import sys
from pathlib import Path

FIELD_FUNCTION = re.compile(r"\(\*(\w+)\)\s*\(.*\)$", re.S)
FIELD_PLAIN = re.compile(r"(\w+)\s*(?:\[[^\]]*\])?$")


def without_comments(text: str) -> str:
    return re.sub(r"/\*.*?\*/", " ", text, flags=re.S)


def squeezed(text: str) -> str:
    return " ".join(text.split())


def macros(text: str) -> list[str]:
    """Object-like macros with a value, but the ones that only decorate declarations."""
    found = re.findall(r"^#define (ORBITE_NIXL_\w+) +(\S.*)$", text, flags=re.M)
    return [name for name, _ in found if name != "ORBITE_NIXL_API"]


def functions(text: str) -> dict[str, str]:
    found = re.findall(r"ORBITE_NIXL_API\s+([^;#]*?)\s*\b(orbite_nixl_\w+)\(([^;]*)\);", text)
    return {
        name: f"{squeezed(result)} {name}({squeezed(arguments)})"
        for result, name, arguments in found
    }


def struct_fields(body: str) -> list[str]:
    names = []
    for field in filter(None, (part.strip() for part in body.split(";"))):
        match = FIELD_FUNCTION.search(field) or FIELD_PLAIN.search(field)
        if match is None:
            raise SystemExit(f"cannot read the field '{field}'")
        names.append(match.group(1))
    return names


def type_lines(text: str) -> list[str]:
    """C statements for the typedefs, in the order of the header."""
    lines = []
    pattern = r"typedef (?:(struct|enum) \w+ \{(.*?)\} (\w+)|(\w+) (\w+));"
    for kind, body, name, base, alias in re.findall(pattern, text, flags=re.S):
        if kind == "struct":
            lines.append(f'  SHOW_TYPE("struct", {name});')
            lines += [f"  SHOW_FIELD({name}, {field});" for field in struct_fields(body)]
        elif kind == "enum":
            lines.append(f'  SHOW_TYPE("enum", {name});')
            lines += [f"  SHOW_VALUE({item});" for item in re.findall(r"(\w+)\s*=", body)]
        else:
            lines.append(f'  SHOW_TYPE("{base}", {alias});')
    return lines


PROGRAM = """#include <stdio.h>
#include "orbite/nixl.h"
#define SHOW_VALUE(name) printf("  %s %lld\\n", #name, (long long)(name))
#define SHOW_TYPE(kind, name) \\
  printf("%s %s size %zu align %zu\\n", kind, #name, sizeof(name), _Alignof(name))
#define SHOW_FIELD(type, name) \\
  printf("  %s offset %zu size %zu\\n", #name, offsetof(type, name), sizeof(((type*)0)->name))
int main(void) {
  puts("macros");
%s
  return 0;
}
"""


def generate(header: Path) -> str:
    text = without_comments(header.read_text())
    lines = [f"  SHOW_VALUE({name});" for name in macros(text)]
    lines += type_lines(text)
    lines.append('  puts("functions");')
    lines += [f'  puts("  {signature}");' for signature in functions(text).values()]
    return PROGRAM.replace("%s\n  return", "\n".join(lines) + "\n  return")


def compare(header: Path, program: str, manifest: Path, exports: Path) -> int:
    actual = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    expected = "".join(
        line for line in manifest.read_text().splitlines(True) if not line.startswith("#")
    )
    difference = list(
        difflib.unified_diff(
            expected.splitlines(), actual.splitlines(), str(manifest), str(header), lineterm=""
        )
    )
    print("\n".join(difference) or f"{len(actual.splitlines())} lines agree")
    declared = sorted(functions(without_comments(header.read_text())))
    exported = [line for line in exports.read_text().split() if line]
    if declared != exported:
        print(f"declared but not exported: {sorted(set(declared) - set(exported))}")
        print(f"exported but not declared: {sorted(set(exported) - set(declared))}")
        print("exports.txt must be sorted and free of repetitions")
    return 1 if difference or declared != exported else 0


def main(arguments: list[str]) -> int:
    if len(arguments) == 2 and arguments[0] == "generate":
        print(generate(Path(arguments[1])), end="")
        return 0
    if len(arguments) == 5 and arguments[0] == "compare":
        return compare(
            Path(arguments[1]), arguments[2], Path(arguments[3]), Path(arguments[4])
        )
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
