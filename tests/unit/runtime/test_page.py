"""Pages: one look, a verdict first, and nothing that a browser would run or load."""

import itertools
import re
from importlib.resources import files

import numpy as np
import pytest

from protocols.claims.strength import Figure
from runtime.board import Accuracy, known, worth
from runtime.page import COLOURS, cards, document, facts, lines, table, verdict

SERIES = ("blue", "vermillion", "green", "purple", "orange", "sky")

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


LOOK = (files("runtime") / "look.css").read_text()
LIGHT, DARK = (dict(re.findall(r"(--[\w-]+): (#\w{6})", each)) for each in LOOK.split("@media screen and", 2)[:2])
# Machado, Oliveira and Fernandes 2009, table 1: who lacks one kind of cone, in linear RGB.
_CONES = {
    "all": np.eye(3),
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)


def linear(colour):
    """sRGB to linear RGB (IEC 61966-2-1)."""
    values = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def contrast(one, other):
    """WCAG 2.2, contrast ratio."""
    dark, light = sorted(float(_XYZ[1] @ linear(each)) for each in (one, other))
    return (light + 0.05) / (dark + 0.05)


def lab(rgb):
    """CIE 1976 L*a*b* of linear RGB, white D65."""
    scaled = _XYZ @ rgb / np.array([0.95047, 1.0, 1.08883])
    x, y, z = np.where(scaled > 0.008856, np.cbrt(scaled), 7.787 * scaled + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("look", [LIGHT, DARK], ids=["light", "dark"])
def test_letters_stand_out_by_4_5_and_what_is_drawn_by_3(look):
    for place in ("--page", "--card", "--warn-page", "--good-page"):
        for letters in ("--text", "--soft", "--accent"):
            assert contrast(look[letters], look[place]) >= 4.5, (letters, place)
    for name in ("ink", "muted", "grey"):
        assert contrast(look[f"--c-{name}"], look["--page"]) >= 4.5, name
    for name in SERIES:
        assert contrast(look[f"--c-{name}"], look["--page"]) >= 3, name


@pytest.mark.parametrize("look", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("eyes", _CONES)
def test_colours_of_figures_are_told_apart_also_by_the_colour_blind(look, eyes):
    seen = {name: lab(np.clip(np.array(_CONES[eyes]) @ linear(look[f"--c-{name}"]), 0, 1)) for name in SERIES}
    for one, other in itertools.combinations(SERIES, 2):
        # 2.3 is a difference that is just noticed side by side; lines and dots are small, and lie apart.
        assert np.linalg.norm(seen[one] - seen[other]) >= 15, (one, other)


def test_every_colour_of_a_figure_is_redefined_for_the_dark():
    assert {name: colour for name, colour in LIGHT.items() if name.startswith("--c-")} == {
        f"--c-{name}": colour for name, colour in COLOURS.items()
    }
    assert {name for name in DARK if name.startswith("--c-")} == {f"--c-{name}" for name in COLOURS}


def test_on_paper_pages_have_numbers_and_the_study_and_folded_tables_stay_folded_but_for_the_annex():
    printed = document(title="t", kind="k", body="", study="ab" * 32).partition("@media print")[2]
    assert "@page wide { size: landscape; }" in printed
    assert "counter(page)" in printed
    assert f'"study {"ab" * 8}"' in printed
    assert ".annex::details-content { content-visibility: visible;" in printed
    assert "details::details-content" not in printed.replace(".annex::", "")
    assert "refresh" not in document(title="t", kind="k", body="")


def test_a_picture_for_a_board_is_text_and_boxes_and_says_what_it_shows():
    rows = [Accuracy("alone <", "alone", 0.725, 0.559, 0.8), Accuracy("pooled", "pooled", 0.824)]
    html = worth(rows, "Bars: the range.") + known(Figure(1.0, 1e-5), whose="one record", against="Against all.")
    assert "alone &lt;" in html
    assert "72.5\xa0%" in html
    # The axis begins at 50 %: 0.725 lies at 0.45 of it.
    assert "--at:0.4500" in html
    assert "--low:0.1180;--high:0.6000" in html
    # (e + 1e-5)/(e + 1), rounded up.
    assert "at most 74\xa0%" in html
    assert "<svg" not in html
