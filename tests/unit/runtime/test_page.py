"""Pages: one look, a verdict first, and nothing that a browser would run or load."""

import re

import pytest

from runtime.page import cards, document, facts, lines, table, verdict

HOSTILE = "<script>alert('1')</script> \"quoted\" \x00"


def page(body=""):
    return document(title=HOSTILE, kind="test", body=body)


def test_a_page_loads_and_runs_nothing_and_tells_the_browser_so():
    html = page(verdict(HOSTILE, [(HOSTILE, HOSTILE)]) + table(HOSTILE, (HOSTILE, "b"), [(HOSTILE, HOSTILE)]))
    assert "default-src 'none'" in html
    assert "script-src" not in html
    assert "<script" not in html
    assert "http" not in html.replace("http-equiv", "")
    assert "url(" not in html


def test_whatever_is_said_is_escaped_and_control_characters_are_blanks():
    html = "".join(
        [
            verdict(HOSTILE, [(HOSTILE, HOSTILE)]),
            cards([(HOSTILE, HOSTILE, HOSTILE), ("none", None, "")]),
            table(HOSTILE, (HOSTILE, HOSTILE), [(HOSTILE, HOSTILE)]),
            facts([(HOSTILE, HOSTILE)]),
            lines([HOSTILE]),
        ]
    )
    assert "<script" not in html
    assert "\x00" not in html
    assert html.count("&lt;script&gt;") == 15
    assert "not measured" in html


def test_the_verdict_is_what_a_reader_meets_first():
    html = page(verdict("All is well.", [("Why?", "It is.")], tone="good") + "<h2>More</h2>")
    assert html.index("All is well.") < html.index("<h2>")
    assert 'class="verdict good"' in html


def test_a_table_names_its_rows_and_columns_also_where_it_folds():
    html = page(table("Strength", ("hospital", "epsilon"), [("north", 2.0)]))
    assert '<th scope="col">hospital</th>' in html
    assert '<th scope="row">north</th><td data-name="epsilon">2.0</td>' in html
    # A template's own table is named the same way, also where what is said looks like markup.
    own = '<table class="folds"><thead><tr><th scope="col">a</th><th scope="col">b &lt;td</th></tr></thead>'
    other = page(own + '<tbody><tr><th scope="row">x</th><td class="reading">1</td></tr></tbody></table>')
    assert '<td data-name="b &lt;td" class="reading">1</td>' in other
    assert "<caption>Strength</caption>" in html
    # A number alone would not say what it counts.
    assert '<th scope="row" data-name="parties">14</th>' in page(table("Groups", ("parties", "epsilon"), [(14, 2.0)]))


@pytest.mark.parametrize(("columns", "wide"), [(9, False), (10, True)])
def test_a_table_of_many_columns_is_set_smaller_so_that_it_fits_the_page(columns, wide):
    assert ('class="folds wide"' in page(table("Wide", ["a"] * columns, [["1"] * columns]))) == wide


def test_in_a_list_what_stands_between_backticks_is_code_and_stays_escaped():
    assert lines(["Run `verify <folder>`."]) == "<ul>\n<li>Run <code>verify &lt;folder&gt;</code>.</li>\n</ul>"


@pytest.mark.parametrize("media", ["(prefers-color-scheme: dark)", "(max-width: 36rem)", "@media print"])
def test_the_look_knows_the_dark_a_telephone_and_paper(media):
    assert media in page()


def test_every_colour_of_a_figure_is_redefined_for_the_dark():
    style = page()
    for name in set(re.findall(r"--c-\w+", style)):
        assert len(re.findall(rf"{name}: #", style)) == 2, name


def test_on_paper_wide_tables_lie_on_their_side_and_what_is_folded_is_shown():
    printed = document(title="t", kind="k", body="").partition("@media print")[2]
    assert "@page wide { size: landscape; }" in printed
    assert "table.wide { page: wide;" in printed
    assert "details::details-content { content-visibility: visible;" in printed
