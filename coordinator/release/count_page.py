"""report.html of a count: how many patients there are, and which, with the noise of each figure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any  # the parsed statement

from protocols.claims.strength import strength
from protocols.plural import counted
from protocols.release.counts import ANY, EVERYWHERE, Count
from protocols.study.deployed import DeployedStudy
from protocols.study.several_hospitals import each_seat
from runtime.page import document, table, text, verdict


def counts_page(
    study: DeployedStudy, counts: Sequence[Count], statement: Mapping[str, Any], *, missing: Sequence[str]
) -> str:
    """The page. counts: empty where nothing was released; missing: the seats whose patients are not counted."""
    worst = max((each.figure for each in each_seat(study)), key=lambda each: each.epsilon)
    left = [("Not counted:", f"{', '.join(map(study.named, missing))}, which did not answer.")] if missing else []
    points = [
        ("How sure:", "noise moves the true count out of its interval with a chance of 5 %. Patients who come later "
         "are not counted."),
        ("Below its noise:", "a count that could be of nobody is not printed; the true one is below the number given."),
        *left,
        ("Who is protected:", f"{strength(worst)} Who exactly, and who is not, is in privacy.html."),
    ]  # fmt: skip
    sites = list(dict.fromkeys(each.site for each in counts))
    body = [verdict(_says(study, counts), points)]
    for site in sites:
        held = [each for each in counts if each.site == site]
        heading = "All hospitals together" if site == EVERYWHERE else study.named(site)
        body += [f"<section><h2>{text(heading)}</h2>", *_tables(study, held), "</section>"]
    body.append('<p>Who saw what, and how to check it: <a href="privacy.html">privacy.html</a>.</p>')
    return document(title=statement["study"]["name"], kind="count of patients", body="\n".join(body),
                    study=statement["study"]["digest"])  # fmt: skip


def _says(study: DeployedStudy, counts: Sequence[Count]) -> str:
    if not counts:
        return "Nothing was counted."
    what = study.unit
    return f"These hospitals have {_words(counts[0])} {what}s of which the study could learn."


def _words(count: Count) -> str:
    if count.patients is None:
        return f"fewer than {count.high}"
    return f"about {count.patients} ({count.low} to {count.high})"


def _tables(study: DeployedStudy, held: Sequence[Count]) -> Iterable[str]:
    """A table for each column: a row for each value, with all classes and each of them."""
    labels = list(dict.fromkeys(each.label for each in held))
    head = [f"{study.terms.label} {label}" if label != ANY else "all" for label in labels]
    for column in dict.fromkeys(each.column for each in held):
        of = [each for each in held if each.column == column]
        values = list(dict.fromkeys(each.value for each in of))
        rows = [[value or "in all", *(_shown(each) for each in of if each.value == value)] for value in values]
        caption = column or f"How many {study.unit}s"
        yield table(f"{caption}, {counted(len(values), 'row')}" if column else caption, [column or "", *head], rows)


def _shown(count: Count) -> str:
    if count.patients is None:
        return f"below noise, < {count.high}"
    return f"{count.patients} ({count.low} to {count.high})"
