# SPDX-License-Identifier: Apache-2.0
"""`orbite bench`, as a user runs it: short runs, whose figures decide nothing."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import pty
import re
import signal
import socket
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_orbite_tool import TOOL, fails, orbite, succeeds

QUICK = ("--seconds", "0.05")
MAGIC = 0x4254424F
WAIT_S = 60


def bench(*arguments: str | Path, **environment: str) -> dict:
    return json.loads(succeeds("bench", "--json", *QUICK, *arguments, **environment))


def check_operation(operation: dict) -> None:
    assert operation["gb_per_s"] > 0
    assert operation["transfers"] > 0
    for name in ("prepare_ns", "post_ns", "total_ns"):
        figures = operation[name]
        order = [figures[key] for key in ("p50", "p90", "p99", "p99.9", "max")]
        assert order == sorted(order)
        assert figures["samples"] > 0
    assert operation["post_ns"]["samples"] == operation["transfers"]
    assert operation["total_ns"]["samples"] == operation["transfers"]
    assert operation["first_transfer_us"] > 0
    for limit in operation["limits"]:
        assert limit["gb_per_s"] > 0
        assert limit["ratio"] > 0
        assert len(limit["rounds_gb_per_s"]) == len(operation["rounds_gb_per_s"])


def limit_names(operation: dict) -> list[str]:
    return [limit["name"].split(",")[0] for limit in operation["limits"]]


# Two processes.


@pytest.mark.parametrize(
    ("transport", "route", "limit"),
    [
        ("auto", "cma", "process_vm_writev and readv of the same blocks"),
        ("shm", "shm", "memcpy of the same blocks"),
        ("cma", "cma", "process_vm_writev and readv of the same blocks"),
        ("tcp", "tcp", "bare TCP"),
    ],
)
def test_two_processes_write_and_read_by_each_transport(transport: str, route: str,
                                                        limit: str) -> None:
    told = bench("--shape", "1024x64K", "--transport", transport)
    assert told["between"] == "two processes of this host"
    assert told["transport"] == transport
    assert told["layout"]["payload"] == 1024 * 65536
    assert [each["operation"] for each in told["operations"]] == ["write", "read"]
    for operation in told["operations"]:
        check_operation(operation)
        assert operation["route"] == route
        assert operation["verified"]["ok"] is True
        assert operation["verified"]["bytes_compared"] >= 2 * 1024 * 65536
        assert operation["target_cpu_s_per_gb"] >= 0
        assert limit_names(operation) == [limit]


def test_a_transport_is_set_whatever_the_configuration_says(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"shm": {"enabled": False}, "cma": {"enabled": False},
                                "transfer": {"routes": ["local", "tcp"]}}), encoding="utf-8")
    for transport in ("auto", "shm"):
        (operation,) = bench("--config", path, "--transport", transport, "--shape", "4K", "--op",
                             "read")["operations"]
        assert operation["route"] == ("tcp" if transport == "auto" else "shm")


def forbid_process_copies() -> None:
    """In a child, before it becomes the program: the kernel refuses process_vm_readv and writev."""
    no_new_privileges, set_seccomp, filter_mode = 38, 22, 2
    allow, refuse = 0x7FFF0000, 0x00050000 | errno.EPERM
    calls = {"x86_64": (310, 311), "aarch64": (270, 271)}[os.uname().machine]
    load, equal, answer = 0x20, 0x15, 0x06
    steps = [(load, 0, 0, 0), (equal, 1, 0, calls[0]), (equal, 0, 1, calls[1]),
             (answer, 0, 0, refuse), (answer, 0, 0, allow)]
    program = b"".join(struct.pack("=HBBI", *step) for step in steps)
    code = ctypes.create_string_buffer(program, len(program))
    header = ctypes.create_string_buffer(
        struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code)))
    library = ctypes.CDLL(None, use_errno=True)
    assert library.prctl(no_new_privileges, 1, 0, 0, 0) == 0
    assert library.prctl(set_seccomp, filter_mode, header, 0, 0) == 0


def test_a_transport_that_the_system_forbids_is_an_error_with_the_reason() -> None:
    def run(transport: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([TOOL, "bench", "--json", "--transport", transport, "--shape", "4K",
                               *QUICK], capture_output=True, text=True, timeout=WAIT_S,
                              check=False, preexec_fn=forbid_process_copies)

    refused = run("cma")
    assert refused.returncode == 1
    assert "--transport cma: a transfer went by tcp: " in refused.stderr
    assert "the kernel does not let us read process" in refused.stderr
    for transport, route in (("auto", "tcp"), ("shm", "shm")):
        done = run(transport)
        assert done.returncode == 0, done.stderr
        assert {each["route"] for each in json.loads(done.stdout)["operations"]} == {route}


@pytest.mark.parametrize("shape", ["4K", "64K", "64M", "4096x4K", "100000x4K", "kv"])
def test_every_shape_is_moved_and_verified(shape: str) -> None:
    (operation,) = bench("--shape", shape, "--op", "write")["operations"]
    check_operation(operation)
    assert operation["verified"]["ok"] is True


def test_threads_and_requests_under_way_and_adjacent_blocks() -> None:
    told = bench("--size", "3000", "--count", "20", "--adjacent", "50", "--threads", "3",
                 "--depth", "4")
    assert told["threads"] == 3
    assert told["depth"] == 4
    assert told["layout"]["adjacent_percent"] == 50
    for operation in told["operations"]:
        check_operation(operation)
        # Twice the extents of all twelve requests.
        assert operation["verified"]["bytes_compared"] >= 2 * 12 * 20 * 3000
        assert operation["verified"]["ok"] is True


def test_iterations_are_counted_and_verification_can_be_left_out() -> None:
    text = succeeds("bench", "--json", "--shape", "4K", "--op", "read", "--iterations", "13",
                    "--no-verify")
    (operation,) = json.loads(text)["operations"]
    assert operation["operation"] == "read"
    assert operation["transfers"] == 13
    assert operation["verified"] is None


def test_text_names_what_json_does() -> None:
    text = succeeds("bench", "--shape", "kv", "--count", "2", "--transport", "tcp", *QUICK)
    assert text.startswith("120 x 2 x 32 KiB, 1 thread, depth 1, two processes of this host, "
                           "transport tcp\n")
    for operation in ("WRITE", "READ"):
        assert re.search(rf"^{operation}: [\d.]+ GB/s, median of 5 rounds; .* route tcp$", text,
                         flags=re.M)
    assert text.count("  verified       ") == 2
    assert re.search(r"p50 +p90 +p99 +p99\.9 +max +samples\n", text)
    assert re.search(r"limit +bare TCP, 2 streams, 1 MiB calls: [\d.]+ GB/s; ours is [\d.e-]+ of",
                     text)


def test_configuration_reaches_both_processes(tmp_path: Path) -> None:
    # A port for one alone would not do for two engines: on loopback they choose their own.
    path = tmp_path / "config.json"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        path.write_text(json.dumps({"listen": {"port": port}, "log": {"level": "info"}}),
                        encoding="utf-8")
        done = orbite("bench", "--config", path, "--shape", "4K", "--op", "write", *QUICK)
    assert done.returncode == 0, done.stderr
    assert "engine 'bench-initiator'" in done.stderr
    assert "engine 'bench-target'" in done.stderr


def test_transport_that_is_off_is_the_reason_of_a_failure(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"tcp": {"enabled": False}}), encoding="utf-8")
    assert "orbite: " in fails(1, "bench", "--config", path, "--shape", "4K", *QUICK)


def test_progress_is_a_bar_on_a_terminal_and_nothing_elsewhere() -> None:
    arguments = [TOOL, "bench", "--shape", "4K", "--op", "write", "--seconds", "1", "--json"]
    primary, secondary = pty.openpty()
    with os.fdopen(primary, "rb", buffering=0) as terminal:
        done = subprocess.run(arguments, stdout=subprocess.PIPE, stderr=secondary,
                              timeout=WAIT_S, check=False)
        os.close(secondary)
        shown = b""
        with contextlib.suppress(OSError):  # EIO: the other end of the terminal is closed
            while part := terminal.read(4096):
                shown += part
    assert done.returncode == 0
    assert b"/5 rounds" in shown
    assert json.loads(done.stdout)["operations"]
    assert orbite("bench", "--shape", "4K", "--op", "write", *QUICK).stderr == ""


# One process.


def test_an_engine_with_itself_copies_within_the_process() -> None:
    told = bench("--self", "--size", "64K", "--count", "16", "--depth", "2")
    for operation in told["operations"]:
        check_operation(operation)
        assert operation["route"] == "local"
        assert operation["target_cpu_s_per_gb"] is None
        assert limit_names(operation) == ["memcpy of the same blocks"]
        assert operation["verified"]["ok"] is True


# Two hosts.


@contextlib.contextmanager
def serving(*arguments: str, log: str = "warn") -> Iterator[tuple[subprocess.Popen[str], int]]:
    with subprocess.Popen([TOOL, "bench", "--serve", "127.0.0.1:0", *arguments],
                          stderr=subprocess.PIPE, text=True,
                          env=os.environ | {"ORBITE_LOG": log}) as server:
        try:
            line = server.stderr.readline()
            assert "without authentication" in line
            yield server, int(re.search(r"serves on 127\.0\.0\.1:(\d+),", line).group(1))
        finally:
            server.kill()


def test_server_serves_one_client_after_the_other_then_ends() -> None:
    with serving("--clients", "2") as (server, port):
        for shape in ("4K", "4096x4K"):
            told = bench("--connect", f"127.0.0.1:{port}", "--shape", shape, "--transport",
                         "tcp")
            assert told["between"] == f"with 127.0.0.1:{port}"
            for operation in told["operations"]:
                check_operation(operation)
                assert operation["verified"]["ok"] is True
                assert limit_names(operation) == ["bare TCP"]
        assert server.wait(WAIT_S) == 0
        assert server.stderr.read().count("has ended") == 2


def test_server_on_this_host_is_a_neighbor_unless_tcp_is_asked_for() -> None:
    with serving("--clients", "1") as (server, port):
        told = bench("--connect", f"127.0.0.1:{port}", "--shape", "4K")
        for operation in told["operations"]:
            assert operation["route"] == "cma"
            # A server lends nobody memory to compare with.
            assert operation["limits"] == []
            assert operation["verified"]["ok"] is True
        assert server.wait(WAIT_S) == 0


def frame(kind: int, body: bytes, length: int | None = None) -> bytes:
    return struct.pack("<IHHI", MAGIC, kind, 0, len(body) if length is None else length) + body


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "no `orbite bench`"),
        (frame(3, b"", 1 << 31), "2147483648 bytes, allowed"),
        (frame(3, struct.pack("<IQ", 1, 1 << 60)), "bytes of memory, allowed"),
        (frame(3, struct.pack("<IQ", 7, 1)), "protocol version 7"),
        (frame(3, struct.pack("<I", 1) + b"short"), "needs 8 bytes"),
        (frame(5, struct.pack("<Q", 1)), "before the first"),
        (b"", "ended the control connection"),
    ],
)
def test_server_outlives_clients_that_break_the_protocol(sent: bytes, told: str) -> None:
    with serving("--clients", "2") as (server, port):
        with socket.create_connection(("127.0.0.1", port), timeout=WAIT_S) as client:
            client.sendall(sent)
            # It may close before it has read all of it: a reset, or no connection any more.
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_WR)
                while client.recv(4096):
                    pass
        assert told in server.stderr.readline()
        bench("--connect", f"127.0.0.1:{port}", "--shape", "4K", "--op", "read")
        assert server.wait(WAIT_S) == 0


def test_server_says_what_memory_it_gives() -> None:
    with serving("--memory", "1M") as (_, port):
        message = fails(1, "bench", "--connect", f"127.0.0.1:{port}", "--size", "2M", *QUICK)
    assert "the other side says: " in message
    assert "allowed 1..1048576 (--memory)" in message


def test_server_that_is_gone_is_a_failure() -> None:
    with serving(log="info") as (server, port):
        client = subprocess.Popen(
            [TOOL, "bench", "--connect", f"127.0.0.1:{port}", "--shape", "4K", "--seconds", "600"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        with client:
            # Not before the client has an engine to talk to.
            for line in server.stderr:
                if "has connected" in line or line.startswith("orbite: 127.0.0.1:"):
                    break
            server.send_signal(signal.SIGKILL)
            _, error = client.communicate(timeout=WAIT_S)
    assert client.returncode == 1
    assert error.splitlines()[-1].startswith("orbite: ")


def test_nobody_at_the_address_is_a_failure() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    message = fails(1, "bench", "--connect", f"127.0.0.1:{port}")
    assert f"cannot connect to 127.0.0.1:{port}" in message


def test_address_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        message = fails(1, "bench", "--serve", f"127.0.0.1:{port}")
    assert f"cannot listen on 127.0.0.1:{port}" in message


# Command line.


def test_help_has_examples_and_the_warning() -> None:
    text = succeeds("bench", "--help")
    assert "neither authenticated nor encrypted" in text
    assert "orbite bench --serve" in text
    assert "orbite bench --transport shm" in text
    assert "100000x4K" in text


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--op", "up"], "--op: 'up' is none of read, write, both"),
        (["--shape", "x"], "--shape: 'x' is none of 4K, "),
        (["--size", "4Q"], "--size: '4Q' is no size"),
        (["--depth", "0"], "--depth: Value 0 not in range 1 to 1024"),
        (["--transport", "rdma"], "--transport: 'rdma' is none of auto, shm, cma, tcp"),
        (["--self", "--transport", "tcp"], "--transport: 'tcp' is none for --self"),
        (["--connect", "a:1", "--transport", "shm"], "none for --connect, which allows auto and"),
        (["--serve", "--transport", "tcp"], "--serve excludes --transport"),
        (["--self", "--serve"], "excludes"),
        (["--serve", "--json"], "--serve excludes --json"),
        (["--serve", "here"], "--serve: 'here' is not of the form HOST:PORT"),
        (["--connect", "here:0"], "--connect: port 0"),
        (["--seconds", "1", "--iterations", "1"], "excludes"),
        (["--size", "5G"], "--memory allows 4294967296 bytes"),
        (["more"], "more"),
    ],
)
def test_wrong_arguments_are_refused_by_name(arguments: list[str], named: str) -> None:
    message = fails(2, "bench", *arguments)
    assert message.startswith("orbite: ")
    assert named in message
