#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the rules of style that compilers and formatters do not know.

Every text file: no markers of unfinished work, no paths or hosts of one machine. Sources and
scripts: licence line, at most 100 columns, functions of at most 70 lines. Headers: #pragma once.
src/: system calls, clocks and randomness only in src/platform; each atomic operation names its
memory order.

usage: check-style.py [ROOT]      exit 1 and one line for each violation
       check-style.py --self-test plants each kind of violation and expects it to be reported
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import tree_check

COLUMNS_MAX = 100
FUNCTION_LINES_MAX = 70
LICENCE = "SPDX-License-Identifier: Apache-2.0"
CPP = {".h", ".hpp", ".c", ".cpp", ".def"}
SCRIPTS = {".py", ".sh", ".cmake", ".map"}
SCRIPT_NAMES = {"CMakeLists.txt", "Makefile", "run"}
TEXT = CPP | SCRIPTS | {".md", ".json", ".txt", ".yml", ".yaml", ".toml", ".in", ".pc"}
SKIPPED = ("build/", ".git/", "tests/fuzz/corpus/")

# Put together from pieces, so that this file does not report itself.
MARKERS = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "X" * 3, "HA" + "CK"]) + r")\b")
MACHINE = re.compile(
    r"(?<![\w.$}/-])/(?:work|ho" + r"me|root)/"
    r"|--(?:extra-)?index" + r"-url|trusted" + r"-host"
    r"|\bpypi\." + r"org\b|pythonhosted\." + r"org|\bdeb\.debian\." + r"org\b"
)

_FREE = r"(?<![\w.>:])"  # neither a member, nor qualified, nor the end of another name
_QUALIFIED = r"(?<![\w>])::\s*"
_CALLS = (
    "open openat close read write send recv sendto recvfrom connect bind listen accept accept4 "
    "poll ppoll select shutdown socket socketpair ioctl fcntl fork getpid getuid dup dup2 pipe "
    "pipe2 sysconf syscall readv writev preadv pwritev stat fstat unlink ftruncate sched_yield "
    "getrandom"
).split()
_PLAIN_CALLS = (
    "getenv secure_getenv setenv putenv unsetenv dlopen dlsym dlclose clock_gettime gettimeofday "
    "nanosleep usleep epoll_create1 epoll_ctl epoll_wait memfd_create eventfd timerfd_create mmap "
    "munmap madvise mlock getaddrinfo getifaddrs gettid sendmsg recvmsg sendmmsg recvmmsg "
    "setsockopt getsockopt process_vm_readv process_vm_writev io_uring_queue_init pthread_atfork"
).split()
BANNED_CALLS = [
    (re.compile(rf"{_QUALIFIED}({'|'.join(_CALLS + _PLAIN_CALLS)})\s*\("), "a system call"),
    (re.compile(rf"(?:{_FREE}|\bstd::)({'|'.join(_PLAIN_CALLS)})\s*\("), "a system call"),
    (re.compile(rf"{_FREE}(socket)\s*\(\s*(?:AF|PF)_"), "a system call"),
    (re.compile(r"\b(this_thread::sleep\w*)"), "a sleep"),
    (re.compile(r"\b(random_device)\b"), "a source of randomness"),
    (re.compile(r"\b(\w+_clock\s*::\s*now)\s*\("), "a clock"),
]

ATOMIC_CALL = re.compile(
    r"(?:\.|->)(load|store|exchange|fetch_(?:add|sub|and|or|xor)|compare_exchange_(?:weak|strong)"
    r"|test_and_set)\s*(\()"
)
ATOMIC_NAME = re.compile(r"\batomic\s*<[^;{}()]*>\s+(\w+)\s*[;{=(]")
CONTROL = re.compile(r"^\s*(?:else\s+)?(?:if|for|while|switch|do|try|catch|else|return)\b")
SCOPE = re.compile(r"\b(?:namespace|class|struct|union|enum)\b|\bextern\s*\"")


def blank(found: re.Match[str]) -> str:
    """As many lines and columns as before, so that positions stay right."""
    return re.sub(r"[^\n]", " ", found.group())


def strip_cpp(text: str) -> str:
    """Blanks comments, literals and preprocessor lines; keeps `extern ""` recognisable."""
    token = re.compile(
        r'R"(?P<mark>[^()\s\\]{0,16})\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"'
        r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'|//[^\n]*|/\*.*?\*/",
        re.S,
    )

    def replace(found: re.Match[str]) -> str:
        if found.group().startswith('"'):
            return '"' + " " * (len(found.group()) - 2) + '"'
        return blank(found)

    text = token.sub(replace, text)
    return re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", blank, text, flags=re.M)


def line_at(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def kind_of_brace(header: str, in_function: bool) -> str:
    """What an opening brace opens, told by the text since the last statement."""
    if in_function:
        return "block"
    if header and not header[-1].isspace() and re.search(r"[\w>]$", header):
        return "initializer"
    if ")" in header and not CONTROL.match(header) and not re.search(r"=\s*$", header):
        if not SCOPE.search(re.sub(r"\([^()]*\)|<[^<>]*>", "", header).split(")")[0]):
            return "function"
    return "scope" if SCOPE.search(header) else "block"


def cpp_functions(code: str) -> Iterator[tuple[int, int]]:
    """First and last line of each function's body. A heuristic over stripped code."""
    stack: list[tuple[str, int]] = []
    start = 0
    for position, character in enumerate(code):
        if character == "{":
            in_function = any(kind == "function" for kind, _ in stack)
            kind = kind_of_brace(code[start:position], in_function)
            stack.append((kind, position))
            if kind != "initializer":
                start = position + 1
        elif character == "}" and stack:
            kind, opened = stack.pop()
            if kind == "function":
                yield line_at(code, opened), line_at(code, position)
            if kind != "initializer":
                start = position + 1
        elif character == ";" and not (stack and stack[-1][0] == "initializer"):
            start = position + 1


def check_length(first: int, last: int) -> Iterator[tuple[int, str]]:
    lines = last - first + 1
    if lines > FUNCTION_LINES_MAX:
        yield first, f"a function of {lines} lines; at most {FUNCTION_LINES_MAX}"


def call_arguments(code: str, opening: int) -> str:
    depth = 0
    for position in range(opening, len(code)):
        depth += {"(": 1, ")": -1}.get(code[position], 0)
        if depth == 0:
            return code[opening + 1 : position]
    return ""


def check_atomics(code: str) -> Iterator[tuple[int, str]]:
    for found in ATOMIC_CALL.finditer(code):
        name, arguments = found.group(1), call_arguments(code, found.start(2))
        if name == "load" and arguments.strip() and "memory_order" not in arguments:
            continue  # an atomic's load takes nothing but an order: this is another load
        if "memory_order" not in arguments:
            yield line_at(code, found.start()), f"{name}() without a memory order"
    for name in sorted(set(ATOMIC_NAME.findall(code))):
        # Without the mark of a private member, a bare name may be another variable's.
        owner = r"(?<![\w.:>])" if name.endswith("_") else r"(?:\.|->)"
        prefix = rf"(?:\+\+|--)\s*(?:\w+(?:\.|->))*{name}\b(?!\s*[.\[-])"
        use = rf"{prefix}|{owner}{name}\s*(?:\+\+|--|[-+|&^]?=(?!=))"
        for found in re.finditer(use, code):
            yield line_at(code, found.start()), f"operator on the atomic '{name}'"


def check_calls(code: str) -> Iterator[tuple[int, str]]:
    reported = set()
    for pattern, what in BANNED_CALLS:
        for found in pattern.finditer(code):
            key = found.start(1)
            if key not in reported:
                reported.add(key)
                yield line_at(code, key), f"{found.group(1)}: {what} outside src/platform"


def check_cpp(path: str, text: str) -> Iterator[tuple[int, str]]:
    code = strip_cpp(text)
    if path.endswith(".hpp") and "#pragma once" not in text:
        yield 1, "a header without #pragma once"
    for first, last in cpp_functions(code):
        yield from check_length(first, last)
    if path.startswith("src/"):
        yield from check_atomics(code)
        if not path.startswith("src/platform/"):
            yield from check_calls(code)


def check_python(text: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from check_length(node.lineno, node.end_lineno or node.lineno)


def check_lines(path: str, lines: list[str], is_source: bool) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(lines, start=1):
        if is_source and len(line) > COLUMNS_MAX and "://" not in line:
            yield number, f"{len(line)} columns; at most {COLUMNS_MAX}"
        if line != line.rstrip() and not path.endswith(".md"):
            yield number, "white space at the end of the line"
        found = MARKERS.search(line)
        if found:
            yield number, f"'{found.group()}' marks unfinished work"
        found = MACHINE.search(line)
        if found:
            yield number, f"'{found.group()}' belongs to one machine"


def check_file(root: Path, path: str) -> Iterator[tuple[int, str]]:
    name, suffix = path.rsplit("/", 1)[-1], Path(path).suffix
    is_source = suffix in CPP | SCRIPTS or name in SCRIPT_NAMES
    if not is_source and suffix not in TEXT:
        return
    text = (root / path).read_text()
    lines = text.split("\n")
    if is_source:
        first = lines[1] if lines[0].startswith("#!") and len(lines) > 1 else lines[0]
        if LICENCE not in first:
            yield 1, f"the first line does not hold '{LICENCE}'"
    yield from check_lines(path, lines, is_source)
    if suffix in CPP:
        yield from check_cpp(path, text)
    elif suffix == ".py":
        yield from check_python(text)


def list_files(root: Path) -> list[str]:
    """What git tracks or would track; where git does not answer, every file."""
    command = ["git", "-C", str(root), "ls-files", "-co", "--exclude-standard", "-z"]
    try:
        listed = subprocess.run(command, check=True, capture_output=True).stdout.decode()
        names = [name for name in listed.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        names = [file.relative_to(root).as_posix() for file in root.rglob("*")]
    kept = (name for name in names if not name.startswith(SKIPPED) and "__pycache__" not in name)
    return sorted(name for name in kept if (root / name).is_file())


def check_tree(root: Path) -> tuple[list[str], int]:
    violations = []
    files = list_files(root)
    for path in files:
        for line, message in sorted(check_file(root, path)):
            violations.append(f"{path}:{line}: {message}")
    return violations, len(files)


HEAD = f"// {LICENCE}\n"
LONG = "  f();\n" * 70
FITS = "  f();\n" * 68
ATOMIC = HEAD + "std::atomic<int> n_{0};\n"
MANY = "#pragma once\nclass C {\n" + "  int x();\n" * 90 + "};\n"
TABLE = "const int t[] = {\n" + "  1,\n" * 90 + "};\n"
OWN = "void f() { lane.open(p); platform::open(p); s->socket(1); }\n"
# file, its text, words of the one report (None: no report)
CASES: list[tuple[str, str, str | None]] = [
    ("src/base/good.cpp", HEAD + "int f() { return 1; }\n", None),
    ("src/base/none.cpp", "int x;\n", "none.cpp:1: the first line"),
    ("scripts/tool.py", f"#!/usr/bin/env python3\n# {LICENCE}\n", None),
    ("scripts/bare.sh", "#!/usr/bin/env bash\necho\n", "bare.sh:1: the first line"),
    ("src/base/guard.hpp", HEAD + "int f();\n", "guard.hpp:1: a header without #pragma"),
    ("src/base/wide.cpp", HEAD + "//" + "x" * 99 + "\n", "wide.cpp:2: 101 columns"),
    ("src/base/space.cpp", HEAD + "int x; \n", "space.cpp:2: white space"),
    ("src/base/mark.cpp", HEAD + "// TO" + "DO later\n", "mark.cpp:2: 'TO" + "DO'"),
    ("src/base/template.cpp", HEAD + 'auto t = "/tmp/orbite-XXXXXX";\n', None),
    ("docs/path.md", "see /ho" + "me/me/x\n", "path.md:1: '/ho" + "me/' belongs"),
    ("src/base/long.cpp", f"{HEAD}int f(int a)\n{{\n{LONG}}}\n", "long.cpp:3: a function of 72"),
    ("src/base/fits.cpp", f"{HEAD}int f(int a) {{\n{FITS}}}\n", None),
    (
        "src/base/member.hpp",
        f"{HEAD}#pragma once\nclass C {{\n  C(int a) : a_{{a}}, b_(a) {{\n{LONG}  }}\n}};\n",
        "member.hpp:4: a function of 72",
    ),
    ("src/base/many.hpp", HEAD + MANY, None),
    ("src/base/table.cpp", HEAD + TABLE, None),
    ("tests/long.py", f"# {LICENCE}\ndef f():\n" + "    f()\n" * 70, "long.py:2: a function of 71"),
    ("src/wire/env.cpp", HEAD + 'auto e = std::getenv("X");\n', "env.cpp:2: getenv: a system"),
    ("src/wire/open.cpp", HEAD + "int f() { return ::open(p, 0); }\n", "open.cpp:2: open: a sys"),
    ("src/wire/sock.cpp", HEAD + "auto s = socket(AF_INET, 1, 0);\n", "sock.cpp:2: socket"),
    ("src/wire/sleep.cpp", HEAD + "void f() { std::this_thread::sleep_for(t); }\n", "a sleep"),
    ("src/wire/clock.cpp", HEAD + "auto t = std::chrono::steady_clock::now();\n", "a clock"),
    ("src/wire/random.cpp", HEAD + "std::random_device r;\n", "a source of randomness"),
    ("src/wire/own.cpp", HEAD + OWN, None),
    ("src/wire/words.cpp", HEAD + '// getenv(x)\nauto t = "::open(x)";\n', None),
    ("src/platform/env.cpp", HEAD + 'auto e = std::getenv("X");\n', None),
    ("src/wire/load.cpp", HEAD + "int f() { return a.load(); }\n", "load.cpp:2: load() without"),
    ("src/wire/store.cpp", HEAD + "void f() { a->store(1); }\n", "store.cpp:2: store() without"),
    ("src/wire/swap.cpp", HEAD + "auto v = a.exchange(g(1), std::memory_order_relaxed);\n", None),
    ("src/wire/file.cpp", HEAD + "void f() { config.load(path); }\n", None),
    ("src/wire/plus.cpp", ATOMIC + "void f() { ++n_; }\n", "plus.cpp:3: operator"),
    ("src/wire/set.cpp", ATOMIC + "void f() { n_ = 1; }\n", "set.cpp:3: operator"),
    ("src/wire/init.cpp", ATOMIC + "bool f(int n) { n = 1; return m_n_ == n_.load(x()); }\n", None),
    ("tests/unit/a_test.cpp", HEAD + "int f() { return a.load(); }\n", None),
]


if __name__ == "__main__":
    sys.exit(tree_check.main("check-style", __doc__, check_tree, CASES))
