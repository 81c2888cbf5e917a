"""The book's Sphinx extension: everything that happens between a source and the site, in order.

The changes to a chapter when it is read have their own list, STEPS in chapter.py. Directives are
functions that take what was written and return the nodes that replace it.
"""

import sys
from pathlib import Path

from docutils.parsers.rst import directives
from sphinx.util.docutils import SphinxDirective
from sphinx_external_toc.collectors import disable_builtin_toctree_collector

sys.path.insert(0, str(Path(__file__).parent / "_ext"))
import chapter
import code_lines
import family_tree
import formulas
import in_page
import live
import notebooks
import quizzes
import site_pages
import site_search
import tables
import ways

DIRECTIVES = {
    "drawing": ways.drawing,  # a drawing of this folder, with its caption
    "progress": ways.progress,  # how many exercises of the first pass are done, and the next one
    "transformer-map": ways.transformer_map,  # the map; for a part, folded and with it marked
    "reading-path": ways.reading_path,  # every chapter that the named chapters need
    "part": ways.part,  # on a page that opens a part: the map, and the part's chapters
    "widget": live.widget,  # a place that a script fills
    "quiz": quizzes.quiz,  # the questions of a part or a chapter
    "quiz-score": quizzes.score,  # a table of the parts
    "results": tables.results,  # the table of the records in results/
    "exercise-table": tables.all_exercises,  # a row for each exercise
    "exercise-count": tables.count_of_exercises,  # how many of each kind and mark
    "family-tree": family_tree.family_tree,  # an entry for each model
    "family-parts": family_tree.family_parts,  # which model has which part
    "family-opened": family_tree.family_opened,  # the families that `load_hf` opens
}

FIRST, THEN, LAST = 400, 500, 900  # before, among and after the theme and other extensions
LISTENERS = [
    # before anything is read
    ("config-inited", THEN, chapter.add_addresses),  # of the repository and the site
    ("config-inited", THEN, ways.say_counts),  # the numbers on the first page
    ("config-inited", LAST, site_pages.give_addresses),  # of each page, for previews on other sites
    ("builder-inited", THEN, site_search.switch_off),  # Sphinx's own search
    # a page is read
    ("source-read", THEN, chapter.on_source_read),  # STEPS of chapter.py
    ("autodoc-process-docstring", FIRST, chapter.hide_docs_of_types),  # not as a str
    ("autodoc-process-signature", THEN, chapter.plain_signature),  # of the command's functions
    # all pages are read and numbered
    ("env-updated", THEN, chapter.drop_builtins),  # they have no source to show
    ("write-started", THEN, site_pages.read_parts),  # for the contents beside each page
    # a page is put together
    ("doctree-resolved", THEN, chapter.fold_sections),  # such as the workshop
    ("doctree-resolved", THEN, chapter.frame_exercises),  # from the title to the solution
    ("doctree-resolved", THEN, chapter.lead_back),  # from the reference to the chapters
    ("doctree-resolved", LAST, formulas.take_signs),  # a full stop stays with its formula
    # a page is written
    ("html-page-context", FIRST, site_pages.give_parts),  # the contents beside it
    ("html-page-context", FIRST, site_pages.give_next),  # the next page of the first pass
    ("html-page-context", FIRST, site_pages.drop_card),  # the card doesn't describe the page
    ("html-page-context", FIRST, chapter.add_notation),  # a card with the letters
    ("html-page-context", THEN, code_lines.mark_lines),  # each line of code gets its indentation
    ("html-page-context", THEN, site_pages.mark_languages),
    ("html-page-context", THEN, formulas.keep_style),  # KaTeX's style, only if there are formulas
    ("html-page-context", THEN, formulas.colour_page),  # q, k and v in chapters of attention
    ("html-page-context", THEN, quizzes.add_scripts),  # only if there are questions or exercises
    ("html-page-context", LAST, chapter.lead_to_copy),  # the button that downloads a chapter
    ("html-page-context", LAST, site_pages.defer_scripts),  # no script delays the text
    # pages without a source
    ("html-collect-pages", THEN, site_pages.add_missing),  # for addresses that don't exist
    ("html-collect-pages", THEN, site_search.results_page),
    # the site is written
    ("build-finished", THEN, live.copy_models),  # the shipped models, which widgets run
    ("build-finished", THEN, in_page.write),  # what Python in the page runs
    ("build-finished", THEN, notebooks.bring_copies),  # copies of the chapters, to run elsewhere
    ("build-finished", THEN, site_search.write),  # the index of the finished pages
]


class Made(SphinxDirective):
    "The nodes that the function for this directive returns."

    optional_arguments = 1
    final_argument_whitespace = True
    has_content = True
    option_spec = dict.fromkeys(("ask", "by", "model"), directives.unchanged_required)

    def run(self):
        return DIRECTIVES[self.name](self)


def finished(act):
    "A listener for `build-finished` that does nothing after an error or without a site."

    def listen(app, error):
        if not error and app.builder.format == "html":
            act(app)

    return listen


def setup(app):
    for name in DIRECTIVES:
        app.add_directive(name, Made)
    for event, priority, act in LISTENERS:
        act = finished(act) if event == "build-finished" else act
        app.connect(event, act, priority=priority)
    disable_builtin_toctree_collector(app)
    app.add_env_collector(site_pages.ChapterNumbers)
    app.add_html_math_renderer("formulas", *formulas.RENDERERS)
    return {"version": "3", "parallel_read_safe": True, "parallel_write_safe": True}
