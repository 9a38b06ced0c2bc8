"""What `ask` reports: the figures of the JSON file and, from these alone, lines of text and a Markdown page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any  # the values of a JSON object

import numpy as np
from jaxtyping import Int64
from numpy import ndarray

from party.asking.improvement import Improvement
from protocols.claims.coverage import OWN_RECORDS, promise
from protocols.claims.protection import Protection
from protocols.claims.strength import Figure, strength
from protocols.claims.who_sees import not_protected_from
from protocols.labelling.coordinator import Labelling
from protocols.labelling.schedule import STOP_MEANINGS
from protocols.plural import at_most, counted
from protocols.study.deployed import DeployedStudy
from protocols.study.study import ADJACENCY
from protocols.votes import ABSTAIN

Figures = Mapping[str, Any]

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


def report_lines(figures: Figures, improved: Improvement | None) -> list[str]:
    """The report as lines for a terminal."""
    lines = [
        f"{figures['answered']} of {counted(figures['asked'], 'query')} answered, {figures['queries']} in the file: "
        f"{stopped(figures)}",
        cost(figures),
        *(f"left out of the last batches: {seat} ({code})" for seat, code in figures["left_out"].items()),
    ]
    return lines + ([] if improved is None else improved.lines())


def stopped(figures: Figures) -> str:
    """Why it stopped asking."""
    return STOP_MEANINGS[figures["stop"]]


def cost(figures: Figures) -> str:
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


def meaning(figures: Figures) -> str:
    """In words: what the largest of these epsilons promises, and to whom."""
    return (
        f"{promise(_about(figures), _worst(figures))} That is epsilon {at_most(_worst(figures).epsilon)}, the most any "
        f"hospital allows here (adjacency {figures['adjacency']}, view {figures['view']}, accounting "
        f"{figures['accounting']}). Not protected against: {not_protected_from(_about(figures))}"
    )


def weakest(figures: Figures) -> str:
    """In words: how strong the guarantee of the least protected hospital's data is."""
    return strength(_worst(figures))


def _worst(figures: Figures) -> Figure:
    return Figure(*(max(float(each[name]) for each in figures["parties"]) for name in ("epsilon_cap", "delta")))


def _about(figures: Figures) -> Protection:
    return Protection(
        level="hidden_queries",
        unit=figures["unit"],
        view=figures["view"],
        adjacency=figures["adjacency"],
        asks=figures["asks"],
    )


def markdown(figures: Figures, improved: Improvement | None) -> str:
    """The report as a page of Markdown."""
    rows = [
        f"| {each['party']} | "
        + " | ".join(at_most(each[name]) for name in ("epsilon_used", "epsilon_reserved", "epsilon_cap", "delta"))
        + " |"
        for each in figures["parties"]
    ]
    counts = [f"| {_cell(name)} | {count} |" for name, count in figures["classes"].items()]
    return "\n".join([
        "# What the consortium answered", "", *(f"- {line.strip()}" for line in report_lines(figures, improved)), "",
        "| class | labels |", "|---|---|", *counts, "",
        "| party | epsilon used | also reserved | epsilon cap | delta |", "|---|---|---|---|---|", *rows, "",
        meaning(figures), "", ELSEWHERE, "", OWN, "",
    ])  # fmt: skip


def _between(values: list[float]) -> str:
    low, high = (at_most(value) for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def _cell(text: str) -> str:
    """The text, escaped for a cell of a Markdown table."""
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")
