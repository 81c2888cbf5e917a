"""What makes the build quick: a process for each core, plugins found once, less looking for waste.

Sphinx has an option for the first, which Jupyter Book does not hand on. Without all of this the
pages are the same.
"""

import functools
import gc
import os
import sys

import pybtex.plugin
from sphinx.ext import viewcode
from sphinx.util.parallel import ParallelTasks, make_chunks

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


def write_sources(app, collect=viewcode.collect_pages):
    "The pages of the modules, in as many processes; what is left for this one is their list."
    every = getattr(app.env, "_viewcode_modules", {})

    def write(names):  # what is False has no page of its own
        app.env._viewcode_modules = {n: n in names and entry for n, entry in every.items()}
        for page, context, template in collect(app):
            if page != f"{viewcode.OUTPUT_DIRNAME}/index":
                app.builder.handle_page(page, context, template)

    if app.parallel > 1:
        tasks = ParallelTasks(app.parallel - 1)
        for names in make_chunks(sorted(every), app.parallel - 1):
            tasks.add_task(write, names)
        tasks.join()
        app.env._viewcode_modules = dict.fromkeys(every, False)
    yield from collect(app)
    app.env._viewcode_modules = every


def setup(app):
    gc.set_threshold(100_000, 50, 50)  # trees of text are many objects, and most of them stay
    # pybtex looks through all installed packages again for each citation
    pybtex.plugin.entry_points = functools.cache(pybtex.plugin.entry_points)
    viewcode.collect_pages = write_sources  # before that extension is loaded
    app.connect("builder-inited", prepare)
    app.connect("env-updated", drop_unused)
    app.connect("build-finished", lambda app, error: gc.freeze())  # the system takes it all back
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
