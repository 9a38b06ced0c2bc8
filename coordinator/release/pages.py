"""The pages of a release, made only from its statement: privacy.html, report.html, model_card.md.

They load nothing and run no scripts.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any  # values of a statement

import jinja2
from markupsafe import Markup

from coordinator.release.verdicts import privacy_verdict, report_verdict
from protocols.claims import rating, rounded_up, sure_in_words
from runtime.page import document, prose
from runtime.templates import templates

# Rows shown of the table for k hospitals; the rest is in privacy.json.
_MOST_ROWS = 12


def privacy_page(statement: Mapping[str, Any]) -> str:
    """privacy.html; a function of the statement alone, so that `verify` can make it again."""
    body = (
        _pages(autoescape=True)
        .get_template("privacy.html.j2")
        .render(
            s=statement,
            shown=_shown(len(statement["several_hospitals"]["any"])),
            verdict=Markup(privacy_verdict(statement)),
        )
    )
    return document(title=f"Privacy statement: {statement['study']['name']}", kind="privacy statement", body=body)


def model_card(statement: Mapping[str, Any], student: Mapping[str, Any] | None, counts: Sequence[int]) -> str:
    """model_card.md. student: figures of the student, None where none was trained; counts: labels of each class."""
    return _pages(autoescape=False).get_template("model_card.md.j2").render(s=statement, student=student, counts=counts)


def report_page(
    statement: Mapping[str, Any],
    student: Mapping[str, Any] | None,
    counts: Sequence[int],
    batches: list[tuple[int, int]],
) -> str:
    """report.html, with its plots inline."""
    from coordinator.release.plots import batch_plot, budget_plot

    body = (
        _pages(autoescape=True)
        .get_template("report.html.j2")
        .render(
            verdict=Markup(report_verdict(statement)),
            s=statement,
            student=student,
            counts=counts,
            batches=batches,
            budget_plot=Markup(budget_plot(statement["seats"])),  # drawn here; matplotlib escapes the names
            batch_plot=Markup(batch_plot(batches)) if batches else "",
        )
    )
    return document(title=statement["study"]["name"], kind="report of a release", body=body)


def _shown(hospitals: int) -> list[int]:
    """The positions of the rows to show: 2, 3, ... hospitals, and the whole roster."""
    first = list(range(1, min(hospitals, _MOST_ROWS)))
    return first if hospitals <= _MOST_ROWS else [*first, hospitals - 1]


def _epsilon(value: float | None) -> str:
    """An epsilon as text, rounded up so that a page never promises more than the statement; words if there is none."""
    if value is None:
        return "none at this delta"
    return f"{rounded_up(value):.{3 if value < 100 else 0}f}"


def _rating(epsilon: float | None) -> str:
    return "no guarantee" if epsilon is None else rating(epsilon)


def _sure(guarantee: Mapping[str, Any]) -> str:
    """How sure somebody can become, of a guarantee as the statement holds it."""
    epsilon = guarantee["epsilon"]
    return "100 %" if epsilon is None else sure_in_words(epsilon, guarantee["delta"])


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


@functools.cache
def _pages(*, autoescape: bool) -> jinja2.Environment:
    return templates(
        "coordinator.release", autoescape=autoescape, epsilon=_epsilon, percent=_percent, prose=_prose,
        rating=_rating, sure=_sure,
    )  # fmt: skip


def _prose(sentences: str) -> Markup:
    return Markup(prose(sentences))  # which escapes
