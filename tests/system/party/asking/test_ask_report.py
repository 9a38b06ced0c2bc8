"""The report of `ask`: a page that is well-formed, whatever names say, and whose figures are those of the JSON."""

import json
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from party.asking.report import Improvement, ask_figures, asking_page, cost, fixed_point, report_lines
from protocols.labelling.coordinator import NOT_ASKED, Labelling
from protocols.labelling.schedule import Stop
from protocols.plural import at_most
from protocols.votes import ABSTAIN
from tests.harness.askers import asked_study

HOSTILE = "<script>alert('1')</script>\"&|\x00\u202e"
VOID = {"meta", "line", "rect", "path"}
IMPROVED = Improvement(
    model="mlp",
    own_records=30,
    answered=3,
    test_records=500,
    accuracy_before=0.71,
    accuracy_after=0.746,
    error_before=0.0203,
    error_after=0.0195,
    interval_before=(0.669, 0.748),
    interval_after=(0.706, 0.782),
    gained=39,
    lost=21,
    agreement=0.995,
)


class Parsed(HTMLParser):
    """Elements must nest; tables by caption, the drawings' shapes, and all text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.tables: dict[str, list[list[str]]] = {}
        self.texts: list[str] = []
        self.feed(html.replace("\xa0%", " %"))
        self.close()
        assert self.open == [], "not closed"

    def handle_starttag(self, tag, attributes):
        assert len(dict(attributes)) == len(attributes), "an attribute twice"
        self.seen.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "caption":
            self.caption = ""
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_startendtag(self, tag, attributes):
        self.seen.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag
        if tag == "caption":
            self.rows = self.tables[self.caption] = []

    def handle_data(self, data):
        if self.open[-1:] == ["style"]:
            return
        self.texts.append(data)
        if self.open and self.open[-1] == "caption":
            self.caption += data
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data

    def shapes(self, kind):
        return [attributes for tag, attributes in self.seen if attributes.get("class") == kind]


def labelled(**changes):
    labels = np.array([0, 1, 1, ABSTAIN] + [NOT_ASKED] * 4)
    given = Labelling(
        labels,
        [(4, 3)],
        Stop("budget_exhausted", np.array([True, False, False])),
        np.array([4, 4, 0]) * 10**9,
        reinforced=np.full(8, ABSTAIN),
        batch_of=np.array([0] * 4 + [-1] * 4),
    )
    return replace(given, **changes)


NONE = np.zeros(3, dtype=np.int64)


def figures_of(study=None, improved=IMPROVED, reserved=NONE, **changes):
    figures = ask_figures(study or asked_study(), labelled(**changes), improved, reserved=reserved, data_set="ward")
    # What is drawn is what the file says, once it was written and read.
    return json.loads(json.dumps(figures))


def test_the_figures_of_the_page_are_those_of_the_json():
    figures = figures_of()
    found = Parsed(asking_page(figures))
    records = dict(found.tables["Your records"][1:])
    assert [int(value) for value in records.values()] == [8, 4, 3, 1, 4]
    assert found.tables["Labels of each class"][1:] == [[name, str(n)] for name, n in figures["classes"].items()]
    assert figures["classes"] == {"left": 1, "right": 2}
    assert found.tables["Accuracy on the test records"][1:] == [
        ["before", "30 own records", "71.0 %", "66.9 % to 74.8 %", "2.0 %"],
        ["after", "30 own records and 3 labels", "74.6 %", "70.6 % to 78.2 %", "1.9 %"],
    ]
    text = "".join(found.texts)
    for said in ("39 of them are right only after, 21 only before", "it gives 99.5 % of your records the same label"):
        assert said in text
    # On a terminal too.
    assert f"  {fixed_point(0.995)}" in report_lines(figures, IMPROVED)
    assert figures["study"] in text
    assert "3 hospitals have spent epsilon" in text


def test_nothing_from_outside_becomes_markup():
    figures = figures_of(improved=replace(IMPROVED, model=HOSTILE), refusals={HOSTILE: HOSTILE})
    figures |= dict.fromkeys(("name", "task", "data_set", "asks", "study"), HOSTILE)
    figures["classes"] = {HOSTILE: 3, "right": 1}
    html = asking_page(figures)
    found = Parsed(html)
    assert {tag for tag, _ in found.seen} <= {
        "html", "head", "meta", "title", "style", "body", "header", "p", "h1", "h2", "main", "div", "table", "caption",
        "thead", "tbody", "tr", "th", "td", "ul", "li", "svg", "line", "rect", "path", "text", "footer", "code",
        "section", "strong",
    }  # fmt: skip
    assert not any(name.startswith("on") or name in ("src", "href") for _, given in found.seen for name in given)
    assert "\x00" not in html
    assert "\u202e" not in html
    assert "<script>alert('1')</script>" in "".join(found.texts)


def test_the_page_loads_nothing_and_says_so_to_the_browser():
    html = asking_page(figures_of())
    found = Parsed(html)
    policies = [given["content"] for tag, given in found.seen if given.get("http-equiv") == "Content-Security-Policy"]
    assert [policy.split("; ")[0] for policy in policies] == ["default-src 'none'"]
    assert "script-src" not in policies[0]
    assert "//" not in html
    assert "url(" not in html


@pytest.mark.parametrize("stop", ["guardian_lost", "quorum_lost"])
def test_what_is_reserved_is_not_said_to_be_spent(stop):
    study, spent = asked_study(), np.array([4, 4, 0]) * 10**9
    given = {"stop": Stop(stop, np.zeros(3, dtype=bool)), "spent": spent}
    figures = figures_of(study, None, reserved=np.array([4, 1, 0]) * 10**9, **given)
    used, more = ([each[name] for each in figures["parties"]] for name in ("epsilon_used", "epsilon_reserved"))
    assert used == study.budgets.epsilon_of(np.array([0, 3, 0]) * 10**9).tolist()
    assert [sum(both) for both in zip(used, more, strict=True)] == pytest.approx(study.budgets.epsilon_of(spent))
    said = f"have spent epsilon 0 to {at_most(used[1])} of the 45 that they allow in this study, at delta 1e-05;"
    for text in ("\n".join(report_lines(figures, None)), "".join(Parsed(asking_page(figures)).texts)):
        assert f"{said} at most {at_most(more[0])} more is reserved" in text
    rows = Parsed(asking_page(figures)).tables["What each has spent"]
    assert ["hospital-0", "0", at_most(more[0]), "45", "1e-05"] in rows
    assert "reserved" not in cost(figures_of(study, None, **given))
