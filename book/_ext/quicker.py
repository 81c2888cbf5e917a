"""What makes the build quick: a process for each core, plugins found once, less looking for waste.

Sphinx has an option for the first, which Jupyter Book does not hand on. Without all of this the
pages are the same.
"""

import functools
import gc
import os
import sys

import pybtex.plugin

MOST = 4  # processes at once: each holds the whole book


def prepare(app):
    "A process for each core, beside this one, which resolves links; what is imported stays."
    gc.freeze()
    if sys.platform == "linux":
        app.parallel = 1 + min(len(os.sched_getaffinity(0)), MOST)
        # it numbers what all have read, and forgot to say that reading is safe
        app.extensions["sphinx_multitoc_numbering"].parallel_read_safe = True


def drop_unused(app, env):
    "Modules that no page documents: a process that reads a part of the book leaves some."
    found = getattr(env, "_viewcode_modules", {})
    for name in [name for name, entry in found.items() if not entry or not entry[2]]:
        del found[name]


def setup(app):
    gc.set_threshold(100_000, 50, 50)  # trees of text are many objects, and most of them stay
    # pybtex looks through all installed packages again for each citation
    pybtex.plugin.entry_points = functools.cache(pybtex.plugin.entry_points)
    app.connect("builder-inited", prepare)
    app.connect("env-updated", drop_unused)
    app.connect("build-finished", lambda app, error: gc.freeze())  # the system takes it all back
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
