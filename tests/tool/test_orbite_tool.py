# SPDX-License-Identifier: Apache-2.0
"""The `orbite` command, as a user runs it.

ORBITE_TOOL names the executable; default: build/dev/tools/orbite/orbite.
"""

from __future__ import annotations

import ipaddress
import json
import os
import re
import socket
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOL = Path(os.environ.get("ORBITE_TOOL", ROOT / "build/dev/tools/orbite/orbite"))
LOOPBACK = {"listen": {"address": "127.0.0.1"}, "advertise": {"addresses": ["127.0.0.1"]}}


def orbite(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("ORBITE_")}
    return subprocess.run(
        [TOOL, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=inherited | environment,
    )


def succeeds(*arguments: str | Path, **environment: str) -> str:
    done = orbite(*arguments, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def fails(code: int, *arguments: str | Path, **environment: str) -> str:
    done = orbite(*arguments, **environment)
    assert done.returncode == code, (done.stdout, done.stderr)
    assert done.stdout == ""
    return done.stderr


@pytest.fixture
def write(tmp_path: Path):
    def write_document(document: object, name: str = "config.json") -> Path:
        path = tmp_path / name
        text = document if isinstance(document, str) else json.dumps(document)
        path.write_text(text, encoding="utf-8")
        return path

    return write_document


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


def host_of(address: str) -> str:
    return address.rpartition(":")[0].strip("[]")


# Command line.


def test_version() -> None:
    assert re.fullmatch(r"orbite \d+\.\d+\.\d+\n", succeeds("--version"))


def test_help_names_the_commands() -> None:
    text = succeeds("--help")
    assert "info" in text
    assert "config" in text


def test_unknown_command_is_refused_and_the_known_ones_named() -> None:
    assert fails(2, "nonsense") == (
        "orbite: unknown command 'nonsense'; commands of orbite: info, config, "
        "telemetry, sim, bench "
        "(see orbite --help)\n"
    )


def test_unknown_command_of_config_is_refused() -> None:
    assert fails(2, "config", "set") == (
        "orbite: unknown command 'set'; commands of orbite config: check, defaults "
        "(see orbite config --help)\n"
    )


@pytest.mark.parametrize("arguments", [[], ["config"]])
def test_missing_command_is_refused(arguments: list[str]) -> None:
    assert fails(2, *arguments).startswith("orbite: a command is missing; commands of orbite")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--verbose"], "--verbose"),
        (["config", "--json"], "--json"),
        (["info", "extra"], "extra"),
        (["info", "--config"], "--config"),
        (["config", "check"], "file"),
        (["config", "check", "one", "two"], "two"),
        (["config", "defaults", "--json", "--markdown"], "--markdown"),
        (["config", "defaults", "--json", "--schema"], "--schema"),
        (["telemetry", "--json"], "--json"),
        (["sim", "--seeds", "0"], "--seeds: Value 0 not in range 1 to"),
        (["sim", "--seeds", "many"], "many"),
        (["sim", "--ops", "0"], "--ops: Value 0 not in range 1 to"),
        (["sim", "--hosts", "9"], "--hosts: Value 9 not in range 2 to 4"),
        (["sim", "--machines", "0"], "--machines: Value 0 not in range 1 to 4"),
        (["sim", "--neighbors", "few"], "--neighbors: few not in {drawn,none,some,all}"),
        (["sim", "--jobs", "0"], "--jobs"),
        (["sim", "--faults", "cut,bang"], "'bang' is none of none, network, process, all, delay"),
    ],
)
def test_wrong_arguments_are_refused_by_name(arguments: list[str], named: str) -> None:
    message = fails(2, *arguments)
    assert message.startswith("orbite: ")
    assert named in message


def test_output_that_cannot_be_written_is_a_failure() -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [TOOL, "config", "defaults"],
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
        )
    assert done.returncode == 1
    assert b"standard output cannot be written" in done.stderr


# config check.


def test_check_accepts_a_good_file(write) -> None:
    assert succeeds("config", "check", write(LOOPBACK)) == "ok\n"


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (
            {"tcp": {"bulk_lanes_per_peer": 99}},
            "tcp.bulk_lanes_per_peer: 99 is out of range, allowed 1..16",
        ),
        ({"tcp": {"enabled": "yes"}}, 'tcp.enabled: is the string "yes", must be true or false'),
        ({"tcp": {"slice_byte": 1}}, "tcp.slice_byte: unknown key; did you mean tcp.slice_bytes?"),
        ('{"log": {"level": "", "level": ""}}', "log.level: duplicate key, allowed once"),
        ('{"tcp": {},\n "log": }', "line 2, column 9: not JSON: "),
        ("[" * 1000 + "]" * 1000, "document: is an array, must be an object"),
        ("{}" + " " * (1 << 20), "document: 1048577 bytes are too many, allowed 1048576"),
    ],
)
def test_check_names_the_key_and_what_is_allowed(write, document: object, message: str) -> None:
    path = write(document)
    error = fails(1, "config", "check", path)
    assert error.startswith(f"orbite: invalid configuration: {message}")
    assert error.endswith(f" (in {path})\n")


def test_check_names_all_that_is_wrong(write) -> None:
    path = write({"tcp": {"slice_byte": 1, "enabled": 0}, "listen": 5, "close": {"timeout_ms": -1}})
    lines = fails(1, "config", "check", path).splitlines()
    assert [line.split(": ")[2] for line in lines] == [
        "tcp.slice_byte", "tcp.enabled", "listen", "close.timeout_ms"
    ]
    assert all(line.endswith(f" (in {path})") for line in lines)


def test_check_shows_a_bounded_number_of_errors(write) -> None:
    path = write({"tcp": {f"key{index}": index for index in range(100)}})
    lines = fails(1, "config", "check", path).splitlines()
    assert len(lines) == 33
    assert lines[-1] == "orbite: there may be more errors than these"


def orbite_reading(text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([TOOL, *arguments], input=text, capture_output=True, text=True,
                          timeout=60, check=False)


def test_check_reads_standard_input() -> None:
    done = orbite_reading(json.dumps(LOOPBACK), "config", "check", "-")
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")
    done = orbite_reading('{"tcp": {"enabled": 1}}', "config", "check", "-")
    assert done.returncode == 1
    assert done.stderr == (
        "orbite: invalid configuration: tcp.enabled: is 1, must be true or false\n"
    )
    done = orbite_reading("{}" + " " * (1 << 21), "config", "check", "-")
    assert "bytes are too many" in done.stderr


def test_check_names_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    missing = tmp_path / "missing.json"
    assert fails(1, "config", "check", missing) == (
        f"orbite: invalid configuration: cannot read {missing} (No such file or directory)\n"
    )
    assert fails(1, "config", "check", tmp_path) == (
        f"orbite: invalid configuration: cannot read {tmp_path}: not a regular file\n"
    )


# config defaults.


def default_keys() -> list[dict]:
    return json.loads(succeeds("config", "defaults", "--schema"))["keys"]


def test_schema_describes_every_key() -> None:
    keys = default_keys()
    assert {"listen.port", "tcp.slice_bytes", "transfer.routes"} <= {key["key"] for key in keys}
    for key in keys:
        assert key["meaning"]
        assert key["type"] in {"boolean", "integer", "string", "array of strings"}
        if key["type"] == "integer":
            assert key["minimum"] <= key["default"] <= key["maximum"]


def test_defaults_as_json_are_an_accepted_document() -> None:
    text = succeeds("config", "defaults", "--json")
    document = json.loads(text)
    for key in default_keys():
        section, name = key["key"].split(".")
        assert document[section][name] == key["default"]
    done = orbite_reading(text, "config", "check", "-")
    assert (done.returncode, done.stdout) == (0, "ok\n")


def test_defaults_as_text_hold_every_key() -> None:
    lines = succeeds("config", "defaults").splitlines()
    for key in default_keys():
        assert any(line.startswith(f"{key['key']} = ") for line in lines)
        assert f"    {key['meaning']}" in lines


def test_configuration_page_is_what_the_command_writes() -> None:
    page = (ROOT / "docs/configuration.md").read_text(encoding="utf-8")
    assert page == succeeds("config", "defaults", "--markdown"), (
        "write it again: orbite config defaults --markdown > docs/configuration.md"
    )


# telemetry.


def test_telemetry_page_is_what_the_command_writes() -> None:
    page = (ROOT / "docs/telemetry.md").read_text(encoding="utf-8")
    assert page == succeeds("telemetry", "--markdown"), (
        "write it again: orbite telemetry --markdown > docs/telemetry.md"
    )


def test_telemetry_as_text_has_a_head_for_each_metric_of_the_page() -> None:
    page = succeeds("telemetry", "--markdown")
    documented = re.findall(r"^\| `(\w+)` \| (\w+) \|", page, flags=re.M)
    shown = re.findall(r"^# TYPE (\w+) (\w+)$", succeeds("telemetry"), flags=re.M)
    assert shown == documented
    assert len(shown) == len(set(shown)) > 30


# info.


def info(*arguments: str | Path, **environment: str) -> dict:
    return json.loads(succeeds("info", "--json", *arguments, **environment))


def test_info_shows_version_build_and_transports(write) -> None:
    shown = info("--config", write(LOOPBACK))
    assert succeeds("--version") == f"orbite {shown['version']}\n"
    assert shown["build"]
    transports = {each["name"]: each for each in shown["transports"]}
    assert transports["local"]["available"] is True
    assert transports["tcp"]["available"] is True


def test_info_shows_the_addresses_that_are_configured(write) -> None:
    document = {
        "listen": {"address": "127.0.0.1"},
        "advertise": {"addresses": ["192.0.2.7", "2001:db8::7"], "port": 4242},
    }
    shown = info("--config", write(document))
    assert shown["advertise"] == ["192.0.2.7:4242", "[2001:db8::7]:4242"]
    assert host_of(shown["listen"]) == "127.0.0.1"


def test_info_shows_the_port_that_was_chosen(write) -> None:
    shown = info("--config", write(LOOPBACK))
    assert port_of(shown["listen"]) > 0
    assert shown["advertise"] == [shown["listen"]]


def test_info_without_configuration_advertises_literal_addresses() -> None:
    shown = info()
    assert shown["configuration"] is None
    for address in shown["advertise"]:
        assert not ipaddress.ip_address(host_of(address)).is_unspecified
        assert port_of(address) > 0


@pytest.mark.parametrize("transport", ["local", "tcp"])
def test_info_says_why_a_transport_is_not_available(write, transport: str) -> None:
    path = write(LOOPBACK | {transport: {"enabled": False}})
    transports = {each["name"]: each for each in info("--config", path)["transports"]}
    assert transports[transport]["available"] is False
    assert f"{transport}.enabled" in transports[transport]["reason"]
    line = f"{transport}: not available: {transports[transport]['reason']}"
    assert line in succeeds("info", "--config", path)


def test_info_says_that_nothing_listens_without_tcp(write) -> None:
    text = succeeds("info", "--config", write(LOOPBACK | {"tcp": {"enabled": False}}))
    assert "listens on     nothing\n" in text
    assert "advertises     nothing\n" in text


def test_info_as_text_says_the_same_as_json(write) -> None:
    path = write(LOOPBACK)
    text = succeeds("info", "--config", path)
    shown = info("--config", path)
    assert f"version        {shown['version']}\n" in text
    for name, value in shown["build"].items():
        assert f"{name} {value}" in text
    assert f"configuration  {path}\n" in text
    assert "local: available\n" in text
    assert "tcp: available\n" in text


def test_info_reads_the_file_of_the_environment(write) -> None:
    path = write(LOOPBACK | {"tcp": {"enabled": False}})
    shown = info(ORBITE_CONFIG=str(path))
    assert shown["configuration"] == str(path)
    assert {each["name"]: each["available"] for each in shown["transports"]}["tcp"] is False


def test_info_prefers_the_file_of_the_command_line(write) -> None:
    path = write(LOOPBACK)
    shown = info("--config", path, ORBITE_CONFIG="/nonexistent")
    assert shown["configuration"] == str(path)


def test_log_level_of_the_environment_shows_the_life_of_an_engine(write) -> None:
    path = write(LOOPBACK)
    done = orbite("info", "--json", "--config", path, ORBITE_LOG="info")
    assert done.returncode == 0
    shown = json.loads(done.stdout)
    lines = [line.split(" info: ")[1] for line in done.stderr.splitlines()]
    assert lines == [
        f"engine 'orbite-info' of epoch {shown['epoch']} listens on {shown['listen']}",
        "engine 'orbite-info' closes, 0 executions are under way",
        "engine 'orbite-info' is closed",
    ]
    assert orbite("info", "--config", path).stderr == ""


def test_log_level_that_is_none_is_refused() -> None:
    assert fails(2, "info", ORBITE_LOG="loud") == (
        "orbite: ORBITE_LOG is 'loud'; allowed: trace, debug, info, warn, error, off\n"
    )


def test_info_refuses_a_bad_configuration(write) -> None:
    path = write({"listen": {"prot": 1}})
    expected = "orbite: invalid configuration: listen.prot: unknown key; did you mean listen.port?"
    assert fails(1, "info", "--config", path).startswith(expected)
    assert fails(1, "info", "--json", ORBITE_CONFIG=str(path)).startswith(expected)


def test_info_names_a_port_that_is_taken(write) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        path = write({"listen": {"address": "127.0.0.1", "port": port}})
        text = succeeds("info", "--config", path)
    # Most likely it is the engine that one asks about: everything else is told all the same.
    assert f"cannot listen on 127.0.0.1:{port}" in text
    assert "listen.port" in text
    assert "tcp: available" in text


def test_info_names_an_address_that_is_not_of_this_host(write) -> None:
    # Of the range for documentation.
    path = write({"listen": {"address": "192.0.2.1"}})
    assert "192.0.2.1" in fails(1, "info", "--config", path)


# sim.


def test_sim_runs_seeds_and_says_what_they_did() -> None:
    text = succeeds("sim", "--seeds", "20", "--seed", "5")
    assert re.match(
        r"20 seeds from 5, no violation: \d+ executions "
        r"\(local \d+, shm \d+, cma \d+, tcp \d+\), \d+ faults, ",
        text,
    )


def test_sim_spreads_seeds_over_processes_and_writes_json() -> None:
    told = json.loads(succeeds("sim", "--seeds", "40", "--jobs", "2", "--json"))
    assert told["seeds"] == 40
    assert told["failing_seed"] is None
    assert told["executions"] > 100
    # Who dies in the middle of its post never tells of it.
    assert sum(told["executions_by_route"].values()) >= told["executions"]
    assert told["executions_by_route"]["shm"] > 0
    assert told["seeds_per_second"] > 0


def test_sim_tells_one_seed_in_full_and_the_same_each_time() -> None:
    arguments = ("sim", "--log", "--seed", "3", "--ops", "60", "--faults", "reset,kill")
    first = succeeds(*arguments)
    assert succeeds(*arguments) == first
    assert "starts its life 1" in first
    assert "all faults end" in first


def test_sim_without_faults_brings_none() -> None:
    assert " 0 faults, " in succeeds("sim", "--seeds", "10", "--faults", "none")
