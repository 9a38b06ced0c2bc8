"""What the demo shows at its end: one sentence of verdict, and one page, with what its figures do not mean."""

from __future__ import annotations

import json
import os
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any  # figures of several kinds

import numpy as np
from jaxtyping import Bool, Float32, Int64
from numpy import ndarray

from party.demo.demo_data import DemoData, encoded_rows, labels_for_whole_hospitals
from party.teachers.scores import DEVIATIONS, wilson
from protocols.plural import at_most
from protocols.study.deployed import DeployedStudy
from protocols.study.levels import Clear, SecureSum, TwoServer
from protocols.study.several_hospitals import each_seat
from protocols.study.votes import TeacherVotes, UnitSums, teacher_votes, unit_sums
from runtime.board import Accuracy, known, percent, worth
from runtime.page import Tone, document, table, text, verdict

# One of the examples in `conclave-simulate plan --help`.
PLAN_OF_MANY = "conclave-simulate plan --optimise --parties 250 --classes 10 --budgets 2 --accuracy 0.85"
_SEEN = {
    Clear.name: ", or votes hidden from the coordinator: here it sees every vote, with --confidentiality "
    "two_server it sees none.",
    SecureSum.name: ". Nobody sees a vote; the coordinator sees noisy counts.",
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
DEMO_PAGE = "demo.html"


def figures_of(
    folder: Path, data: DemoData, study: DeployedStudy, spent: Mapping[str, Mapping[str, object]]
) -> dict[str, object]:
    """All figures of a demo that ended in `folder`. spent: what each hospital's `budget show` says."""
    release = folder / "release"
    statement = json.loads((release / "privacy.json").read_text(encoding="utf-8"))
    several = statement["several_hospitals"]["any"]
    terms = data.header, data.features, data.class_names
    holdings = {name: encoded_rows(rows, *terms) for name, rows in data.rows.items()}
    inputs, labels = (np.concatenate(each) for each in zip(*holdings.values(), strict=True))
    alone = {name: _right_of(*each, data) for name, each in holdings.items()}
    together = _right_of_student(release, data)
    tests = len(data.test_labels)
    figures: dict[str, object] = {
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
        "test_records": tests,
        "alone": {name: float(right.mean()) for name, right in alone.items()},
        "student_accuracy": float(together.mean()),
        "student_accuracy_interval": wilson(float(together.mean()), tests),
        "pooled": float(_right_of(inputs, labels, data).mean()),
        "commonest_class": float(np.bincount(data.test_labels).max() / tests),
        "gain": gain(together, np.stack(list(alone.values()))),
        "guessed_right_at_most": each_seat(study)[0].figure.guessed,
        "budgets": spent,
        "release": str(release),
        "page": str(folder / DEMO_PAGE),
        "pages": [str(release / demo_page) for demo_page in _PAGES],
    }
    return figures | _SHOWN[study.votes.by].figures(data, study, statement)


def gain(together: Bool[ndarray, " tests"], alone: Bool[ndarray, "hospitals tests"]) -> dict[str, float]:
    """How much more often the student is right than the hospitals alone are on average, on the same test records, with
    its 95 % interval over the choice of these records.

    The interval is that of the mean of paired differences, one a record (Moore, McCabe and Craig, Introduction to the
    Practice of Statistics, section 7.1), with the normal quantile.
    """
    differences = together - alone.mean(axis=0)
    mean, half = differences.mean(), DEVIATIONS * differences.std(ddof=1) / np.sqrt(len(differences))
    return {"mean": float(mean), "low": float(mean - half), "high": float(mean + half)}


def verdict_in_words(figures: Mapping[str, Any]) -> tuple[Tone, str]:
    """The tone and the one sentence: was it worth joining?"""
    found = figures["gain"]
    points, low, high = (100 * found[name] for name in ("mean", "low", "high"))
    worth: Tone = "good" if low > 0 else "warn"
    opening = "is worth it" if low > 0 else "is not worth it" if high < 0 else "may not be worth it"
    return worth, (
        f"Joining {opening} here: together, at epsilon {at_most(figures['epsilon'])}, {figures['hospitals']} hospitals "
        f"get {percent(figures['student_accuracy'])} of {figures['test_records']} test patients right, "
        f"{abs(points):.1f} points {'more' if points >= 0 else 'less'} than one of them alone does on average (95 % "
        f"interval {low:+.1f} to {high:+.1f})."
    )


def in_words(figures: Mapping[str, Any]) -> str:
    """What the demo ends with: the verdict, and where to look."""
    _, says = verdict_in_words(figures)
    shown = {"The page": figures["page"], "The commands": figures["commands"], "The release": figures["release"]}
    wide = max(map(len, shown))
    return "\n".join(
        [textwrap.fill(says, 80), "", *(f"{name:{wide}}  {os.path.relpath(at)}" for name, at in shown.items())]
    )


def demo_page(figures: Mapping[str, Any], study: DeployedStudy) -> str:
    """The demo's one page, as HTML, for the folder of the demo."""
    tone, says = verdict_in_words(figures)
    shown, alone = _SHOWN[figures["votes_by"]], list(figures["alone"].values())
    rows = [
        Accuracy("a hospital alone", "alone", float(np.mean(alone)), min(alone), max(alone)),
        Accuracy("together, private", "together", figures["student_accuracy"], *figures["student_accuracy_interval"]),
        Accuracy("pooled, no privacy", "pooled", figures["pooled"]),
    ]
    caption = (
        f"How often each is right about the same {figures['test_records']} patients, with whom nobody voted or "
        f"trained. Bars: alone, from the worst to the best of {figures['hospitals']} hospitals; together, the 95 % "
        "interval over the choice of test patients. The noise was drawn once: another demo draws other noise."
    )
    several = figures["epsilon_of_a_patient_at_all_hospitals"]
    everywhere = "no epsilon that can be given at that delta" if several is None else f"epsilon {at_most(several)}"
    of_each = [
        (f"{study.named(name)} alone", f"{count} records", percent(figures["alone"][name]))
        for name, count in figures["records"].items()
    ]
    together = f"together, with privacy (epsilon {at_most(figures['epsilon'])})"
    records = sum(figures["records"].values())
    of_all = [
        (together, f"{records} records", percent(figures["student_accuracy"])),
        ("all records pooled, without privacy", f"{records} records", percent(figures["pooled"])),
        ("always the commonest class", "none", percent(figures["commonest_class"])),
    ]
    body = [
        verdict(says, tone=tone),
        "<h2>Was it worth it?</h2>",
        worth(rows, caption),
        "<h2>What did it cost in privacy?</h2>",
        known(
            each_seat(study)[0].figure,
            whose=f"one {figures['unit']} of one hospital",
            against=f"Against anyone who sees {shown.seen}. A patient with a record at every hospital has "
            f"{everywhere}.",
        ),
        f"<p>{text(shown.more(figures))}</p>",
        "<h2>What was done</h2>",
        f"<p>{text(shown.done(figures))}</p>",
        table(
            f"Right on the same {figures['test_records']} test patients",
            ["model", "learned from", "right"],
            [*of_each, *of_all],
        ),
        "<h2>Where to look</h2>",
        "<ul>",
        *(
            f'<li><a href="{text(at)}">{text(at)}</a></li>'
            for at in (
                os.path.relpath(each, Path(figures["page"]).parent) for each in [*figures["pages"], figures["commands"]]
            )
        ),
        "</ul>",
    ]
    source = (
        "Patients: UCI Heart Disease (Janosi, Steinbrunn, Pfisterer and Detrano 1989, doi 10.24432/C52P4X, CC BY 4.0)."
    )
    return document(
        title="Four hospitals, one study", kind="demo on this machine", body="\n".join(body), footer=text(source)
    )


@dataclass(frozen=True)
class _Shown:
    """What is shown of one kind of votes. figures: those that only it has; done, more: in words; seen: who sees."""

    figures: Callable[[DemoData, DeployedStudy, Mapping[str, Any]], dict[str, object]]
    done: Callable[[Mapping[str, Any]], str]
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


def _done_by_teachers(figures: Mapping[str, Any]) -> str:
    return (
        f"{figures['hospitals']} hospitals trained {figures['teachers_per_hospital']} teachers each, which voted. "
        f"{figures['labels_released']} labels released of {figures['asked']} queries asked."
    )


def _done_by_records(figures: Mapping[str, Any]) -> str:
    of = "" if figures["graded"] else f"{figures['votes']} of "
    kind = "features" if figures["graded"] else "queries"
    return (
        f"Each record voted once with its own label, in {of}{figures['queries']} public {kind}; the noisy sums give "
        f"soft labels to {figures['pool']} public records, and scores that any record can be given."
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
        _figures_of_teachers, _done_by_teachers, "the released labels, and all that is made of them", _more_of_teachers
    ),
    UnitSums.by: _Shown(
        _figures_of_records, _done_by_records, "the released sums, and all that is made of them", _more_of_records
    ),
}


def _right_of(
    inputs: Float32[ndarray, "records features"], labels: Int64[ndarray, " records"], data: DemoData
) -> Bool[ndarray, " tests"]:
    """Where a logistic regression of these is right on the test records; of their one class if there is one."""
    if len(np.unique(labels)) < 2:
        return data.test_labels == labels[0]
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(max_iter=_ITERATIONS).fit(inputs, labels)
    return np.asarray(model.predict(data.test_inputs) == data.test_labels)


def _right_of_student(release: Path, data: DemoData) -> Bool[ndarray, " tests"]:
    """Where the released student is right on the test records, run as anyone could."""
    import onnxruntime

    session = onnxruntime.InferenceSession(release / "student.onnx", providers=["CPUExecutionProvider"])
    (labels, *_) = session.run(None, {session.get_inputs()[0].name: data.test_inputs})
    predicted = labels.argmax(axis=1) if labels.ndim == 2 else labels
    return np.asarray(predicted == data.test_labels)
