"""Kernels that start in a tenth of the time: forks of one process that has done the slow imports.

Every notebook still gets a kernel of its own, in which nothing has run yet. Where a process cannot
be forked, kernels start as they always do.
"""

import atexit
import io
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

# Not matplotlib_inline.backend_inline: imported before there is a shell, it shows no figures in it.
IMPORTS = """
import IPython.core.completerlib, IPython.core.debugger, IPython.core.oinspect
import IPython.extensions.storemagic, ipykernel.debugger, ipykernel.kernelapp
import faulthandler, psutil, sqlite3, tornado.platform.asyncio
import torch, torch._dynamo, torch.distributed.fsdp, torch.testing, torch.utils.flop_counter
import matplotlib.backends.backend_svg, matplotlib.pyplot
import filelock, jaxtyping, jinja2.sandbox, sacrebleu, safetensors.torch, tokenizers, typer
"""


class Zygote:
    "A process that waits for the names of connection files, and answers with the ids of forks."

    def __init__(self):
        own = [sys.executable, __file__]
        self.process = subprocess.Popen(own, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        atexit.register(self.process.stdin.close)  # which ends it

    def launch(self, cmd, *, cwd=None, env=None, **_):
        "In the place of `jupyter_client.launcher.launch_kernel`."
        order = {"file": cmd[cmd.index("-f") + 1], "cwd": cwd, "env": dict(env or os.environ)}
        self.process.stdin.write(json.dumps(order).encode() + b"\n")
        self.process.stdin.flush()
        return Fork(int(self.process.stdout.readline()))


class Fork:
    "What a kernel's manager asks of a process."

    stdin = stdout = stderr = None

    def __init__(self, pid):
        self.pid = pid

    def poll(self):
        "None while it lives."
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return 0
        return None

    def wait(self, timeout=60):
        "Until it has ended."
        end = time.monotonic() + timeout
        while self.poll() is None and time.monotonic() < end:
            time.sleep(0.002)
        return self.poll()

    def send_signal(self, number):
        "To the process, if it still lives."
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def terminate(self):
        "Ask it to end."
        self.send_signal(signal.SIGTERM)

    def kill(self):
        "End it, and return when it has ended."
        self.send_signal(signal.SIGKILL)
        self.wait()


def become_kernel(order, answers):
    "What a fork does; it never returns. It gives its id when it can be talked to."
    from ipykernel.kernelapp import IPKernelApp

    os.environ.clear()
    os.environ.update(order["env"])
    os.chdir(order["cwd"] or ".")
    sys.argv[1:] = ["-f", order["file"], "--HistoryManager.hist_file=:memory:"]
    sys.path[0] = ""  # as for a kernel that was started afresh
    app = IPKernelApp.instance()
    try:
        app.initialize()
    finally:
        os.write(answers, f"{os.getpid()}\n".encode())
        os.close(answers)
    app.start()
    os._exit(0)


def draw():
    "One figure: the first finds fonts, builds the grammar of formulas and takes a quarter second."
    from matplotlib.figure import Figure

    figure = Figure()
    figure.text(0, 0, "$x$")
    figure.savefig(io.BytesIO(), format="svg")


def main():
    "Fork once for each line of standard input."
    os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"  # as ipykernel sets it
    sys.modules["debugpy"] = None  # the debugger of a kernel: a second to import, and not used here
    exec(IMPORTS, {})
    draw()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # a fork that ends leaves nothing behind
    answers = os.dup(1)
    os.dup2(2, 1)
    for line in sys.stdin:
        order = json.loads(line)
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setsid()  # a signal to its group must not reach ours
            os.close(0)
            os.open(os.devnull, os.O_RDONLY)
            become_kernel(order, answers)


if __name__ == "__main__":
    main()
