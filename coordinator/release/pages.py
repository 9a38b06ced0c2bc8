"""The pages of a release, made only from its statement: privacy.html, report.html, model_card.md, sbom.cdx.json.

They load nothing and run no scripts. Each is a function of its arguments to the byte, on every machine, so that
`verify` makes it again and compares: no library draws the figures. The bill of materials is in CycloneDX 1.6
(https://cyclonedx.org/docs/1.6/json/); the software in it is what was loaded when the release was written, which only
the coordinator can say.
"""

from __future__ import annotations

import functools
import hashlib
import math
import sys
import uuid
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any  # values of a statement

import jinja2
from markupsafe import Markup

from coordinator.release.statement import figure_from
from protocols.claims.strength import accused_in_words, strength
from protocols.installing import DISTRIBUTION
from protocols.plural import at_most, counted
from runtime.board import known
from runtime.page import TONES, document, facts, prose, text, verdict
from runtime.templates import templates

# Rows shown of the table for k hospitals; the rest is in privacy.json.
_MOST_ROWS = 12
# The other pages of a release, which its report links.
_LINKED = {
    "privacy.html": "who is protected, from whom, how strongly, who is not, and who saw what",
    "model_card.md": "what the student is for, and its limits",
}
# More rows than this are drawn without names; a name has at most so many letters in a figure.
_MOST_NAMES, _NAME = 40, 32


def privacy_page(statement: Mapping[str, Any]) -> str:
    """privacy.html."""
    several = statement["several_hospitals"]
    body = (
        _pages(autoescape=True)
        .get_template("privacy.html.j2")
        .render(
            s=statement,
            shown=_shown(len(several["any"]), first=several["charged_for"]),
            verdict=Markup(_privacy_verdict(statement)),
            more=Markup(facts(statement["in_short"]["more"].items())),
        )
    )
    return document(title=f"Privacy statement: {statement['study']['name']}", kind="privacy statement", body=body,
                    study=statement["study"]["digest"])  # fmt: skip


def model_card(
    statement: Mapping[str, Any],
    student: Mapping[str, Any] | None,
    counts: Sequence[int],
    judged: Sequence[tuple[str, str]] | None,
) -> str:
    """model_card.md. student: figures of the student, None where none was trained; counts: labels of each class;
    judged: what judges say of it, figure by figure, None where nobody judged."""
    return (
        _pages(autoescape=False)
        .get_template("model_card.md.j2")
        .render(s=statement, student=student, counts=counts, judged=judged, worst=_worst(statement))
    )


def report_page(
    statement: Mapping[str, Any],
    student: Mapping[str, Any] | None,
    counts: Sequence[int],
    batches: Sequence[tuple[int, int]],
    judged: Sequence[tuple[str, str]] | None,
) -> str:
    """report.html, with its figures inline. batches: size and answered queries of each."""
    body = (
        _pages(autoescape=True)
        .get_template("report.html.j2")
        .render(
            verdict=Markup(_report_verdict(statement, judged)),
            board=Markup(_report_board(statement)),
            s=statement,
            student=student,
            counts=counts,
            batches=batches,
            judged=judged,
            budget_plot=_budget_plot(statement["seats"]),
            batch_plot=_batch_plot(batches),
        )
    )
    return document(title=statement["study"]["name"], kind="report of a release", body=body,
                    study=statement["study"]["digest"])  # fmt: skip


def _privacy_verdict(statement: Mapping[str, Any]) -> str:
    """Who is protected, from whom and how strongly, who is not, and what is left to decide, as HTML."""
    short = statement["in_short"]
    points = [(f"{name}:", words) for name, words in short["points"].items()]
    return verdict(short["verdict"], points, tone=TONES.get(figure_from(_worst(statement)).rating, "warn"))


def _report_verdict(statement: Mapping[str, Any], judged: Sequence[tuple[str, str]] | None) -> str:
    """What was released, how often its model is wrong, and how strong the guarantee behind it is, as HTML."""
    whose = f"say {statement['protected']['unit']}s of the hospitals that did not vote"
    wrong = f"{judged[0][1]}, {whose}; the brackets hold in 95 of 100 studies." if judged else "not measured."
    queries, guarantee = statement["queries"], _worst(statement)
    if statement["records"] is None:
        says = f"{counted(queries['answered'], 'label')} of {queries['pool']} public records are released."
    else:
        asked = "features" if statement["records"]["graded"] else "queries"
        says = f"Noisy sums of all records' votes in {queries['answered']} public {asked} are released."
    return verdict(
        says,
        [
            ("It ended because", f"{queries['stop_in_words']}."),
            ("The model is wrong:", wrong),
            (
                "Patients' protection:",
                f"{strength(figure_from(guarantee))} Who is protected from whom, and who is not, is in privacy.html.",
            ),
        ],
    )


def _report_board(statement: Mapping[str, Any]) -> str:
    """What somebody can come to know, and where the rest is, as HTML."""
    figure, protected = figure_from(_worst(statement)), statement["protected"]
    against = f"{statement['in_short']['points']['Who is not protected']}"
    return "\n".join([
        "<h2>What does it cost in privacy?</h2>",
        known(figure, whose=f"one {protected['unit']} of the least protected hospital", against=against),
        "<ul>", *(f'<li><a href="{name}">{name}</a>: {said}</li>' for name, said in _LINKED.items()), "</ul>",
    ])  # fmt: skip


def _budget_plot(seats: Sequence[Mapping[str, Any]]) -> Markup:
    """The budget used by each seat as a share of its cap, in the roster's order."""
    shares = [100 * seat["budget_used_share"] for seat in seats]
    said = f"Budget used by each of {counted(len(seats), 'seat')}, as a share of its cap: at most {max(shares):.1f} %."
    rows = [(seat["seat"], share, 0.0) for seat, share in zip(seats, shares, strict=True)]
    return _bars(rows, most=100, axis="budget used, % of the cap", said=said)


def _batch_plot(batches: Sequence[tuple[int, int]]) -> Markup:
    """The numbers of answered and refused queries of each batch."""
    if not batches:
        return Markup()
    answered = sum(each for _, each in batches)
    refused = sum(size for size, _ in batches) - answered
    said = f"{counted(len(batches), 'batch')}: {counted(answered, 'query')} answered, {refused} refused."
    rows = [(f"batch {number}", each, size - each) for number, (size, each) in enumerate(batches)]
    return _bars(rows, most=max(size for size, _ in batches), axis="queries: answered, and refused (grey)", said=said)


def _bars(rows: Sequence[tuple[str, float, float]], *, most: float, axis: str, said: str) -> Markup:
    """Horizontal bars as SVG: a row's name, and two lengths one after the other; said: what is said instead of it."""
    step = 18 if len(rows) <= _MOST_NAMES else 600 / len(rows)
    end = step * len(rows)
    lines = [f'<svg role="img" aria-label="{text(said)}" viewBox="0 0 660 {end + 36:.1f}" font-size="11">']
    for at, (name, first, second) in enumerate(rows):
        if len(rows) <= _MOST_NAMES:
            lines.append(f'<text x="192" y="{step * at + 13:.1f}" text-anchor="end">{text(name[:_NAME])}</text>')
        start = 200.0
        for length, colour in ((first, "blue"), (second, "grey")):
            width = 440 * length / most
            place = f'x="{start:.1f}" y="{step * at + 2:.1f}" width="{width:.1f}" height="{step * 0.8:.1f}"'
            lines.append(f'<rect {place} fill="var(--c-{colour})"/>')
            start += width
    lines += [f'<path d="M200 0V{end:.1f}H640V0" fill="none" stroke="var(--c-grey)"/>']
    lines += [f'<text x="{x}" y="{end + 14:.1f}" text-anchor="middle">{n:g}</text>' for x, n in ((200, 0), (640, most))]
    lines += [f'<text x="420" y="{end + 30:.1f}" text-anchor="middle">{text(axis)}</text>', "</svg>"]
    return Markup("\n".join(lines))  # what was given is escaped


def _worst(statement: Mapping[str, Any]) -> Mapping[str, Any]:
    """The weakest guarantee of a hospital, together with all earlier releases that the statement names."""
    alone = [seat["guarantee"] for seat in statement["seats"]]
    rows: list[Mapping[str, Any]] = statement["earlier_releases"]["parties"] or alone
    return max(rows, key=lambda each: math.inf if each["epsilon"] is None else each["epsilon"])


def _shown(hospitals: int, *, first: int) -> list[int]:
    """The positions of the rows to show: more hospitals than `first`, which are charged for, and the whole roster."""
    rows = list(range(first, min(hospitals, _MOST_ROWS)))
    return rows if hospitals <= _MOST_ROWS else [*rows, hospitals - 1]


def _epsilon(value: float | None) -> str:
    """An epsilon as text; words if there is none."""
    return "none at this delta" if value is None else at_most(value)


def _rating(guarantee: Mapping[str, Any]) -> str:
    return figure_from(guarantee).rating


def _accused(guarantee: Mapping[str, Any]) -> str:
    return accused_in_words(figure_from(guarantee))


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


@functools.cache
def _pages(*, autoescape: bool) -> jinja2.Environment:
    return templates(
        "coordinator.release", autoescape=autoescape, at_most=at_most, epsilon=_epsilon, percent=_percent,
        prose=_prose, rating=_rating, accused=_accused,
    )  # fmt: skip


def _prose(sentences: str) -> Markup:
    return Markup(prose(sentences))  # which escapes


FORMAT = "1.6"


def bill_of_materials(
    statement: Mapping[str, Any], student: Mapping[str, Any] | None, released: Mapping[str, str]
) -> dict[str, Any]:
    """The document. statement: of the release; student: figures of the student, None where none was trained; released:
    the files of labels, or of sums and what is made of them, by name.
    """
    study = statement["study"]
    parts = [_library(*each) for each in sorted(statement["stated_by_the_coordinator"]["libraries"].items())]
    data = [_data(name, content, statement) for name, content in released.items()]
    model = [] if student is None else [_model(study, student, list(released))]
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": FORMAT,
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, study['digest'] + statement['created'])}",
        "version": 1,
        "metadata": {
            "timestamp": statement["created"],
            "component": {"type": "data", "bom-ref": "release", "name": study["name"], "version": study["digest"][:16]},
            "supplier": {"name": study["coordinator"]},
        },
        "components": [*model, *data, *parts],
        "dependencies": [
            {"ref": "release", "dependsOn": [each["bom-ref"] for each in [*model, *data]]},
            *({"ref": each["bom-ref"], "dependsOn": list(released)} for each in model),
        ],
    }


def libraries() -> dict[str, str]:
    """The distributions of which a module is loaded, this one among them, with their versions."""
    from importlib.metadata import version  # slow to import

    providers = _providers()
    names = {name for module in list(sys.modules) for name in providers.get(module, ())}
    return {name.lower().replace("_", "-"): version(name) for name in sorted({*names, DISTRIBUTION})}


def _model(study: Mapping[str, Any], student: Mapping[str, Any], data: Sequence[str]) -> dict[str, Any]:
    return {
        "type": "machine-learning-model",
        "bom-ref": "student",
        "name": f"{study['name']} student",
        "version": study["digest"][:16],
        "description": study["task"],
        "modelCard": {
            "modelParameters": {
                "task": "classification",
                "architectureFamily": student["kind"],
                "datasets": [{"ref": name} for name in data],
                "inputs": [{"format": f"float32 {student['input_shape']}"}],
                "outputs": [{"format": "class and probabilities"}],
            },
            "considerations": {
                "technicalLimitations": [
                    "It is no medical device. How often it is right on private data, if measured: model_card.md."
                ]
            },
        },
    }


def _data(name: str, content: str, statement: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "data",
        "bom-ref": name,
        "name": name,
        "version": statement["study"]["digest"][:16],
        "description": f"{statement['queries']['answered']} noisy labels, or sums, are released. "
        "privacy.json says how the hospitals' data behind them are protected.",
        "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(content.encode()).hexdigest()}],
    }


def _library(name: str, version: str) -> dict[str, Any]:
    return {
        "type": "library",
        "bom-ref": f"pkg:pypi/{name}@{version}",
        "name": name,
        "version": version,
        "purl": f"pkg:pypi/{name}@{version}",
    }


@cache
def _providers() -> Mapping[str, list[str]]:
    """The distributions by the packages that they bring."""
    from importlib.metadata import packages_distributions

    return packages_distributions()
