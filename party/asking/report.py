"""What `ask` reports, as JSON, text and one HTML page: the answers, and how much they help.

This is CaPC's experiment (Choquette-Choo et al. 2021, section 4): the model is trained on the hospital's own labelled
records, and again with the answered queries added. Figures concern the hospital's own data and stay with it. The page
loads nothing from elsewhere, and everything in it that is not a literal of this file is escaped by `text`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import sqrt
from typing import Any  # the values of a JSON object

import numpy as np
import scipy
from jaxtyping import Bool, Float32, Int64
from numpy import ndarray

from party.data.records import Records
from party.teachers.own import trained_kind
from party.teachers.scores import share_words, wilson
from party.teachers.teacher import Teacher
from protocols.claims.coverage import OWN_RECORDS, promise
from protocols.claims.protection import Protection
from protocols.claims.strength import Figure, strength
from protocols.claims.who_sees import not_protected_from
from protocols.errors import InvalidInput
from protocols.labelling.coordinator import Labelling
from protocols.labelling.schedule import STOP_MEANINGS
from protocols.levels.hidden_queries.inference.architecture import Precision
from protocols.levels.hidden_queries.inference.model import plain_inference, quantise
from protocols.plural import at_most, counted
from protocols.study.deployed import DeployedStudy
from protocols.study.study import ADJACENCY
from protocols.votes import ABSTAIN
from runtime.page import document, table, text, verdict

# The two-sided 95 % quantile of the standard normal distribution.
_DEVIATIONS = 1.959964
# Below this p-value, a change is said to be more than chance.
CHANCE = 0.05


@dataclass(frozen=True)
class Improvement:
    """Accuracies on the test records, with standard errors and 95 % intervals, and what each model was trained on.

    gained, lost: numbers of test records that only the later, or only the earlier, model gets right; they show whether
    the change is more than chance. agreement: the share of queries, in [0, 1], on which the later model gives the same
    label when computed in the study's fixed point; None for a kind that cannot be computed in fixed point.
    """

    model: str
    own_records: int
    answered: int
    test_records: int
    accuracy_before: float
    accuracy_after: float
    error_before: float
    error_after: float
    interval_before: tuple[float, float]
    interval_after: tuple[float, float]
    gained: int
    lost: int
    agreement: float | None

    def lines(self) -> list[str]:
        """The figures as lines of text."""
        before = share_words(self.accuracy_before, self.interval_before)
        after = share_words(self.accuracy_after, self.interval_after)
        return [
            f"This hospital's own {self.model}, on {self.test_records} test records:",
            f"  before, from {self.own_records} own records: {before}",
            f"  after, with {counted(self.answered, 'label')} from the others: {after}",
            f"  {self.gained} test records are right only after, {self.lost} only before",
            f"  {fixed_point(self.agreement)}",
        ]


def by_chance(gained: int, lost: int) -> float:
    """The two-sided p-value, in [0, 1], of models that are equally good: McNemar's exact test (McNemar 1947).

    Each record that only one of them gets right is a fair coin then.
    """
    return float(scipy.stats.binomtest(gained, gained + lost).pvalue) if gained + lost else 1.0


def fixed_point(agreement: float | None) -> str:
    """In words: how much rounding to fixed point, as in the others' models, changes this model."""
    if agreement is None:
        return "a model of this kind cannot be computed in fixed point, so the effect of rounding is not known"
    return (
        f"in fixed point, as the others' models compute, it gives {100 * agreement:.1f} % of your records the same "
        "label"
    )


def check_model(kind: str) -> None:
    """Raises InvalidInput for a kind of model that cannot be trained here, before anything is asked."""
    trained_kind(kind, setting="--model", others=())


def improve(
    kind: str,
    own: Records,
    test: Records,
    queries: Float32[ndarray, "queries ..."],
    labels: Int64[ndarray, " queries"],
    *,
    classes: int,
    seed: int,
    precision: Precision,
) -> Improvement:
    """Trains both models and scores them on the test records.

    labels: class ids, below 0 where there is none. Raises InvalidInput for an unknown kind, or without test records.
    """
    if len(test.labels) == 0:
        raise InvalidInput("there are 0 test records; allowed: at least 1")
    answered = labels >= 0
    own_inputs, own_labels = own.inputs[own.usable], own.labels[own.usable]
    both = (np.concatenate([own_inputs, queries[answered]]), np.concatenate([own_labels, labels[answered]]))
    trainer = trained_kind(kind, setting="--model", others=())
    before, after = (trainer.fit([each], classes=classes, seeds=[seed])[0] for each in ((own_inputs, own_labels), both))
    tested, truth = test.inputs[test.usable], test.labels[test.usable]
    right_before, right_after = (each.predict(tested) == truth for each in (before, after))
    return Improvement(
        model=kind,
        own_records=len(own_labels),
        answered=int(answered.sum()),
        test_records=len(truth),
        accuracy_before=float(right_before.mean()),
        accuracy_after=float(right_after.mean()),
        error_before=_error(right_before),
        error_after=_error(right_after),
        interval_before=wilson(float(right_before.mean()), len(right_before)),
        interval_after=wilson(float(right_after.mean()), len(right_after)),
        gained=int((right_after & ~right_before).sum()),
        lost=int((right_before & ~right_after).sum()),
        agreement=_agreement(after, queries, classes=classes, precision=precision),
    )


def _agreement(
    model: Teacher, queries: Float32[ndarray, "queries ..."], *, classes: int, precision: Precision
) -> float | None:
    try:
        quantised = quantise(model.private_model(classes=classes), precision)
    except InvalidInput:
        return None
    return float((plain_inference(quantised, queries) == model.predict(queries)).mean())


def _error(right: Bool[ndarray, " records"]) -> float:
    """The standard error of the share of records that are right."""
    share = float(right.mean())
    return sqrt(share * (1 - share) / len(right))


_Figures = Mapping[str, Any]

OWN = "Accuracies are measured on this hospital's own records: no study releases them, and they stay here."
ELSEWHERE = (
    "What the hospitals have spent in other studies is not known here; their own lifetime caps cover all of it. "
    f"{OWN_RECORDS}"
)


def ask_figures(
    study: DeployedStudy,
    labelling: Labelling,
    improved: Improvement | None,
    *,
    reserved: Int64[ndarray, " parties"],
    data_set: str,
) -> dict[str, Any]:
    """All figures of a report, as in the JSON file. reserved: nano-units of `labelling.spent` not settled, per seat."""
    terms = study.terms
    most, used = (study.budgets.epsilon_of(spend) for spend in (labelling.spent, labelling.spent - reserved))
    labels = labelling.labels
    answered = labels[labels >= 0]
    return {
        "study": study.digest.hex(),
        "name": study.name,
        "task": terms.task,
        "queries": len(labels),
        "asked": int(sum(size for size, _ in labelling.batches)),
        "answered": len(answered),
        "unanswered": int((labels == ABSTAIN).sum()),
        "classes": dict(zip(terms.class_names, np.bincount(answered, minlength=study.classes).tolist(), strict=True)),
        "stop": labelling.stop.reason,
        "left_out": dict(sorted(labelling.refusals.items())),
        "asks": study.who_asks,
        "unit": study.unit,
        "adjacency": ADJACENCY,
        "view": study.view,
        "accounting": study.accountant_name,
        "parties": [
            {
                "party": seat.party,
                "epsilon_used": float(settled),
                "epsilon_reserved": float(largest - settled),
                "epsilon_cap": seat.epsilon,
                "delta": seat.delta,
            }
            for seat, settled, largest in zip(study.roster, used, most, strict=True)
        ],
        "data_set": data_set,
        "improvement": None if improved is None else asdict(improved),
    }


def report_lines(figures: _Figures, improved: Improvement | None) -> list[str]:
    """The report as lines for a terminal."""
    lines = [
        f"{figures['answered']} of {counted(figures['asked'], 'query')} answered, {figures['queries']} in the file: "
        f"{stopped(figures)}",
        cost(figures),
        *(f"left out of the last batches: {seat} ({code})" for seat, code in figures["left_out"].items()),
    ]
    return lines + ([] if improved is None else improved.lines())


def stopped(figures: _Figures) -> str:
    """Why it stopped asking."""
    return STOP_MEANINGS[figures["stop"]]


def cost(figures: _Figures) -> str:
    """In words: what the labels cost the hospitals that answered, in this study and by its accounting."""
    used, reserved, caps, deltas = (
        [each[name] for each in figures["parties"]]
        for name in ("epsilon_used", "epsilon_reserved", "epsilon_cap", "delta")
    )
    return (
        f"{counted(len(used), 'hospital')} have spent epsilon {_between(used)} of the {_between(caps)} that they allow "
        f"in this study, at delta {_between(deltas)}"
        + (f"; at most {at_most(max(reserved))} more is reserved" if any(reserved) else "")
    )


def meaning(figures: _Figures) -> str:
    """In words: what the largest of these epsilons promises, and to whom."""
    return (
        f"{promise(_about(figures), _worst(figures))} That is epsilon {at_most(_worst(figures).epsilon)}, the most any "
        f"hospital allows here (adjacency {figures['adjacency']}, view {figures['view']}, accounting "
        f"{figures['accounting']}). Not protected against: {not_protected_from(_about(figures))}"
    )


def weakest(figures: _Figures) -> str:
    """In words: how strong the guarantee of the least protected hospital's data is."""
    return strength(_worst(figures))


def _worst(figures: _Figures) -> Figure:
    return Figure(*(max(float(each[name]) for each in figures["parties"]) for name in ("epsilon_cap", "delta")))


def _about(figures: _Figures) -> Protection:
    return Protection(
        level="hidden_queries",
        unit=figures["unit"],
        view=figures["view"],
        adjacency=figures["adjacency"],
        asks=figures["asks"],
    )


def _between(values: list[float]) -> str:
    low, high = (at_most(value) for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


# Sizes within a drawing, in its own units: names on the left, then bars and their values; the axis below. Narrow enough
# to be read on a telephone.
_WIDTH, _NAMES, _VALUES, _ROW, _AXIS, _LETTERS = 440, 125, 75, 34, 22, 14


def asking_page(figures: _Figures) -> str:
    """The page as HTML. figures: as `ask_figures` returns them and the JSON file holds them."""
    improved = figures["improvement"]
    return document(
        title=f"What the consortium answered: {figures['name']}",
        kind="report of confidential queries",
        body="\n".join([
            _verdict(figures),
            f"<p>{text(figures['task'])}</p>",
            f'<p class="notice">For {text(figures["data_set"])} only: {text(OWN)}</p>',
            *_answers(figures), *([] if improved is None else _improvement(improved)), *_cost(figures),
        ]),
        footer=f'<p>Study digest <code>{text(figures["study"])}</code>. Beside this page are the labels, and the same '
        "figures as JSON and Markdown.</p>",
    )  # fmt: skip


def _verdict(figures: _Figures) -> str:
    """What asking brought this hospital, and what it cost the others."""
    answered, asked, improved = figures["answered"], figures["asked"], figures["improvement"]
    says, points, better = f"{answered} of your {counted(asked, 'question')} got a label.", [], False
    if improved is not None:
        alone, together = improved["accuracy_before"], improved["accuracy_after"]
        says = (
            f"Alone {_percent(alone)}, with {counted(answered, 'label')} of the others {_percent(together)}, on the "
            "same test records."
        )
        gained, lost = improved["gained"], improved["lost"]
        chance = by_chance(gained, lost)
        certain = chance < CHANCE
        points.append(
            (
                "Did it help?" if together >= alone else "It did not help:",
                f"{gained} test records are right only after, {lost} only before. "
                + ("Chance alone rarely does that" if certain else "That may be chance")
                + f" (p = {chance:.2g}, McNemar's exact test).",
            )
        )
        better = certain and together > alone
    points.append(("What it cost those who answered:", f"{cost(figures)}. {weakest(figures)}"))
    return verdict(says, points, tone="good" if better else "plain")


def _answers(figures: _Figures) -> list[str]:
    counts: Mapping[str, int] = figures["classes"]
    most = max([1, *counts.values()])
    rows = [
        ("in the file", figures["queries"]),
        ("asked", figures["asked"]),
        ("answered", figures["answered"]),
        ("unanswered: too few votes for one class", figures["unanswered"]),
        ("not asked yet", figures["queries"] - figures["asked"]),
    ]
    left_out = "".join(f"<li>{text(seat)}: {text(code)}</li>" for seat, code in figures["left_out"].items())
    return [
        "<h2>Answers</h2>",
        f"<p>Asking stopped as {text(stopped(figures))}.</p>",
        table("Your records", ("records", "number"), rows),
        *(["<p>Left out of the last batches:</p>", f"<ul>{left_out}</ul>"] if left_out else []),
        "<h2>Labels</h2>",
        "<p>Each label is the class with the most votes after noise was added to the counts: any one may be wrong.</p>",
        *_drawing(
            "Labels of each class", [(name, n / most, None, str(n)) for name, n in counts.items()], ("0", str(most))
        ),
        table("Labels of each class", ("class", "labels"), counts.items()),
    ]


def _improvement(improved: Mapping[str, Any]) -> list[str]:
    models = [
        (when, trained_on, improved[f"accuracy_{when}"], tuple(improved[f"interval_{when}"]), improved[f"error_{when}"])
        for when, trained_on in (
            ("before", counted(improved["own_records"], "own record")),
            ("after", f"{counted(improved['own_records'], 'own record')} and {counted(improved['answered'], 'label')}"),
        )
    ]
    return [
        "<h2>Your own model, before and after</h2>",
        f"<p>A {text(improved['model'])}, scored on {text(improved['test_records'])} held-out records. "
        f"{text(improved['gained'])} of them are right only after, {text(improved['lost'])} only before: if these "
        "two numbers are close, the change may be chance.</p>",
        *_drawing(
            "Accuracy before and after, with 95 % intervals",
            [(when, share, interval, _percent(share)) for when, _, share, interval, _ in models],
            ("0 %", "100 %"),
        ),
        table(
            "Accuracy on the test records",
            ("model", "trained on", "accuracy", "95 % interval", "standard error"),
            [
                (when, on, _percent(share), " to ".join(map(_percent, interval)), _percent(error))
                for when, on, share, interval, error in models
            ],
        ),
        '<p class="soft">The others\' models answered in fixed point, and their weights are not seen here. '
        f"Your own model, after: {text(fixed_point(improved['agreement']))}.</p>",
    ]


def _cost(figures: _Figures) -> list[str]:
    spent = ("epsilon_used", "epsilon_reserved", "epsilon_cap", "delta")
    rows = [(each["party"], *(at_most(each[name]) for name in spent)) for each in figures["parties"]]
    return [
        "<h2>What it cost those who answered</h2>",
        *(f"<p>{text(line)}</p>" for line in (f"{cost(figures)}.", meaning(figures), ELSEWHERE)),
        table("What each has spent", ("party", "epsilon used", "also reserved", "epsilon cap", "delta"), rows),
    ]


def _drawing(
    name: str, bars: list[tuple[str, float, tuple[float, float] | None, str]], ends: tuple[str, str]
) -> list[str]:
    """A bar chart of rows (name, share in [0, 1], interval, text after the bar). ends: the axis labels at 0 and 1."""
    height, room = _ROW * len(bars) + 8, _WIDTH - _NAMES - _VALUES
    said = "; ".join(f"{label} {value}" for label, _, _, value in bars)
    spoken = text(f"{name}: {said}")
    lines = [f'<svg class="narrow" viewBox="0 0 {_WIDTH} {height + _AXIS}" role="img" aria-label="{spoken}">']
    lines += [
        f'<line class="grid" x1="{_NAMES + room * part / 4:.1f}" x2="{_NAMES + room * part / 4:.1f}" y1="0" '
        f'y2="{height}"/>'
        for part in range(5)
    ]
    for number, (label, share, interval, value) in enumerate(bars):
        top = 4 + _ROW * number
        middle, end = top + _ROW / 2, _NAMES + room * share
        shown = label if len(label) <= _LETTERS else f"{label[: _LETTERS - 1]}…"
        lines += [
            f'<text x="{_NAMES - 10}" y="{middle + 4:.1f}" text-anchor="end">{text(shown)}</text>',
            f'<rect class="bar" x="{_NAMES}" y="{top + 6}" width="{room * share:.1f}" height="{_ROW - 12}"/>',
        ]
        if interval is not None:
            left, right = (_NAMES + room * each for each in interval)
            lines.append(f'<path class="whisker" d="M{left:.1f} {middle} H{right:.1f}"/>')
            end = max(end, right)
        lines.append(f'<text x="{end + 8:.1f}" y="{middle + 4:.1f}">{text(value)}</text>')
    for at, anchor, said_there in ((_NAMES, "start", ends[0]), (_NAMES + room, "end", ends[1])):
        lines.append(f'<text class="axis" x="{at}" y="{height + 16}" text-anchor="{anchor}">{text(said_there)}</text>')
    return [*lines, "</svg>"]


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
