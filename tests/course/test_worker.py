"""A program in a process of its own may do anything: who waits for it gets lines, or a reason.

Both ways to start a process are tried, the fork and, for systems without a good one, a new Python.
"""

import signal
import subprocess
import sys
import time

import pytest

from transformer_lit.course import worker
from transformer_lit.course.worker import Worker

pytestmark = pytest.mark.machinery

AWAY = """
import os, time
if not os.fork():
    os.setsid()  # it leaves the group that is killed, and holds the pipe open
    time.sleep(9)
os._exit(0)
"""
PIPE = "import os\nfor fd in range(3, 64):\n    try: os.write(fd, {})\n    except OSError: pass\n"
IGNORES = (
    "import signal\nfor n in {1, 2, 3, 15}: signal.signal(n, signal.SIG_IGN)\nwhile True: pass"
)
MEMORY = "try: bytearray(5 * 2**30)\nexcept MemoryError: send('too much')"
ENDED, LATE = "it ended its process", "it did not end within 1 seconds"
PROGRAMS = {
    "it sends": ("send(1)\nsend({'given': args})", [1, {"given": ["a", None]}], ""),
    "it prints": ("import os\nprint('x')\nos.write(1, b'{')\nos.write(2, b'{')\nsend(1)", [1], ""),
    "it reads": ("try: input()\nexcept EOFError: send('nothing')", ["nothing"], ""),
    "it raises": ("send(1)\n1 / 0", [1], ENDED),
    "it exits": ("send(1)\nraise SystemExit(0)", [1], ENDED),
    "it ends its process": ("send(1)\nimport os\nos._exit(0)\nsend(2)", [1], ENDED),
    "it kills its process": ("import os\nsend(1)\nos.kill(os.getpid(), 9)", [1], ENDED),
    "it kills its group": ("import os\nsend(1)\nos.kill(0, 9)", [1], ENDED),
    "it never ends": ("send(1)\nwhile True: pass", [1], LATE),
    "it sleeps": ("send(1)\nimport time\ntime.sleep(9)", [1], LATE),
    "it ignores signals": (IGNORES, [], LATE),
    "another holds the pipe": (AWAY, [], LATE),
    "it writes to every pipe": (PIPE.format("b'{]'"), [], ENDED),
    "it writes a deep list": (PIPE.format("b'[' * 60_000 + b'\\n'"), [], ENDED),
    "it never stops to send": (
        "while True: send('x' * 2**20)",
        ["x" * 2**20] * 7,
        "it sent more than 8 MB",
    ),
    "it takes too much memory": (MEMORY, ["too much"], ""),
}


@pytest.mark.parametrize("forks", [True, False])
@pytest.mark.parametrize(("program", "sent", "error"), PROGRAMS.values(), ids=PROGRAMS.keys())
def test_what_was_sent_until_then_comes_with_the_reason(forks, program, sent, error, monkeypatch):
    monkeypatch.setattr(worker, "_FORKS", forks and worker._FORKS)
    waits = error == LATE
    found = Worker(program, "a", None, seconds=1 if waits else 60)
    assert [*found] == sent and found.error.startswith(error) and bool(error) == bool(found.error)


def test_a_process_that_kills_the_one_that_forks_harms_no_other():
    first, second = Worker("import os\nos.kill(os.getppid(), 9)\nsend(1)"), Worker("send(2)")
    assert [*first] == [1] and [*second] == [2] and [*Worker("send(3)")] == [3]


@pytest.mark.parametrize("leaves", [False, True])
def test_nothing_of_it_is_left(tmp_path, leaves):
    "It runs in the folder that is named. A child that leaves its group is killed on Linux only."
    if leaves and not worker._FORKS:
        pytest.skip("no such signal here")
    child = (
        "import time\nfor n in range(999):\n    open('beat', 'w').write(str(n)); time.sleep(0.01)"
    )
    program = "import os, subprocess, sys, time\n"
    program += "subprocess.Popen([sys.executable, '-c', args[0]], start_new_session=args[1])\n"
    program += "while not os.path.exists('beat'): time.sleep(0.01)\n"
    found = Worker(program, child, leaves, folder=tmp_path)
    assert [*found] == [] and not found.error
    assert_still(tmp_path / "beat")


def assert_still(path):
    time.sleep(0.1)
    last = path.read_text()
    time.sleep(0.3)
    assert path.read_text() == last


@pytest.mark.skipif(not worker._FORKS, reason="no such signal here")
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_where_the_one_that_asks_is_ended_its_programs_are_too(tmp_path, how):
    beat = "n = 0\nwhile True:\n    n += 1; open('beat', 'w').write(str(n)); time.sleep(0.01)"
    program = f"import os, time\nif not os.fork():\n    os.setsid()\n    os.fork()\n{beat}"
    asks = "import sys; from transformer_lit.course.worker import Worker\n"
    asks += "[*Worker(sys.argv[1], folder=sys.argv[2])]"
    marker = subprocess.Popen([sys.executable, "-c", asks, program, tmp_path])
    while not (tmp_path / "beat").exists():
        time.sleep(0.01)
    marker.send_signal(how)
    marker.wait()
    time.sleep(0.5)
    assert_still(tmp_path / "beat")
