"""Run a stranger's chat template in a limited process, and track where each letter came from."""

import atexit
import contextlib
import functools
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from transformer_lit.course.files import InputError
from transformer_lit.course.worker import launch

SECONDS, MEGABYTES = 10.0, 512  # limits for a template; published ones take milliseconds
LONGEST = 2**20  # letters that it may write, far more than today's models can read in a chat
DARK = "·"  # marks a letter in a shade that came from the messages


class Said(str):
    """A text that knows which of its letters were passed in and which the template wrote.

    `shade` is as long as the text. It has the same letters where the template wrote them, and
    `DARK` for letters that were passed in, except for spaces.
    """

    shade: str

    def __new__(cls, text: str, shade: str) -> "Said":
        said = super().__new__(cls, text)
        said.shade = shade
        return said

    def __str__(self) -> str:  # so that str() keeps the shade
        return self

    def __getitem__(self, at: Any) -> "Said":
        return Said(super().__getitem__(at), self.shade[at])

    def __iter__(self) -> Iterator["Said"]:
        return map(Said, super().__iter__(), self.shade)


def shade_of(value: Any, *, handed: bool = False) -> Any:
    "The shades of all texts in a JSON value; `handed`: a text without a shade was passed in."
    if isinstance(value, Said):
        return value.shade
    if isinstance(value, str):
        return re.sub(r"\S", DARK, value) if handed else value
    if isinstance(value, dict):
        return {
            shade_of(k, handed=handed and not _WORD.fullmatch(k)): (
                v if _is_role(k, v) else shade_of(v, handed=handed)
            )
            for k, v in value.items()
        }
    if isinstance(value, (list, tuple)):
        return type(value)(shade_of(v, handed=handed) for v in value)
    return value


_WORD = re.compile(r"[\w-]+")


def _is_role(key: Any, value: Any) -> bool:
    return key == "role" and isinstance(value, str) and bool(_WORD.fullmatch(value))


def shaded(value: Any, shade: Any) -> Any:
    "The value with these shades; a text whose shade doesn't fit counts as passed in."
    if isinstance(value, (list, tuple)):
        fits = isinstance(shade, (list, tuple)) and len(shade) == len(value)
        return type(value)(shaded(v, shade[n] if fits else None) for n, v in enumerate(value))
    if isinstance(value, dict):
        fits = isinstance(shade, dict) and len(shade) == len(value)
        pairs = shade.items() if fits else [(None, None)] * len(value)
        both = zip(value.items(), pairs, strict=True)
        return {shaded(k, its): shaded(v, its_value) for (k, v), (its, its_value) in both}
    if not isinstance(value, str) or isinstance(value, Said):
        return value
    fits = isinstance(shade, str) and len(shade) == len(value)
    fits = fits and all(s in (letter, DARK) for letter, s in zip(value, shade, strict=True))
    shade = shade if fits else shade_of(value, handed=True)
    return value if shade == value else Said(value, shade)


def _both(call: Callable, *args: Any, **more: Any) -> Any:
    "`call` applied to texts; the same call applied to their shades gives the result's shade."
    args = tuple(list(x) if isinstance(x, Iterator) else x for x in args)
    found = call(*args, **more)
    if not isinstance(found, (str, list, tuple)) or isinstance(found, Said):
        return found
    shades, named = shade_of(args), shade_of(more)
    if shades == args and named == more:
        return found
    try:
        return shaded(found, call(*shades, **named))
    except Exception:  # the call depends on the letters
        return shaded(found, None)


def _shown(value: Any) -> Any:
    return _both(str, value) if isinstance(value, (list, tuple, dict)) else value


class _Glue(NodeTransformer):
    "Turns `a ~ b` into a filter, so that it keeps shades as every filter does."

    def visit_Concat(self, node: nodes.Concat, *args: Any) -> nodes.Filter:
        self.generic_visit(node)
        parts = nodes.List(node.nodes, lineno=node.lineno)
        return nodes.Filter(parts, "join", [], [], None, None, lineno=node.lineno)


class _Generation(Extension):
    "`{% generation %}` encloses the text that a model is trained on; here it is only written."

    tags = {"generation"}

    def parse(self, parser: Any) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class _Sandbox(ImmutableSandboxedEnvironment):
    "Jinja as published templates expect it, with strings that keep their shades."

    intercepted_binops = frozenset("+%*")

    def __init__(self) -> None:
        more = ["jinja2.ext.loopcontrols", _Generation]
        how = {"trim_blocks": True, "lstrip_blocks": True, "finalize": _shown}
        super().__init__(**how, extensions=more)
        self.filters |= {"tojson": _tojson}  # Jinja's own is for HTML
        self.filters = {name: _keeping(filter_) for name, filter_ in self.filters.items()}
        self.globals |= {"raise_exception": _raise, "strftime_now": _now}

    @staticmethod
    def concat(parts: Iterable[str]) -> str:
        return _both("".join, list(parts))

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        return _both(self.binop_table[operator], left, right)

    def call(__self, __context: Any, __obj: Any, *args: Any, **more: Any) -> Any:
        call = functools.partial(super().call, __context)
        method = getattr(__obj, "__wrapped__", __obj)  # `format` is wrapped
        if not isinstance(own := getattr(method, "__self__", None), str):
            return call(__obj, *args, **more)

        def again(own: str, *args: Any, **more: Any) -> Any:
            return call(__self.getattr(own, method.__name__), *args, **more)

        return _both(again, own, *args, **more)


def _keeping(filter_: Callable) -> Callable:
    @functools.wraps(filter_)
    def keep(*args: Any, **more: Any) -> Any:
        return _both(filter_, *args, **more)

    return keep


def _tojson(x: Any, ensure_ascii: bool = False, indent: Any = None, **more: Any) -> str:
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, **more)


def _raise(what: str) -> None:
    raise TemplateError(what)


def _now(form: str) -> str:
    return datetime.now().strftime(form)


@functools.lru_cache(8)
def _compiled(template: str) -> Any:
    sandbox = _Sandbox()
    return sandbox.from_string(_Glue().visit(sandbox.parse(template)))


def _serve() -> None:
    "Read templates from standard input, one JSON line each, and print the results likewise."
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is meant for the asking process
    with contextlib.suppress(ImportError, ValueError, OSError):  # some systems have no such limit
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEGABYTES * 2**20,) * 2)
    for line in sys.stdin:
        try:
            template, names, shades = json.loads(line)
            text = _compiled(template).render(shaded(names, shades))
            if len(text) > LONGEST:
                raise ValueError(f"it writes {len(text):,} letters, more than {LONGEST:,}")
            answer = json.dumps([text, shade_of(text)])
        except MemoryError:
            return
        except Exception as error:
            answer = json.dumps(" ".join(str(error).split()) or type(error).__name__)
        print(answer, flush=True)


_lock, _servers = threading.Lock(), {}


def _server() -> subprocess.Popen:
    "The process for templates, which starts with the first one and ends with this process."
    if (server := _servers.get(os.getpid())) is None:  # a forked process starts its own
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        server = _servers[os.getpid()] = launch(__name__, "_serve", **pipes, encoding="utf-8")
    return server


@atexit.register
def _end() -> None:
    if server := _servers.pop(os.getpid(), None):
        server.kill()
        server.communicate()


def write(template: str, handed: dict[str, Any], known: dict[str, Any]) -> Said:
    """The text that a template writes, with its shade. The texts in `handed` are passed in.

    `known` holds further names, whose texts count as the template's own. Raises `InputError` if
    the template fails, rejects the messages, or takes more than `SECONDS` or `MEGABYTES`.
    """
    shades = shade_of(handed, handed=True) | known
    try:
        asked = json.dumps([template, handed | known, shades])
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"the chat template takes values of JSON only: {error}") from error
    with _lock:
        try:
            server = _server()
            timer = threading.Timer(SECONDS, server.kill)
            timer.start()
            try:
                server.stdin.write(f"{asked}\n")
                server.stdin.flush()
                line = server.stdout.readline(25 * LONGEST)  # a text and its shade, in JSON
            finally:
                timer.cancel()
            found = json.loads(line)
        except (OSError, ValueError):
            _end()
            most = f"{SECONDS:g} s or {MEGABYTES} MB"
            raise InputError(f"the chat template fails: it takes more than {most}") from None
        except BaseException:  # Ctrl-C: no one waits for the answer any more
            _end()
            raise
    if isinstance(found, str):
        raise InputError(f"the chat template fails: {found}")
    return Said(*found)
