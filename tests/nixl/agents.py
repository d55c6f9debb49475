# SPDX-License-Identifier: Apache-2.0
"""NIXL agents in processes of their own, driven over pipes.

The test holds an AgentProcess; a Worker in the child owns the agent and answers one call at a time.
While nobody calls, the child sleeps in a read: the passive side of a transfer runs no code of its
application. Every wait has a bound.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import mmap
import multiprocessing
import os
import sys
import signal
import socket
import tempfile
import threading
import time
import traceback
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
# Where the plugin and the bridge are; a test may name another.
PLUGIN_DIR = Path(os.environ.get("ORBITE_TEST_PLUGIN_DIR", ROOT / "build" / "nixl-plugins"))

CALL_TIMEOUT_S = 60.0
GUARD_BYTES = 512
GUARD = 0xA5
LOOPBACK = {"listen": {"address": "127.0.0.1"}, "advertise": {"addresses": ["127.0.0.1"]}}
# Agents of one host use TCP, as if they were on two.
APART = {"cma": {"enabled": False}, "shm": {"enabled": False}}


def config_json(**sections: dict) -> str:
    """The engine configuration of tests: loopback and TCP only, and these sections beside it."""
    return json.dumps(LOOPBACK | APART | sections)


def neighbor_json(**sections: dict) -> str:
    """As config_json; agents of one host reach each other's memory themselves."""
    return json.dumps(LOOPBACK | sections)


def pattern(size: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)


class AgentError(Exception):
    """What the agent raised in its process. `kind` is the name of NIXL's exception."""

    def __init__(self, kind: str, message: str, details: str):
        super().__init__(f"{kind}: {message}\n{details}")
        self.kind = kind
        self.message = message


class ProcessGone(Exception):
    """The process of the agent ended or did not answer in time."""


class Block:
    """Memory between guards whose address ends in `offset` modulo the page size."""

    def __init__(self, size: int, seed: int | None, offset: int, shared: bool = False):
        page = mmap.PAGESIZE
        self.size = size
        self.start = page + offset
        whole = self.start + size + page
        self.map = shared_memory(whole) if shared else mmap.mmap(-1, whole)
        self.all = np.frombuffer(self.map, dtype=np.uint8)
        self.all[self.start - GUARD_BYTES : self.start] = GUARD
        self.all[self.start + size : self.start + size + GUARD_BYTES] = GUARD
        self.data = self.all[self.start : self.start + size]
        if seed is not None:
            self.data[:] = pattern(size, seed)
        self.address = self.data.ctypes.data

    def guards_intact(self) -> bool:
        before = self.all[self.start - GUARD_BYTES : self.start]
        after = self.all[self.start + self.size : self.start + self.size + GUARD_BYTES]
        return bool((before == GUARD).all() and (after == GUARD).all())


def shared_memory(size: int) -> object:
    """Of the library that the agent's plugin has loaded."""
    sys.path.insert(0, str(ROOT / "python"))
    import orbite

    return orbite.SharedMemory(size)


class Worker:
    """The calls that a test can make of an agent's process."""

    def __init__(self, name: str, backend: str, options: dict):
        from nixl_cu12._api import nixl_agent, nixl_agent_config, nixl_thread_sync_t

        self.backend = backend
        if options.get("namespace"):
            enter_network_namespace(options["namespace"])
        self.probe = options.get("probe")
        if self.probe:
            self._open_probe()
        config = nixl_agent_config(
            enable_prog_thread=options.get("progress_thread", True),
            capture_telemetry=options.get("telemetry", False),
            sync_mode=nixl_thread_sync_t[options.get("sync", "NIXL_THREAD_SYNC_NONE")],
            backends=[],
        )
        self.agent = nixl_agent(name, config)
        self.more_agents: dict[str, object] = {}
        self.blocks: dict[str, Block] = {}
        self.registered: dict[str, object] = {}
        self.handles: dict[int, object] = {}
        self.lists: dict[int, object] = {}
        self.next_id = 1
        self.received: list[tuple[str, bytes]] = []
        self.threads: dict[int, tuple[threading.Thread, list]] = {}

    def _open_probe(self) -> None:
        library = ctypes.CDLL(self.probe, mode=os.RTLD_NOW | os.RTLD_GLOBAL)
        bridge = Path(os.environ["NIXL_PLUGIN_DIR"]) / "liborbite_nixl.so"
        if library.orbite_probe_open(str(bridge).encode()) != 0:
            raise OSError(f"{bridge} cannot be opened")
        library.orbite_probe_info.restype = ctypes.c_long
        for name in ("engine", "request", "peer"):
            getattr(library, f"orbite_probe_{name}").restype = ctypes.c_uint64
        self.probe_library = library

    def _new_id(self) -> int:
        self.next_id += 1
        return self.next_id

    # Agent and backend

    def create(self, params: dict[str, str]) -> None:
        self.agent.create_backend(self.backend, params)

    def plugins(self) -> list[str]:
        return self.agent.get_plugin_list()

    def plugin_params(self) -> tuple[dict, list]:
        # The bindings themselves: nixl_agent keeps its first answer.
        return self.agent.agent.getPluginParams(self.backend)

    def backend_params(self) -> dict:
        return self.agent.get_backend_params(self.backend)

    def metadata(self) -> bytes:
        return self.agent.get_agent_metadata()

    def partial_metadata(self, keys: list[str]) -> bytes:
        descs = self.agent.get_reg_descs([self._registration(key) for key in keys], "DRAM")
        return self.agent.get_partial_agent_metadata(descs, True, [self.backend])

    def add(self, metadata: bytes) -> str:
        name = self.agent.add_remote_agent(metadata)
        return name.decode() if isinstance(name, bytes) else name

    def add_many(self, metadata: bytes, rounds: int) -> float:
        """Removes and adds one agent again and again; the seconds that one round took."""
        name = self.add(metadata)
        begin = time.monotonic()
        for _ in range(rounds):
            self.agent.remove_remote_agent(name)
            self.agent.add_remote_agent(metadata)
        return (time.monotonic() - begin) / rounds

    def remove(self, name: str) -> None:
        self.agent.remove_remote_agent(name)

    def knows(self, name: str) -> bool:
        return self.agent.check_remote_metadata(name)

    def connect(self, name: str) -> None:
        self.agent.make_connection(name)

    def end_agent(self) -> None:
        """Destroys the agent as a consumer does that just drops it."""
        self.handles.clear()
        self.lists.clear()
        self.agent = None
        gc.collect()

    # Memory

    def allocate(self, key: str, size: int, seed: int | None = None, offset: int = 0,
                 shared: bool = False) -> int:
        self.blocks[key] = Block(size, seed, offset, shared)
        return self.blocks[key].address

    def close_shared(self, key: str) -> bool:
        """Whether the memory of a block, which nobody looks at any more, lets itself be closed."""
        block = self.blocks[key]
        block.all = block.data = None
        try:
            block.map.close()
        except BufferError:
            return False
        del self.blocks[key]
        return True

    def blocks_address(self, key: str) -> int:
        return self.blocks[key].address

    def fill(self, key: str, seed: int) -> None:
        self.blocks[key].data[:] = pattern(self.blocks[key].size, seed)

    def content(self, key: str) -> bytes:
        return self.blocks[key].data.tobytes()

    def guards_intact(self) -> bool:
        return all(block.guards_intact() for block in self.blocks.values())

    def _registration(self, key: str) -> tuple[int, int, int, str]:
        block = self.blocks[key]
        return (block.address, block.size, 0, "")

    def register(self, key: str, device: int = 0, mem_type: str = "DRAM") -> None:
        block = self.blocks[key]
        entry = (block.address, block.size, device, "")
        self.registered[key] = self.agent.register_memory([entry], mem_type, [self.backend])

    def register_parts(self, key: str, parts: list[tuple[int, int]], label: str) -> None:
        """One registration for each (offset, size) of a block, as one list."""
        base = self.blocks[key].address
        entries = [(base + offset, size, 0, "") for offset, size in parts]
        self.registered[label] = self.agent.register_memory(entries, "DRAM", [self.backend])

    def deregister(self, key: str) -> None:
        self.agent.deregister_memory(self.registered.pop(key), [self.backend])

    def deregister_twice_in_one_list(self, key: str) -> None:
        entry = self._registration(key)
        descs = self.agent.get_reg_descs([entry, entry], "DRAM")
        self.agent.deregister_memory(descs, [self.backend])

    # Transfers. A part is (address, size) or (address, size, device).

    def _descs(self, parts: list) -> object:
        rows = [tuple(part) if len(part) == 3 else (*part, 0) for part in parts]
        return self.agent.get_xfer_descs(np.array(rows, dtype=np.uint64), "DRAM")

    def prepare(self, operation: str, local: list, remote: list, peer: str,
                notification: bytes = b"") -> int:
        handle = self.agent.initialize_xfer(operation, self._descs(local), self._descs(remote),
                                            peer, notification, [self.backend])
        number = self._new_id()
        self.handles[number] = handle
        return number

    def prepare_list(self, peer: str, parts: list) -> int:
        """A prepared list of one side; peer '' is this side."""
        number = self._new_id()
        if parts and len(parts[0]) == 5:
            rows = np.array(parts, dtype=np.uint64)
        else:
            rows = self._descs(parts)
        self.lists[number] = self.agent.prep_xfer_dlist(peer, rows, "DRAM", [self.backend])
        return number

    def prepare_by_index(self, operation: str, local_list: int, local: list[int],
                         remote_list: int, remote: list[int], notification: bytes = b"") -> int:
        handle = self.agent.make_prepped_xfer(
            operation, self.lists[local_list], local, self.lists[remote_list], remote,
            notification, [self.backend])
        number = self._new_id()
        self.handles[number] = handle
        return number

    def release_list(self, number: int) -> None:
        self.agent.release_dlist_handle(self.lists.pop(number))

    def post(self, number: int, notification: bytes = b"") -> str:
        return self.agent.transfer(self.handles[number], notification)

    def poll(self, number: int) -> str:
        return self.agent.check_xfer_state(self.handles[number])

    def wait(self, number: int, seconds: float = 30.0) -> str:
        """Polls until the state is not PROC, at most `seconds`."""
        end = time.monotonic() + seconds
        while True:
            state = self.poll(number)
            if state != "PROC" or time.monotonic() > end:
                return state
            time.sleep(0.0002)

    def run(self, number: int, notification: bytes = b"", seconds: float = 30.0) -> str:
        state = self.post(number, notification)
        return state if state != "PROC" else self.wait(number, seconds)

    def transfer(self, operation: str, local: list, remote: list, peer: str,
                 notification: bytes = b"") -> str:
        number = self.prepare(operation, local, remote, peer, notification)
        state = self.run(number, notification)
        self.release(number)
        return state

    def release(self, number: int) -> None:
        """The handle stays known here when the agent refuses."""
        self.agent.release_xfer_handle(self.handles[number])
        del self.handles[number]

    def drop_in_thread(self, numbers: list[int]) -> None:
        """Lets the garbage collector of another thread release these handles."""
        dropped = [self.handles.pop(number) for number in numbers]

        def drop() -> None:
            dropped.clear()
            gc.collect()

        thread = threading.Thread(target=drop)
        thread.start()
        thread.join(CALL_TIMEOUT_S / 2)
        assert not thread.is_alive()

    def telemetry(self, number: int) -> dict[str, int]:
        values = self.agent.get_xfer_telemetry(self.handles[number])
        return {"post_us": values.postDuration, "transfer_us": values.xferDuration,
                "bytes": values.totalBytes, "descriptors": values.descCount}

    def estimate(self, number: int) -> object:
        return self.agent.estimate_xfer_cost(self.handles[number])

    def query(self, key: str) -> object:
        return self.agent.query_memory([self._registration(key)], self.backend, "DRAM")

    # Notifications

    def notify(self, peer: str, message: bytes) -> None:
        # No backend named: the agent's own check of that argument refuses a handle.
        self.agent.send_notif(peer, message)

    def notify_many(self, peer: str, messages: list[bytes]) -> None:
        for message in messages:
            self.agent.send_notif(peer, message)

    def notifications(self) -> list[tuple[str, bytes]]:
        fetched = self.agent.get_new_notifs([self.backend])
        return [(name, bytes(message)) for name, list_ in fetched.items() for message in list_]

    def wait_notifications(self, count: int, seconds: float = 30.0) -> list[tuple[str, bytes]]:
        end = time.monotonic() + seconds
        received: list[tuple[str, bytes]] = []
        while len(received) < count and time.monotonic() < end:
            received += self.notifications()
            time.sleep(0.0002)
        return received

    # What is known of the engine

    def routes(self) -> dict[str, int]:
        bridge = Path(os.environ["NIXL_PLUGIN_DIR"]) / "liborbite_nixl.so"
        library = ctypes.CDLL(str(bridge), mode=os.RTLD_NOW | os.RTLD_NOLOAD)
        text = ctypes.create_string_buffer(1024)
        length = library.orbite_nixl_process_routes(text, ctypes.c_size_t(len(text)))
        assert length >= 0
        pairs = [entry.split(":") for entry in text.value.decode().split(",") if entry]
        return {name: int(count) for name, count in pairs}

    def info(self, index: int = 0) -> dict:
        text = ctypes.create_string_buffer(1 << 20)
        length = self.probe_library.orbite_probe_info(index, text, ctypes.c_size_t(len(text)))
        assert length >= 0, "no engine, or its answer does not fit"
        return json.loads(text.raw[:length])

    # Calls of the bridge that NIXL has none for; they need the probe

    def last_request(self) -> int:
        """The bridge's handle on what was prepared last."""
        return self.probe_library.orbite_probe_request()

    def last_peer(self) -> int:
        """The bridge's handle on the peer whose metadata was added last."""
        return self.probe_library.orbite_probe_peer()

    def cancel(self, request: int) -> int:
        return self.probe_library.orbite_probe_cancel(ctypes.c_uint64(request))

    def confirm_fenced(self, peer: int) -> int:
        return self.probe_library.orbite_probe_confirm_fenced(ctypes.c_uint64(peer))

    def confirm_epoch_fenced(self, epoch: str) -> int:
        return self.probe_library.orbite_probe_confirm_epoch(bytes.fromhex(epoch))

    def result(self, request: int) -> dict[str, int]:
        """Of a request's current execution, without progress; {"error": status} for a handle that
        is gone."""
        text = ctypes.create_string_buffer(512)
        length = self.probe_library.orbite_probe_result(ctypes.c_uint64(request), text,
                                                        ctypes.c_size_t(len(text)))
        return json.loads(text.value) if length >= 0 else {"error": -length}

    # What is left of an engine in this process

    def engine_threads(self) -> int:
        count = 0
        for task in Path("/proc/self/task").iterdir():
            with contextlib.suppress(OSError):  # it ends while we look
                count += (task / "comm").read_text().strip() == "orbite"
        return count

    def bridge_is_mapped(self) -> bool:
        return "liborbite_nixl" in Path("/proc/self/maps").read_text()

    # Helpers of tests

    def wall_clock_looks(self) -> int:
        """How often this process asked clock_shim.c for the time of day."""
        return ctypes.CDLL(None).orbite_clock_looks()

    def bind_port(self) -> int:
        """Listens on a port of loopback for as long as the process lives."""
        self.listener = socket.create_server(("127.0.0.1", 0))
        return self.listener.getsockname()[1]

    # Threads

    def call_in_thread(self, function: str, *arguments: object) -> int:
        """Starts a call of this worker in a thread of its own; join() answers it."""
        answer: list = []

        def body() -> None:
            try:
                answer.append(("ok", getattr(self, function)(*arguments)))
            except Exception as error:  # the caller of join() sees it
                answer.append(("error", describe(error)))

        thread = threading.Thread(target=body, daemon=True)
        number = self._new_id()
        self.threads[number] = (thread, answer)
        thread.start()
        return number

    def join(self, number: int, seconds: float = 30.0) -> object:
        thread, answer = self.threads.pop(number)
        thread.join(seconds)
        assert answer, f"the thread did not end within {seconds} s"
        kind, value = answer[0]
        if kind == "error":
            raise AgentError(*value)
        return value

    def many_transfers(self, operation: str, local: list, remote: list, peer: str,
                       rounds: int) -> int:
        """How many of `rounds` transfers ended with DONE."""
        return sum(self.transfer(operation, local, remote, peer) == "DONE" for _ in range(rounds))

    def time_of_end(self, number: int, seconds: float = 30.0) -> float:
        """Polls until the transfer has ended, however; time.monotonic() then."""
        end = time.monotonic() + seconds
        try:
            while self.poll(number) == "PROC" and time.monotonic() < end:
                time.sleep(0)
        except Exception:  # an error is an end
            pass
        return time.monotonic()

    def timed_runs(self, number: int, seconds: float,
                   watched: int) -> tuple[list[float], float | None]:
        """Runs a transfer again and again for so long and polls another one in between: the seconds
        of each run, and time.monotonic() at the end of the other one."""
        times, ended = [], None
        end = time.monotonic() + seconds
        while (begin := time.monotonic()) < end:
            state = self.post(number)
            while state == "PROC":
                state = self.poll(number)
            times.append(time.monotonic() - begin)
            if ended is None:
                try:
                    ended = None if self.poll(watched) == "PROC" else time.monotonic()
                except Exception:  # an error is an end
                    ended = time.monotonic()
        return times, ended

    def many_handshakes(self, metadata: bytes, name: str, rounds: int) -> int:
        for _ in range(rounds):
            self.agent.add_remote_agent(metadata)
            self.agent.remove_remote_agent(name)
        return rounds

    def many_notifications_to_self(self, rounds: int) -> int:
        name, count = self.agent.name, 0
        for number in range(rounds):
            self.notify(name, b"%d" % number)
            count += len(self.wait_notifications(1))
        return count

    def engines_on_one_range(self, count: int, key: str, rounds: int) -> list[int]:
        """Agents of this process that all register one block, each used from its own thread."""
        from nixl_cu12._api import nixl_agent, nixl_agent_config

        block = self.blocks[key]
        done = [0] * count
        agents = []
        for index in range(count):
            agent = nixl_agent(f"native-{index}", nixl_agent_config(False, backends=[]))
            agent.create_backend(self.backend, {"config": config_json()})
            agents.append(agent)

        def use(index: int) -> None:
            agent = agents[index]
            registered = agent.register_memory([(block.address, block.size, 0, "")], "DRAM")
            quarter = block.size // count
            base = block.address + index * quarter
            for _ in range(rounds):
                handle = agent.initialize_xfer(
                    "WRITE", agent.get_xfer_descs([(base, quarter // 2, 0)], "DRAM"),
                    agent.get_xfer_descs([(base + quarter // 2, quarter // 2, 0)], "DRAM"),
                    agent.name)
                state = agent.transfer(handle)
                end = time.monotonic() + 20
                while state == "PROC" and time.monotonic() < end:
                    state = agent.check_xfer_state(handle)
                done[index] += state == "DONE"
                agent.release_xfer_handle(handle)
            agent.deregister_memory(registered)

        threads = [threading.Thread(target=use, args=(index,)) for index in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(CALL_TIMEOUT_S / 2)
        return done


def enter_network_namespace(name: str) -> None:
    """Moves this thread, and all that it starts, into a namespace that `ip netns add` made."""
    descriptor = os.open(f"/var/run/netns/{name}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        clone_newnet = 0x40000000
        if libc.setns(descriptor, clone_newnet) != 0:
            raise OSError(ctypes.get_errno(), f"setns to {name}")
    finally:
        os.close(descriptor)


def describe(error: Exception) -> tuple[str, str, str]:
    if isinstance(error, AgentError):
        return error.kind, error.message, ""
    return type(error).__name__, str(error), traceback.format_exc()


def serve(pipe, name: str, backend: str, options: dict, log: str,
          variables: dict[str, str]) -> None:
    """The child process: one call at a time until the pipe closes or `exit` is asked."""
    os.environ.update(variables)
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(descriptor, 2)
    os.close(descriptor)
    worker = None
    while True:
        try:
            function, arguments = pipe.recv()
        except EOFError:
            return
        if function == "exit":
            pipe.send(("ok", None))
            return
        try:
            if worker is None:
                worker = Worker(name, backend, options)
            pipe.send(("ok", getattr(worker, function)(*arguments)))
        except Exception as error:  # the test decides whether it is a failure
            pipe.send(("error", describe(error)))


# What each agent's process needs is loaded once, by the server that they are forked from.
_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["numpy", "nixl_cu12._api", "agents"])


class AgentProcess:
    """An agent in a process of its own. Calls are those of Worker. With variables for the loader
    in `environment` (LD_PRELOAD) it is a fresh interpreter."""

    def __init__(self, name: str, backend: str = "ORBITE", plugin_dir: Path = PLUGIN_DIR,
                 environment: dict[str, str] | None = None, **options: object):
        self.name = name
        self.log_file = tempfile.NamedTemporaryFile(prefix=f"orbite-{name}-", suffix=".log")
        variables = {"NIXL_PLUGIN_DIR": str(plugin_dir)} | (environment or {})
        fresh = any(variable.startswith("LD_") for variable in variables)
        context = multiprocessing.get_context("spawn") if fresh else _processes
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(
            target=serve, daemon=True,
            args=(theirs, name, backend, options, self.log_file.name, variables))
        with changed_environment(variables if fresh else {}):
            self.process.start()
        theirs.close()
        self.stopped = False

    def __getattr__(self, function: str):
        return lambda *arguments, timeout=CALL_TIMEOUT_S: self.call(function, *arguments,
                                                                    timeout=timeout)

    def call(self, function: str, *arguments: object, timeout: float = CALL_TIMEOUT_S) -> object:
        try:
            self.pipe.send((function, arguments))
            if not self.pipe.poll(timeout):
                raise ProcessGone(f"{self.name}: no answer to {function} within {timeout} s; "
                                  f"log:\n{self.log()}")
            kind, value = self.pipe.recv()
        except (EOFError, BrokenPipeError, ConnectionResetError) as error:
            self.process.join(5)
            raise ProcessGone(f"{self.name}: gone in {function}, exit code "
                              f"{self.process.exitcode}; log:\n{self.log()}") from error
        if kind == "error":
            raise AgentError(*value)
        return value

    def log(self) -> str:
        """What the process wrote to its standard error."""
        return Path(self.log_file.name).read_text(encoding="utf-8", errors="replace")

    def stop(self) -> None:
        """Freezes the process: it neither sends nor receives until it is resumed."""
        os.kill(self.process.pid, signal.SIGSTOP)
        self.stopped = True
        state = Path(f"/proc/{self.process.pid}/stat")
        end = time.monotonic() + 10
        while state.read_text().rsplit(")", 1)[1].split()[0] not in "Tt":
            assert time.monotonic() < end, "the process does not stop"
            time.sleep(0.001)

    def resume(self) -> None:
        with contextlib.suppress(ProcessLookupError):  # it was killed, and has just gone
            os.kill(self.process.pid, signal.SIGCONT)
        self.stopped = False

    def kill(self) -> None:
        if self.process.is_alive():
            self.process.kill()
        self.process.join(10)

    def exit(self, timeout: float = 30.0) -> int:
        """Lets the process end by itself, the agent still in it; the exit code."""
        self.call("exit")
        self.process.join(timeout)
        if self.process.exitcode is None:
            raise ProcessGone(f"{self.name}: did not end within {timeout} s; log:\n{self.log()}")
        return self.process.exitcode

    def close(self) -> None:
        if self.stopped and self.process.is_alive():
            self.resume()
        self.kill()
        self.pipe.close()
        self.log_file.close()


@contextlib.contextmanager
def changed_environment(variables: dict[str, str]):
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
