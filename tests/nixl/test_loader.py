# SPDX-License-Identifier: Apache-2.0
"""How the real agent finds, loads and configures the plugin: control N10, surprises 0.7 to 0.13."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import agents
from agents import LOOPBACK, AgentError, config_json

PLUGIN = "libplugin_ORBITE.so"
BRIDGE = "liborbite_nixl.so"
CONSUMER_KEYS = ("active engine_config num_threads file_path file_size shard_dirs use_direct_io "
                 "max_capacity_gb").split()


def run_tool(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


def bridge_soname() -> str:
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]",
                        run_tool("readelf", "-d", str(agents.PLUGIN_DIR / PLUGIN)))
    return next(name for name in needed if name.startswith(BRIDGE))


def bridge_functions_used() -> list[str]:
    symbols = run_tool("nm", "-D", "--undefined-only", str(agents.PLUGIN_DIR / PLUGIN))
    return sorted(set(re.findall(r"\b(orbite_nixl_\w+)", symbols)) - {"orbite_nixl_abi_query"})


def copy_plugin(target: Path, name: str = PLUGIN) -> None:
    shutil.copy(agents.PLUGIN_DIR / PLUGIN, target / name)


def copy_bridge(target: Path) -> None:
    shutil.copy(agents.PLUGIN_DIR / bridge_soname(), target / bridge_soname())


@pytest.mark.parametrize("mode", [
    ("exports", Path(__file__).parents[2] / "bridge" / "exports.txt"), ("needs",), ("guards",),
    ("soname", "liborbite_nixl.so.0")], ids=lambda mode: mode[0])
def test_the_placed_library_is_as_the_built_ones_are(mode):
    """It is another build than those that the C++ tests check."""
    name, *more = mode
    program = Path(__file__).parents[1] / "bridge" / "check_library.py"
    run_tool(sys.executable, str(program), name, str(agents.PLUGIN_DIR / bridge_soname()),
             *map(str, more))


# N10: loading


def test_n10_missing_bridge(start, tmp_path):
    """N10: without liborbite_nixl.so the agent says that there is no such backend, and lives on."""
    copy_plugin(tmp_path)
    agent = start("lonely", create=False, plugin_dir=tmp_path)
    for _ in range(2):
        with pytest.raises(AgentError) as refused:
            agent.create({})
        assert refused.value.kind == "nixlNotFoundError"
    copy_bridge(tmp_path)
    agent.create({"config": config_json()})


def test_n10_bridge_of_another_abi(start, tmp_path, compile_library):
    """N10: a bridge of another ABI version gives a clear message and is not called again."""
    stub = "\n".join(f"void {name}(void) {{ abort(); }}" for name in bridge_functions_used())
    source = tmp_path / "other_abi.c"
    source.write_text(
        "#include <stdint.h>\n#include <stdlib.h>\n"
        # The head of a record, then the version of the library.
        "struct abi { uint32_t size; uint16_t record[2]; uint16_t major, minor; };\n"
        "int orbite_nixl_abi_query(struct abi* abi, void* error);\n"
        "int orbite_nixl_abi_query(struct abi* abi, void* error) {\n"
        "  (void)error; abi->major = 97; abi->minor = 3; return 0; }\n" + stub)
    library = compile_library(source, "other.so", f"-Wl,-soname,{bridge_soname()}",
                              "-Wno-builtin-declaration-mismatch")
    copy_plugin(tmp_path)
    shutil.copy(library, tmp_path / bridge_soname())
    agent = start("other-abi", create=False, plugin_dir=tmp_path)
    with pytest.raises(AgentError) as refused:
        agent.create({})
    assert refused.value.kind == "nixlBackendError"
    assert "ABI 97.3" in agent.log()


def test_n10_bridge_without_a_function(start, tmp_path, compile_library):
    """N10: a bridge that lacks what the plugin calls is refused by the loader."""
    source = tmp_path / "poor.c"
    source.write_text("int poor(void);\nint poor(void) { return 0; }\n")
    library = compile_library(source, "poor.so", f"-Wl,-soname,{bridge_soname()}")
    copy_plugin(tmp_path)
    shutil.copy(library, tmp_path / bridge_soname())
    agent = start("poor", create=False, plugin_dir=tmp_path)
    with pytest.raises(AgentError) as refused:
        agent.create({})
    assert refused.value.kind == "nixlNotFoundError"


def test_n10_second_backend_of_a_type_is_refused(start):
    """N10: the agent itself allows one instance of a type; the first goes on."""
    agent = start("single")
    with pytest.raises(AgentError) as refused:
        agent.create({"config": config_json()})
    assert refused.value.kind == "nixlInvalidParamError"
    agent.notify("single", b"still here")
    assert agent.wait_notifications(1) == [("single", b"still here")]


def test_n10_failed_creation_can_be_tried_again(start):
    """N10: a refused creation leaves nothing behind in the process."""
    agent = start("again", create=False)
    for _ in range(20):
        with pytest.raises(AgentError):
            agent.create({"config": '{"tcp": {"nonsense": 1}}'})
    agent.create({"config": config_json()})
    agent.notify("again", b"alive")
    assert agent.wait_notifications(1) == [("again", b"alive")]


def test_libraries_need_only_the_run_time_of_c_and_cpp():
    """Nothing but libc, libm, libstdc++ and libgcc beside our own two files, found by $ORIGIN."""
    allowed = re.compile(r"linux-vdso|ld-linux|lib(c|m|stdc\+\+|gcc_s)\.so|liborbite_nixl\.so")
    for name in (PLUGIN, BRIDGE):
        for line in run_tool("ldd", str(agents.PLUGIN_DIR / name)).splitlines():
            assert allowed.search(line) and "not found" not in line, line
    dynamic = run_tool("readelf", "-d", str(agents.PLUGIN_DIR / PLUGIN))
    assert re.search(r"R(UN)?PATH.*\[\$ORIGIN\]", dynamic), dynamic


def test_plugin_exports_its_two_symbols_only():
    """What NIXL looks up, and nothing that could meet another plugin's symbol."""
    symbols = run_tool("nm", "-D", "--defined-only", str(agents.PLUGIN_DIR / PLUGIN))
    assert sorted(line.split()[-1] for line in symbols.splitlines()) == [
        "nixl_plugin_fini", "nixl_plugin_init"]


# Surprises of discovery


def test_s07_parameters_are_asked_again_and_again(start):
    """0.7: NIXL loads, asks and unloads the plugin around an engine that is in use."""
    agent = start("asked", create=False)
    for _ in range(50):
        assert agent.plugin_params() == ({"config": ""}, ["DRAM_SEG"])
    agent.create({"config": config_json()})
    for _ in range(50):
        assert agent.plugin_params() == ({"config": ""}, ["DRAM_SEG"])
    agent.notify("asked", b"alive")
    assert agent.wait_notifications(1) == [("asked", b"alive")]


def test_s08_the_directory_holds_one_plugin(start):
    """0.8: NIXL_PLUGIN_DIR replaces NIXL's own; nothing there but ORBITE looks like a plugin."""
    assert start("lister", create=False).plugins() == ["ORBITE"]


def test_s09_file_name_decides_the_type(start, tmp_path):
    """0.9: an alias of the plugin works under the name of its file."""
    copy_plugin(tmp_path, "libplugin_ALIAS.so")
    copy_bridge(tmp_path)
    (tmp_path / BRIDGE).symlink_to(bridge_soname())
    agent = start("aliased", backend="ALIAS", plugin_dir=tmp_path)
    address = agent.allocate("block", 4096, 1)
    agent.register("block")
    assert agent.transfer("WRITE", [(address, 64)], [(address + 64, 64)], "aliased") == "DONE"


# Parameters


@pytest.mark.parametrize("key", CONSUMER_KEYS)
def test_s13_keys_of_consumers_have_no_effect(start, key):
    """0.13: what NIXL's consumers add on their own is accepted."""
    agent = start("consumer", create=False)
    agent.create({"config": config_json(), key: "1"})


def test_s13_offered_parameters_can_be_handed_back(start):
    """0.13: nixlbench and the examples pass every offered key with its default."""
    agent = start("bench", create=False)
    agent.create(agent.plugin_params()[0])
    assert agent.backend_params() == {"config": ""}


def test_unknown_parameter_is_refused_by_name(start):
    """Anything else is refused, and the reason names it, which NIXL itself would not tell."""
    agent = start("strict", create=False)
    with pytest.raises(AgentError) as refused:
        agent.create({"config": config_json(), "tcp_prot": "1", "zeta": "2"})
    assert refused.value.kind == "nixlBackendError"
    assert "'tcp_prot'" in agent.log() and "'zeta'" in agent.log()


@pytest.mark.parametrize(
    "config, named",
    [
        ("not json", "line 1"),
        ("[]", "object"),
        ('{"tcp": {"nonsense": 1}}', "tcp.nonsense"),
        ('{"tcp": {"slice_bytes": "big"}}', "tcp.slice_bytes"),
        ('{"tcp": {"slice_bytes": 1}}', "tcp.slice_bytes"),
        ('{"tcp": {"enabled": true, "enabled": false}}', "tcp.enabled"),
        ('{"a":' * 200 + "1" + "}" * 200, ""),
        ('{"log": {"level": "' + "x" * (2 << 20) + '"}}', ""),
    ],
    ids=["not JSON", "no object", "unknown key", "wrong type", "out of range", "duplicate key",
         "too deep", "too big"])
def test_wrong_config_is_refused_with_its_key(start, config, named):
    """Bad input: the path of the key and what is allowed are in the log."""
    agent = start("misconfigured", create=False)
    with pytest.raises(AgentError) as refused:
        agent.create({"config": config})
    assert refused.value.kind == "nixlBackendError"
    assert named in agent.log()
    assert len(agent.log()) < 4096


def test_s12_config_file_for_consumers_without_parameters(start, tmp_path):
    """0.12: vLLM, LMCache and Dynamo pass no parameters, so ORBITE_CONFIG may name a file."""
    file = tmp_path / "orbite.json"
    file.write_text(json.dumps(LOOPBACK | {"notifications": {"message_bytes_max": 100}}))
    agent = start("filed", create=False, environment={"ORBITE_CONFIG": str(file)})
    agent.create({})
    agent.notify("filed", b"x" * 100)
    assert agent.wait_notifications(1) == [("filed", b"x" * 100)]
    with pytest.raises(AgentError):
        agent.notify("filed", b"x" * 101)


def test_s12_wrong_config_file_is_refused_by_name(start, tmp_path):
    """0.12: a file that is missing or wrong stops the creation and is named."""
    missing = tmp_path / "missing.json"
    agent = start("unfiled", create=False, environment={"ORBITE_CONFIG": str(missing)})
    with pytest.raises(AgentError):
        agent.create({})
    assert str(missing) in agent.log()
    missing.write_text('{"tcp": {"slice_bytes": 1}}')
    with pytest.raises(AgentError):
        agent.create({})
    assert "tcp.slice_bytes" in agent.log()


def test_the_parameter_wins_over_the_file(start, tmp_path):
    """A given `config` is the whole configuration."""
    file = tmp_path / "orbite.json"
    file.write_text("nonsense")
    start("chosen", environment={"ORBITE_CONFIG": str(file)})


def test_port_taken_and_foreign_address_are_named(start):
    """Bad input: a port that is taken and an address that is not ours."""
    holder = start("holder", create=False)
    port = holder.call("bind_port")
    taken = start("taken", create=False)
    with pytest.raises(AgentError):
        taken.create({"config": config_json(listen={"address": "127.0.0.1", "port": port})})
    assert str(port) in taken.log()
    with pytest.raises(AgentError):
        taken.create({"config": config_json(listen={"address": "192.0.2.1"})})
    assert "192.0.2.1" in taken.log()
