"""What the demo shows at its end: a table of accuracies, the figures, and in words what they do not mean."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any  # figures of several kinds

import numpy as np
from jaxtyping import Float32, Int64
from numpy import ndarray

from party.demo.demo_data import DemoData, encoded, labels_for_whole_hospitals
from protocols.plural import at_most
from protocols.study.deployed import DeployedStudy
from protocols.study.levels import Clear, TwoServer
from protocols.study.votes import TeacherVotes, UnitSums, teacher_votes, unit_sums

# One of the examples in `conclave-simulate plan --help`.
PLAN_OF_MANY = "conclave-simulate plan --optimise --parties 250 --classes 10 --budgets 2 --accuracy 0.85"
_SEEN = {
    Clear.name: ", or votes hidden from the coordinator: here it sees every vote, with --confidentiality "
    "two_server it sees none.",
    TwoServer.name: ". No server sees a vote, as long as coordinator and guardian do not collude; each adds noise of "
    "its own, so labels are noisier than with votes in the clear.",
}
_SUMS_SEEN = {
    Clear.name: "The coordinator sees each hospital's sum before the noise; with --confidentiality two_server nobody "
    "does.",
    TwoServer.name: "No server sees a hospital's sum, as long as coordinator and guardian do not collude.",
}
_PAGES = ("privacy.html", "report.html", "model_card.md")
_ITERATIONS = 1000


def figures_of(
    release: Path, data: DemoData, study: DeployedStudy, spent: Mapping[str, Mapping[str, object]]
) -> dict[str, object]:
    """All figures of a demo that ended. spent: what each hospital's `budget show` says."""
    statement = json.loads((release / "privacy.json").read_text(encoding="utf-8"))
    several = statement["several_hospitals"]["any"]
    together = _student_accuracy(release, data)
    figures: dict[str, object] = {
        "data": data.source,
        "votes_by": study.votes.by,
        "hospitals": len(data.hospitals),
        "records": {name: len(rows) for name, rows in data.rows.items()},
        "unit": study.unit,
        "view": study.view,
        "confidentiality": study.confidentiality.name,
        "epsilon": study.roster[0].epsilon,
        "delta": study.roster[0].delta,
        "epsilon_of_a_patient_at_all_hospitals": several[-1]["guarantee"]["epsilon"],
        "asked": statement["queries"]["asked"],
        "labels_released": statement["queries"]["answered"],
        "test_records": len(data.test_labels),
        "student_accuracy": together,
        "commonest_class": float(np.bincount(data.test_labels).max() / len(data.test_labels)),
        **_without(data),
        "budgets": spent,
        "release": str(release),
        "pages": [str(release / page) for page in _PAGES],
    }
    return figures | _SHOWN[study.votes.by].figures(data, study, statement)


def in_words(figures: Mapping[str, Any]) -> str:
    """The figures in words: what was done, the table, what is guaranteed, and the pages to open."""
    several = figures["epsilon_of_a_patient_at_all_hospitals"]
    everywhere = "no epsilon that can be given at that delta" if several is None else f"epsilon {at_most(several)}"
    pages = "\n".join(f"  {os.path.relpath(page)}" for page in figures["pages"])
    shown, records = _SHOWN[figures["votes_by"]], ", ".join(f"{name} {n}" for name, n in figures["records"].items())
    lines = [
        f"Data: {figures['data']}.",
        shown.done(figures, records),
        "",
        _table(figures),
        "",
        f"Guaranteed: epsilon {at_most(figures['epsilon'])} at delta {at_most(figures['delta'])} for one "
        f"{figures['unit']} (replaced by another), against anyone who sees {shown.seen}. A patient with a record "
        f"at every hospital has {everywhere}.",
        shown.more(figures),
        f"It took {figures['seconds']} s. Pages to open:",
        pages,
    ]
    return "\n".join(lines)


def _table(figures: Mapping[str, Any]) -> str:
    """Accuracies on the same test records."""
    judged = figures["student_accuracy"]
    together = "onnxruntime is not installed" if judged is None else f"{judged:.3f}"
    rows = [
        *((f"{name} alone", f"{value:.3f}") for name, value in figures["alone"].items()),
        (f"together, with privacy (epsilon {at_most(figures['epsilon'])})", together),
        ("all records pooled, without privacy", f"{figures['pooled']:.3f}"),
        ("always the commonest class", f"{figures['commonest_class']:.3f}"),
    ]
    wide = max(len(what) for what, _ in rows)
    title = f"Accuracy on the same {figures['test_records']} test records"
    return "\n".join([title, *(f"  {what:{wide}}  {value}" for what, value in rows)])


@dataclass(frozen=True)
class _Shown:
    """What is shown of one kind of votes. figures: those that only it has; done, more: in words; seen: who sees."""

    figures: Callable[[DemoData, DeployedStudy, Mapping[str, Any]], dict[str, object]]
    done: Callable[[Mapping[str, Any], str], str]
    seen: str
    more: Callable[[Mapping[str, Any]], str]


def _figures_of_teachers(data: DemoData, study: DeployedStudy, statement: Mapping[str, Any]) -> dict[str, object]:
    return {
        "teachers_per_hospital": teacher_votes(study).teachers,
        "labels_if_a_whole_hospital_were_the_unit": labels_for_whole_hospitals(data),
    }


def _figures_of_records(data: DemoData, study: DeployedStudy, statement: Mapping[str, Any]) -> dict[str, object]:
    sums = unit_sums(study)
    used_once = next(iter(statement["records"]["used_once"].values()))
    about = {"queries": sums.queries, "votes": sums.votes, "graded": sums.signed}
    return {**about, "pool": study.terms.pool_size, "used_once": used_once}


def _done_by_teachers(figures: Mapping[str, Any], records: str) -> str:
    return (
        f"{figures['hospitals']} hospitals with {figures['teachers_per_hospital']} teachers each; records {records}.\n"
        f"{figures['labels_released']} labels released of {figures['asked']} queries asked."
    )


def _done_by_records(figures: Mapping[str, Any], records: str) -> str:
    of = "" if figures["graded"] else f"{figures['votes']} of "
    kind = "features" if figures["graded"] else "queries"
    return (
        f"{figures['hospitals']} hospitals; records {records}. Each record voted once with its own label, in {of}"
        f"{figures['queries']} public {kind}; the noisy sums give soft labels to {figures['pool']} public records, and "
        "a student learned these."
    )


def _more_of_teachers(figures: Mapping[str, Any]) -> str:
    return (
        "What four hospitals cannot achieve with teachers: a guarantee for a whole hospital "
        f"({figures['labels_if_a_whole_hospital_were_the_unit']} labels at this budget), a small epsilon with many "
        f"labels (noise hides one vote among few){_SEEN[figures['confidentiality']]} "
        "Epsilon 8 per record is weak; it is chosen so that a demo with four hospitals has labels to show. With 250 "
        f"parties more labels cost a fraction: {PLAN_OF_MANY}"
    )


def _more_of_records(figures: Mapping[str, Any]) -> str:
    return f"{figures['used_once']} {_SUMS_SEEN[figures['confidentiality']]}"


_SHOWN = {
    TeacherVotes.by: _Shown(
        _figures_of_teachers,
        _done_by_teachers,
        "the released labels, and all that is made of them",
        _more_of_teachers,
    ),
    UnitSums.by: _Shown(
        _figures_of_records, _done_by_records, "the released sums, and all that is made of them", _more_of_records
    ),
}


def _without(data: DemoData) -> dict[str, object]:
    """What logistic regressions reach without any privacy: of each hospital's records alone, and of all together."""
    holdings = {name: encoded(rows, data.header, data.features, data.class_names) for name, rows in data.rows.items()}
    inputs, labels = (np.concatenate(each) for each in zip(*holdings.values(), strict=True))
    return {
        "alone": {name: _accuracy_of(*each, data) for name, each in holdings.items()},
        "pooled": _accuracy_of(inputs, labels, data),
    }


def _accuracy_of(
    inputs: Float32[ndarray, "records features"], labels: Int64[ndarray, " records"], data: DemoData
) -> float:
    """The accuracy, on the test records, of a logistic regression of these; of their one class if there is one."""
    if len(np.unique(labels)) < 2:
        return float((data.test_labels == labels[0]).mean())
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(max_iter=_ITERATIONS).fit(inputs, labels)
    return float((model.predict(data.test_inputs) == data.test_labels).mean())


def _student_accuracy(release: Path, data: DemoData) -> float | None:
    """The accuracy of the released student, run as anyone could; None if onnxruntime is not installed."""
    try:
        import onnxruntime
    except ModuleNotFoundError:
        return None
    session = onnxruntime.InferenceSession(release / "student.onnx", providers=["CPUExecutionProvider"])
    (labels, *_) = session.run(None, {session.get_inputs()[0].name: data.test_inputs})
    predicted = labels.argmax(axis=1) if labels.ndim == 2 else labels
    return float((predicted == data.test_labels).mean())
