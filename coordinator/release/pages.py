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
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any  # values of a statement

import jinja2
from markupsafe import Markup

from coordinator.release.statement import figure_from
from protocols.claims.languages import LANGUAGES, say
from protocols.claims.strength import accused_in_words
from protocols.installing import DISTRIBUTION
from protocols.plural import at_most, counted
from runtime.board import Accuracy, known, notice, percent, worth
from runtime.page import TONES, Bar, document, facts, prose, table, verdict
from runtime.templates import templates

# Rows shown of the table for k hospitals, and names on the cover of those whose guarantee is the same; the rest is in
# privacy.json, and all names are in privacy.html.
_MOST_ROWS, _MOST_NAMES = 12, 6
_WRONGLY = "wrongly named, with 50 of 100 found"
# What the cover of a release explains, as people who read it are no statisticians.
_WORDS = {
    "model (student)": "What is handed out. It is made of what was released alone, never of a hospital's records.",
    "pool": "The public records that the study labelled. None is of a patient of these hospitals.",
    "epsilon, delta": "How much one person's data can show in what is released, in the worst case: the smaller, the "
    "better they are protected. Delta is a small remainder.",
    "cap": "The most epsilon that a hospital allowed the study. Its own node enforces it.",
}


def translated(language: str) -> str:
    """The name of the page of a statement in another language."""
    return f"privacy.{language}.html"


def privacy_page(statement: Mapping[str, Any]) -> str:
    """privacy.html."""
    short, several = statement["in_short"], statement["several_hospitals"]
    shown = _shown(len(several["any"]), first=several["charged_for"])
    body = (
        _pages()
        .get_template("privacy.html.j2")
        .render(
            s=statement,
            named=_named(statement),
            shown=shown,
            verdict=Markup(_privacy_verdict(statement, short)),
            more=Markup(facts(short["more"].items())),
            guaranteed=Markup(_guaranteed(statement, names=None)),
            several=Markup(_several(statement, shown)),
            who_saw_what=Markup(_who_saw_what(statement)),
            languages=[(language, translated(language), name) for language, name in LANGUAGES.items()],
        )
    )
    return document(title=f"Privacy statement: {statement['study']['name']}", kind="privacy statement", body=body,
                    study=statement["study"]["digest"])  # fmt: skip


def translated_pages(statement: Mapping[str, Any]) -> dict[str, str]:
    """The statement in short in each other language, by the file's name."""
    study = statement["study"]
    return {
        translated(language): document(
            title=say(language, "page title", study=study["name"]),
            kind=say(language, "page"),
            body=f"{_privacy_verdict(statement, short)}\n<p>{prose(say(language, 'page says'))} "
            '<a href="privacy.html" hreflang="en">privacy.html</a>.</p>',
            study=study["digest"],
            language=language,
        )
        for language, short in statement["in_short"]["languages"].items()
    }


def model_card(
    statement: Mapping[str, Any],
    student: Mapping[str, Any] | None,
    counts: Sequence[tuple[str, int]],
    judged: Sequence[tuple[str, str]] | None,
) -> str:
    """model_card.md. student: figures of the student, None where none was trained; counts: labels of each class, or
    finding; judged: what judges say of it, figure by figure, None where nobody judged."""
    counted, worst = _counted(statement), _worst(statement)
    card = _pages().get_template("model_card.md.j2")
    return card.render(s=statement, student=student, counts=counts, named=counted, judged=judged, worst=worst)


def report_page(
    statement: Mapping[str, Any],
    student: Mapping[str, Any] | None,
    counts: Sequence[tuple[str, int]],
    batches: Sequence[tuple[int, int]],
    judged: Sequence[tuple[str, str]] | None,
    accuracy: Sequence[Accuracy] | None,
) -> str:
    """report.html, the cover of a release. batches: size and answered queries of each; accuracy: of the model, with the
    ends of its interval, None where nobody judged it."""
    body = (
        _pages()
        .get_template("report.html.j2")
        .render(
            verdict=Markup(_report_verdict(statement, student, judged)),
            board=Markup(_report_board(statement, judged, accuracy)),
            s=statement,
            student=student,
            counts=counts,
            named=_counted(statement),
            batches=batches,
            budgets=Markup(_budgets(statement)),
            answered=Markup(_answered(batches)),
        )
    )
    return document(title=statement["study"]["name"], kind="report of a release", body=body,
                    study=statement["study"]["digest"])  # fmt: skip


def _counted(statement: Mapping[str, Any]) -> str:
    """What is counted of each class, or finding."""
    if statement["study"]["findings"]:
        return "public records above its mean probability" if statement["records"] else "labels that name it"
    return "public records for which it is the likeliest" if statement["records"] else "labels released"


def _named(statement: Mapping[str, Any]) -> Callable[[str], str]:
    """Seats and parties, as people call them: with a display name, where the study gives one."""
    shown = {each[of]: each["display_name"] for each in statement["seats"] for of in ("party", "seat")}
    return lambda name: f"{shown[name]} ({name})" if shown.get(name) else name


def _privacy_verdict(statement: Mapping[str, Any], short: Mapping[str, Any]) -> str:
    """Who is protected, from whom and how strongly, who is not, and what is left to decide, as HTML."""
    points = [(f"{name}:", words) for name, words in short["points"].items()]
    return verdict(short["verdict"], points, tone=TONES.get(figure_from(_worst(statement)).rating, "warn"))


def _report_verdict(
    statement: Mapping[str, Any], student: Mapping[str, Any] | None, judged: Sequence[tuple[str, str]] | None
) -> str:
    """How often the model is wrong, what was released, and how strong the guarantee behind it is, as HTML."""
    queries, short = statement["queries"], statement["in_short"]
    if statement["records"] is None:
        released = f"{counted(queries['answered'], 'label')} of {queries['pool']} public records"
    else:
        asked = "features" if statement["records"]["graded"] else "queries"
        released = f"noisy sums of all records' votes in {queries['answered']} public {asked}"
    model, found = "How often the model is wrong was not measured.", []
    if judged:
        model = f"The model is wrong {judged[0][1]}."
        whose = f"{statement['protected']['unit']}s that the hospitals kept from voting"
        found = [("Who found this:", f"{whose}; the brackets hold in 95 of 100 studies.")]
    elif student is None:
        model = "No model is released, and how often the labels are wrong was not measured."
    points = [
        *found,
        ("What is released:", f"{released}{'' if student is None else ', and a model that is made of them'}."),
        ("It ended because", f"{queries['stop_in_words']}."),
        ("Patients:", short["verdict"]),
    ]
    useful = figure_from(_worst(statement)).rating in TONES
    return verdict(model, points, tone="plain" if judged and useful else "warn")


def _report_board(
    statement: Mapping[str, Any], judged: Sequence[tuple[str, str]] | None, accuracy: Sequence[Accuracy] | None
) -> str:
    """How good the model is, what somebody can come to know, who is protected from whom, and where the rest is."""
    figure, protected = figure_from(_worst(statement)), statement["protected"]
    points = list(statement["in_short"]["points"].values())
    against = f"This holds against {points[1][0].lower()}{points[1][1:]}"
    files = {
        "privacy.html": "who is protected, from whom, how strongly, who is not; all figures, and how to check them",
        **{translated(language): f"the same in short ({name})" for language, name in LANGUAGES.items()},
        "model_card.md": "what the model is for, and its limits",
        **({"evaluation.json": "how often it is right, figure by figure"} if judged else {}),
        "study.toml": "what the hospitals agreed to",
    }
    good = []
    if judged and accuracy:
        whose = f"{protected['unit']}s that were kept from voting"
        right = worth(list(accuracy), f"For {whose}; bar: the 95 % interval.")
        figures = table(f"Found by {whose}; 95 % intervals in brackets", ("figure", "value"), judged)
        good = ["<h2>How good is the model?</h2>", right, figures]
    return "\n".join([
        *good,
        "<h2>What does it cost in privacy?</h2>",
        known(figure, whose=f"one {protected['unit']} of the least protected hospital", against=against),
        notice("Not protected:", points[3]),
        _guaranteed(statement, names=_MOST_NAMES),
        "<h2>Who saw what</h2>", _who_saw_what(statement),
        "<h2>What is in this folder</h2>",
        "<ul>", *(f'<li><a href="{name}">{name}</a>: {said}</li>' for name, said in files.items()), "</ul>",
        "<h2>Words</h2>", facts(_WORDS.items()),
    ])  # fmt: skip


def _guaranteed(statement: Mapping[str, Any], *, names: int | None) -> str:
    """What each hospital's data are guaranteed, those with the same figures in one row. names: shown of each row; None:
    all, with what is not for the cover."""
    named, groups = _named(statement), defaultdict[tuple[str, ...], list[Mapping[str, Any]]](list)
    for seat in statement["seats"]:
        given = seat["guarantee"]
        figures = (_epsilon(given["epsilon"]), figure_from(given).rating, at_most(seat["delta"]))
        more = (at_most(seat["epsilon_agreed"]), _accused(given), f"{seat['weight']:g}")
        groups[figures if names else figures + more].append(seat)
    rows: list[tuple[str, ...]] = []
    for same, seats in groups.items():
        who = _names([named(each["seat"]) for each in seats], names)
        rows.append((who, *same, *([] if names else _used(seats))))
    head = ["hospitals", "epsilon guaranteed", "which is", "delta"]
    caption = "Epsilon at delta, guaranteed by the cap that each node enforces itself"
    if names is None:
        caption += "; what is used is for monitoring, not an epsilon to publish"
        head += ["epsilon agreed", _WRONGLY, "weight of a vote", "cap used", "ledger reading"]
    return table(caption, head, rows, words=(0,))


def _used(seats: Sequence[Mapping[str, Any]]) -> list[str]:
    """The share of the cap, and the ledger's reading as an epsilon, from the least to the most."""
    shares = [each["budget_used_share"] for each in seats]
    readings = [math.inf if each["budget_used_reading"] is None else each["budget_used_reading"] for each in seats]
    return [
        " to ".join(dict.fromkeys(write(find(values)) for find in (min, max)))
        for write, values in ((percent, shares), (at_most, readings))
    ]


def _several(statement: Mapping[str, Any], shown: Sequence[int]) -> str:
    """What a patient of several hospitals is guaranteed, "" where no figure says more than those of the hospitals."""
    several, named = statement["several_hospitals"], _named(statement)
    given = [(f"any {each['hospitals']} hospitals", each["guarantee"]) for each in (several["any"][at] for at in shown)]
    given += [(", ".join(map(named, each["hospitals"])), each["guarantee"]) for each in several["named"]]
    rows = [
        (who, _epsilon(each["epsilon"]), figure_from(each).rating, _accused(each), at_most(each["delta"]))
        for who, each in given
    ]
    head = ("data at", "epsilon", "which is", _WRONGLY, "delta")
    return table("A patient with data at several hospitals", head, rows) if rows else ""


def _who_saw_what(statement: Mapping[str, Any]) -> str:
    rows = [(each["who"], each["saw"], each["protection"]) for each in statement["who_saw_what"]]
    head = ("who", "saw", "what protects patients from them")
    return table("During the study and in this release", head, rows, words=(0, 1, 2))


def _budgets(statement: Mapping[str, Any]) -> str:
    """The budget used by each seat as a share of its cap, those that used as much in one row."""
    named, alike = _named(statement), defaultdict[str, list[Mapping[str, Any]]](list)
    for seat in statement["seats"]:
        alike[percent(seat["budget_used_share"])].append(seat)
    rows = [
        (_names([named(each["seat"]) for each in seats]), Bar(seats[0]["budget_used_share"], used))
        for used, seats in alike.items()
    ]
    return table("Budget used, of the cap", ("seats", "used"), rows, words=(0,))


def _names(shown: Sequence[str], most: int | None = _MOST_NAMES) -> str:
    """Names, after their number where there are several; at most so many of them."""
    others = "" if most is None or len(shown) <= most else f" and {len(shown) - most} more"
    return f"{len(shown)}: " * (len(shown) > 1) + ", ".join(shown[:most]) + others


def _answered(batches: Sequence[tuple[int, int]]) -> str:
    """How many queries of each batch were answered."""
    rows = [(f"batch {at}", size, Bar(each / size, str(each))) for at, (size, each) in enumerate(batches)]
    return table("Queries asked and answered", ("batch", "asked", "answered"), rows)


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


def _accused(guarantee: Mapping[str, Any]) -> str:
    return accused_in_words(figure_from(guarantee))


@functools.cache
def _pages() -> jinja2.Environment:
    return templates(
        "coordinator.release", autoescape=True, at_most=at_most, epsilon=_epsilon, percent=percent,
        prose=_prose,
    )  # fmt: skip


def _prose(sentences: str) -> Markup:
    return Markup(prose(sentences))  # which escapes


_FORMAT = "1.6"


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
        "specVersion": _FORMAT,
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
                    "It is not a medical device. How often it is right on private data, if measured: model_card.md."
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
