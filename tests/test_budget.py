"""No ring of the code outgrows its number in budget.toml, and every ring has one."""

import budget


def test_every_ring_is_within_its_budget():
    have, may = budget.count(), budget.allowed()
    assert may.keys() == have.keys()
    assert {ring: n for ring, n in have.items() if n > may[ring]} == {}


def test_only_lines_that_hold_code_count():
    text = '"Of the module."\n\nx = """not a\n\ndocstring"""  # a comment\n# another\n'
    assert budget.python_lines(text) == 3
    assert budget.script_lines("/* one\n   two */\nlet x\n// three\n\ny()\n") == 2
