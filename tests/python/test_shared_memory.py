# SPDX-License-Identifier: Apache-2.0
"""The Python package: memory that engines can share, and the library that it finds.

The plugin is that of build/nixl-plugins, or of ORBITE_TEST_PLUGIN_DIR.
"""

from __future__ import annotations

import ctypes
import gc
import os
import re
import shutil
import subprocess
import sys
import weakref
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "python"
PLUGINS = Path(os.environ.get("ORBITE_TEST_PLUGIN_DIR", ROOT / "build" / "nixl-plugins"))
SONAME = "liborbite_nixl.so.0"

sys.path.insert(0, str(PACKAGE))
ctypes.CDLL(str(PLUGINS / SONAME))
import orbite  # noqa: E402


def run(code: str, package: Path = PACKAGE, **environment: str) -> subprocess.CompletedProcess[str]:
    """In a Python of its own, which finds nothing by inheritance."""
    clean = {key: value for key, value in os.environ.items()
             if not key.startswith(("ORBITE_", "NIXL_")) and key != "LD_LIBRARY_PATH"}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120,
                          check=False, env=clean | {"PYTHONPATH": str(package)} | environment)


def succeeds(code: str, **options: object) -> str:
    done = run(code, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def is_mapped(address: int) -> bool:
    for line in Path("/proc/self/maps").read_text().splitlines():
        first, last = (int(part, 16) for part in line.split(maxsplit=1)[0].split("-"))
        if first <= address < last:
            return True
    return False


def descriptors() -> int:
    """Of what is alive: what others left behind in a cycle is not counted."""
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def shared_by_library(memory: orbite.SharedMemory) -> bool:
    """The library knows it: the same range cannot be shared a second time."""
    try:
        number = orbite._library.library().shared_import(
            memory._descriptor, memory.address, memory.nbytes)
    except orbite.OrbiteError as error:
        return "overlap" in str(error)
    orbite._library.library().shared_free(number)
    return False


def test_an_array_is_a_view_of_it():
    with orbite.SharedMemory(10_000) as memory:
        assert memory.nbytes == len(memory) == 10_000
        assert memory.address % 4096 == 0
        numbers = np.frombuffer(memory, dtype=np.float32)
        assert numbers.nbytes == 10_000 and not numbers.any()
        numbers[-1] = 1.5
        assert ctypes.c_float.from_address(memory.address + 9_996).value == 1.5
        ctypes.memset(memory.address, 0xFF, 4)
        assert numbers.view(np.uint32)[0] == 0xFFFFFFFF
        assert shared_by_library(memory)
        del numbers


def test_its_pages_are_a_sealed_memory_file():
    with orbite.SharedMemory(4096) as memory:
        target = os.readlink(f"/proc/self/fd/{memory._descriptor}")
        assert target.startswith("/memfd:orbite")
        with pytest.raises(PermissionError):
            os.ftruncate(memory._descriptor, 0)
        with pytest.raises(OSError):
            memory.resize(8192)


def test_a_view_keeps_it_alive():
    before = descriptors()
    memory = orbite.SharedMemory(1 << 16)
    address = memory.address
    gone = weakref.ref(memory)
    array = np.frombuffer(memory, dtype=np.uint8)
    part = array[100:200]
    del memory, array
    gc.collect()
    part[:] = 3
    assert gone() is not None and is_mapped(address)
    del part
    gc.collect()
    assert gone() is None and not is_mapped(address)
    assert descriptors() == before


def test_it_is_not_closed_under_a_view():
    memory = orbite.SharedMemory(4096)
    array = np.frombuffer(memory, dtype=np.uint8)
    with pytest.raises(BufferError, match="4096 bytes has views"):
        memory.close()
    array[0] = 1
    assert not memory.closed and shared_by_library(memory)
    with pytest.raises(BufferError), memory:
        pass
    del array
    memory.close()
    memory.close()
    assert memory.closed and "closed" in repr(memory)
    with pytest.raises(ValueError, match="closed"):
        memory.address
    with pytest.raises(ValueError):
        np.frombuffer(memory, dtype=np.uint8)


def test_it_is_not_unmapped_under_a_registration(monkeypatch):
    """The library's own word on that is tested with it; here, what becomes of the word."""
    memory = orbite.SharedMemory(4096)
    address = memory.address
    library = orbite._library.library()
    free = library.shared_free

    def refuse(shared: int) -> None:
        raise orbite.OrbiteError("active", orbite._library.ERR_ACTIVE)

    monkeypatch.setattr(library, "shared_free", refuse)
    with pytest.raises(BufferError, match="registered with an engine"):
        memory.close()
    number = memory._shared
    assert number != 0 and not memory.closed and is_mapped(address)
    del memory
    gc.collect()
    assert is_mapped(address)
    free(number)


def test_closing_gives_everything_back():
    before = descriptors()
    for _ in range(20):
        with orbite.SharedMemory(4096) as memory:
            address = memory.address
        assert not is_mapped(address)
    assert descriptors() == before


@pytest.mark.parametrize("size", [0, -1, 1.5, "4096", None])
def test_impossible_sizes_are_refused_by_value(size):
    before = descriptors()
    with pytest.raises(ValueError, match=re.escape(repr(size))):
        orbite.SharedMemory(size)
    assert descriptors() == before


def test_what_cannot_be_had_leaves_nothing_behind():
    before = descriptors()
    with pytest.raises((OSError, OverflowError, ValueError, orbite.OrbiteError)):
        orbite.SharedMemory(1 << 61)
    gc.collect()
    assert descriptors() == before


def test_huge_pages_are_whole_ones_or_an_error():
    before = descriptors()
    try:
        memory = orbite.SharedMemory(1, huge_pages=True)
    except OSError:
        gc.collect()
        assert descriptors() == before
        return
    with memory:
        assert memory.nbytes >= 1 << 16 and memory.nbytes & (memory.nbytes - 1) == 0
        np.frombuffer(memory, dtype=np.uint8)[-1] = 1


def test_a_forked_child_sees_the_pages_and_shares_nothing():
    answer = succeeds("""
import os, orbite
memory = orbite.SharedMemory(4096)
memory[0] = 5
child = os.fork()
if child == 0:
    code = 1
    if memory[0] == 5:
        memory[1] = 6
        memory.close()
        with orbite.SharedMemory(4096) as own:
            code = 0 if own.address else 2
    os._exit(code)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0
assert memory[1] == 6
memory.close()
print("as promised")
""", NIXL_PLUGIN_DIR=str(PLUGINS))
    assert answer == "as promised\n"


def test_info_names_the_library():
    found = orbite.info()
    assert found["abi"] >= (0, 3)
    assert re.fullmatch(r"\d+\.\d+\.\d+", found["version"])
    assert Path(found["path"]).samefile(PLUGINS / SONAME)


def test_plugin_dir_is_where_the_plugin_is():
    assert Path(orbite.plugin_dir()).samefile(PLUGINS)
    named = succeeds("import orbite; print(orbite.plugin_dir())", NIXL_PLUGIN_DIR=str(PLUGINS))
    assert Path(named.strip()).samefile(PLUGINS)


def test_a_loaded_library_goes_before_every_other(tmp_path):
    copy = tmp_path / SONAME
    shutil.copy(PLUGINS / SONAME, copy)
    path = succeeds(f"""
import ctypes
ctypes.CDLL({str(copy)!r})
import orbite
print(orbite.info()["path"])
""", NIXL_PLUGIN_DIR=str(PLUGINS))
    assert Path(path.strip()) == copy


def test_two_loaded_libraries_are_an_error_that_names_both(tmp_path):
    copy = tmp_path / SONAME
    shutil.copy(PLUGINS / SONAME, copy)
    done = run(f"""
import ctypes
ctypes.CDLL({str(copy)!r})
ctypes.CDLL({str(PLUGINS / SONAME)!r})
import orbite
orbite.info()
""")
    assert done.returncode != 0
    assert "more than one" in done.stderr and str(copy) in done.stderr


@pytest.mark.parametrize("first", ["package", "plugin"])
def test_the_plugin_and_the_package_use_one_copy(tmp_path, first):
    for name in (SONAME, "libplugin_ORBITE.so"):
        shutil.copy(PLUGINS / name, tmp_path / name)
    # The package would look there itself; the plugin stands beside another copy.
    package = "import orbite; memory = orbite.SharedMemory(4096)"
    plugin = f"""
import ctypes
ctypes.CDLL({str(tmp_path / "libplugin_ORBITE.so")!r})
"""
    steps = [package, plugin] if first == "package" else [plugin, package]
    loaded = succeeds("\n".join(steps) + """
print(*{line.split()[5] for line in open("/proc/self/maps") if "liborbite_nixl" in line}, sep="\\n")
""", NIXL_PLUGIN_DIR=str(PLUGINS)).split()
    assert len(loaded) == 1
    expected = PLUGINS if first == "package" else tmp_path
    assert Path(loaded[0]).samefile(expected / SONAME)


def test_without_a_library_the_error_says_where_it_looked(tmp_path):
    shutil.copytree(PACKAGE / "orbite", tmp_path / "some" / "orbite")
    empty = tmp_path / "empty"
    empty.mkdir()
    code = "import orbite\norbite.SharedMemory(1)"
    done = run(code, package=tmp_path / "some", NIXL_PLUGIN_DIR=str(empty))
    assert done.returncode != 0
    for looked in (empty / SONAME, tmp_path / "build" / "nixl-plugins" / SONAME):
        assert str(looked) in done.stderr
    assert "NIXL_PLUGIN_DIR" in done.stderr and "make plugin" in done.stderr


def test_a_library_that_is_none_is_named(tmp_path):
    (tmp_path / SONAME).write_text("no library")
    done = run("import orbite\norbite.info()", NIXL_PLUGIN_DIR=str(tmp_path))
    assert done.returncode != 0
    assert f"{tmp_path / SONAME} cannot be loaded" in done.stderr


def test_the_example_of_the_documentation_runs():
    text = (ROOT / "docs" / "shared-memory.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    lines = succeeds(example, NIXL_PLUGIN_DIR=str(PLUGINS)).splitlines()
    assert lines[-1] == orbite.info()["version"]
