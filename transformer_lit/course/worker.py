"""Run a program that someone else wrote in its own process, which sends back only JSON.

The program can't affect the process that waits for it. If it exits, loops for ever, fills the
memory or replaces functions, the waiting process only receives fewer lines. But it runs with the
user's rights, so it can still read and delete files.
"""

import atexit
import ctypes
import importlib
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any

SECONDS = 60  # default time limit of a program
MEMORY = 4 * 2**30  # bytes of memory that it may allocate; Linux only
LARGEST = 8 * 2**20  # bytes that it may send
_ENDED = "it ended its process, or something ended it"
_FORKS = sys.platform == "linux"  # on other systems, libraries that torch uses don't survive a fork


def in_thread(work: Callable[[], Any]) -> Future:
    """Run `work` in a thread and return a future of its result. Python can exit without waiting.

    This is for library calls that may never return and that let other threads run meanwhile. An
    exception meant to end Python, such as SystemExit, becomes a RuntimeError.
    """
    future: Future = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except Exception as error:
            future.set_exception(error)
        except BaseException as error:
            future.set_exception(RuntimeError(str(error)))

    threading.Thread(target=run, daemon=True).start()
    return future


class Worker:
    """Runs a program in another process. Iterating yields the messages that the program sends.

    In the program, `send(message)` sends any JSON value, and `args` holds the arguments. After the
    iteration, `error` is empty if the program ran to its end; otherwise it gives the reason.

    `seconds`: the process is killed this long after its start. `memory`: limit in bytes, None for
    no limit. `folder`: the working directory. `imports`: one of our modules that the program needs
    and that is slow to import; it is imported once for all programs.
    """

    def __init__(
        self,
        program: str,
        *args: Any,
        seconds: float | int = SECONDS,
        memory: int | None = MEMORY,
        folder: str | Path = ".",
        imports: str = "torch",
    ):
        request = {"program": program, "args": args, "memory": memory, "imports": imports}
        request["folder"] = os.path.abspath(folder)
        self.error, self._seconds, self._sent_too_much = "", seconds, False
        self._stream, self._pid = _start(json.dumps(request).encode())
        self._until = time.monotonic() + seconds

    def __iter__(self) -> Iterator[Any]:
        lines: queue.Queue[bytes] = queue.Queue()
        threading.Thread(target=self._listen, args=(lines,), daemon=True).start()
        self.error = _ENDED
        try:
            while line := lines.get(timeout=max(0.0, self._until - time.monotonic())):
                message = json.loads(line)
                if message == "the end":
                    self.error = ""
                    return
                yield message
        except queue.Empty:
            self.error = f"it did not end within {self._seconds:g} seconds"
        except (ValueError, RecursionError):
            pass  # the program wrote to the pipe itself, or its last line was cut
        finally:
            if self._sent_too_much:
                self.error = f"it sent more than {LARGEST >> 20} MB: an answer is far too large"
            self._kill()

    def _listen(self, lines: queue.Queue) -> None:
        "Runs in a thread, because a process that outlives the program may keep the pipe open."
        room = LARGEST
        with suppress(OSError), self._stream:
            while line := self._stream.readline(room):  # with no room left, this reads nothing
                room -= len(line)
                self._sent_too_much = room <= 0
                lines.put(line)
        lines.put(b"")

    def _kill(self) -> None:
        "Kill the process and the processes that it has started."
        with suppress(OSError):
            if sys.platform == "win32":
                os.kill(self._pid, signal.SIGTERM)
            else:
                os.killpg(self._pid, signal.SIGKILL)
        if _FORKS:
            _server.ended(self._pid)


def launch(module: str, call: str, **more: Any) -> subprocess.Popen:
    "Start another Python with the same module path, which calls one function of a module."
    path = os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, sys.path)])
    line = [sys.executable, "-P", "-c", f"from {module} import {call}; {call}()"]
    env = {**os.environ, "PYTHONPATH": path}
    return subprocess.Popen(line, env=env, stderr=subprocess.DEVNULL, **more)


def _start(request: bytes) -> tuple[Any, int]:
    "The stream that the program writes to, and the id of its process."
    if not _FORKS:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        process = launch(__name__, "_run_one", **pipes, start_new_session=True)
        with process.stdin:
            process.stdin.write(request)
        return process.stdout, process.pid
    reader, writer = os.pipe()
    try:
        return os.fdopen(reader, "rb"), _server.fork(request, writer)
    finally:
        os.close(writer)


# --- one process imports torch and forks for each program ----------------------------------------


class _Server:
    "The process that forks. It runs no program itself, and is restarted if a program kills it."

    def __init__(self) -> None:
        self._process: subprocess.Popen | None = None
        self._lock = threading.Lock()

    def fork(self, request: bytes, writer: int) -> int:
        "Run a request in a fork that writes to `writer`; returns the fork's process id."
        with self._lock:
            for _ in range(2):
                with suppress(OSError, ValueError):
                    self.begin()
                    self._used = True
                    socket.send_fds(self._link, [request], [writer])
                    return int(self._link.recv(99))
                self.end()
        raise OSError("the process that runs programs does not answer")

    def ended(self, pid: int) -> None:
        "A program has ended: kill any processes it left, even those in other process groups."
        with suppress(OSError):  # the server has gone
            self._link.send(str(pid).encode())

    def begin(self) -> None:
        "Start the process if it isn't running, without waiting for it."
        if self._process is not None:
            return
        self._link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._used = False
        with theirs:
            self._process = launch(__name__, "_serve", stdin=theirs, stdout=subprocess.DEVNULL)
        self._link.settimeout(SECONDS)

    def end(self) -> None:
        if self._process is not None:
            self._link.close()  # the server then kills its children and exits
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(5 * self._used)
            self._process.kill()
            self._process.wait()
            self._process = None


def prepare() -> None:
    "Start the server that the first `Worker` would wait for, while the caller imports torch."
    if _FORKS:
        _server.begin()


_server = _Server()
atexit.register(_server.end)


def _serve() -> None:
    "Fork for each incoming request. Modules that programs need are imported first."
    import torch  # noqa: F401

    link = socket.socket(fileno=0)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # finished forks don't become zombies
    # PR_SET_CHILD_SUBREAPER: when its parent ends, a process becomes a child of this one.
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
    running, seen = set(), 0
    while True:
        request, (*writer,), *_ = socket.recv_fds(link, 2**20, 1)
        if not writer:  # one program has ended, or all of them if the asking process has exited
            running = running - {int(request)} if request else set()
            _end_children(running)
            if not request:
                os._exit(0)
            continue
        seen += 1
        if seen == 2:  # an optimizer's first step imports this, which takes more than a second
            importlib.import_module("torch._dynamo")
        importlib.import_module(json.loads(request)["imports"])
        if not (pid := os.fork()):
            link.detach()
            _run(request, *writer)
        os.close(*writer)
        running.add(pid)
        link.send(str(pid).encode())


def _end_children(kept: set[int]) -> None:
    "Kill all children of this process except those in `kept`, then the children they leave."
    listed = Path(f"/proc/self/task/{os.getpid()}/children")
    for _ in range(1000):  # a process of another user can't be killed
        if not (found := {*map(int, listed.read_text().split())} - kept):
            return
        for pid in found:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.001)


def _run_one() -> None:
    _run(sys.stdin.buffer.read(), os.dup(1))


def _run(request: bytes, writer: int) -> None:
    "Run a program as the leader of a session, then end the process."
    try:
        if hasattr(os, "setsid") and os.getsid(0) != os.getpid():
            os.setsid()
        if hasattr(signal, "SIGCHLD"):
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)
        given, stream = json.loads(request), os.fdopen(writer, "w", encoding="utf-8")
        if _FORKS and given["memory"]:
            import resource

            resource.setrlimit(resource.RLIMIT_DATA, (given["memory"],) * 2)

        def send(message: Any) -> None:
            print(json.dumps(message), file=stream, flush=True)

        os.chdir(given["folder"])
        os.environ |= {"MPLBACKEND": "agg", "TRANSFORMER_LIT_PROGRESS": "off"}
        exec(given["program"], {"send": send, "args": given["args"]})
        send("the end")
    finally:
        os._exit(0)
