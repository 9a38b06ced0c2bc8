"""The one place that shows private figures, and marks them: out/private/ and the boxed section of report.html.

What is computed from votes or records is as private as they are (docs/explanation/mathematics.md, section 10), and
everything written here says so first. No other module may unwrap a Private; a test checks the sources for that.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final  # Any: the values of a JSON object and rows of a template

import numpy as np
from jaxtyping import Float64
from numpy import ndarray

from protocols.plural import at_most
from protocols.research.data_dependent import Figures
from protocols.research.private import WHY
from protocols.study.study import ADJACENCY
from runtime.files import write_atomically
from simulations.pipeline import RunResult
from simulations.plots.style import Drawing
from simulations.private import VoteAnalysis
from simulations.results import text as membership_words
from simulations.setup.accountants import accountant_table

# Suffixes of figures that belong to another figure.
DEVIATION: Final = "standard deviation"
_ORDER: Final = "order"
MIRONOV: Final = "by Mironov 2017"

_Columns = dict[str, Float64[ndarray, " units"]]
_Row = dict[str, Any]

_FOLDER = "private"
_MARK = f"PRIVATE, NOT FOR RELEASE. Every figure in this folder {WHY}."
_ABOVE = (
    "A figure above the worst case is no contradiction, and the guarantee stands: Theorem 6 falls back on the Gaussian "
    "bound, which is above the label-only bound that may have charged; '(expected)' covers answers that were expected "
    "but may not have come; a sanitised figure includes the cost of its release."
)
_NO_BUDGET = "no budget was charged and none stopped this, so no label of it may be published, and none is kept"
# Rows of parties that a page shows.
_MOST_GROUPS = 100


def has_findings(result: RunResult) -> bool:
    """Whether the run computed anything private."""
    findings = result.findings
    return bool(findings.accountants or findings.refused) or findings.attack is not None


def write_private(result: RunResult, out: Path) -> list[Path]:
    """Writes out/private: findings.json, parties.csv, the figure of the attack. Empty without findings.

    Raises StorageFailed; each file is whole or absent.
    """
    if not has_findings(result):
        return []
    folder = out / _FOLDER
    paths = [folder / "READ-FIRST.txt", folder / "findings.json"]
    write_atomically(paths[0], _MARK + "\n")
    write_atomically(paths[1], json.dumps(_findings(result), indent=2, allow_nan=False) + "\n")
    if result.findings.accountants:
        paths.append(folder / "parties.csv")
        write_atomically(paths[-1], _parties(result))
    drawing = attack_drawing(result)
    if drawing is not None:
        for suffix, content in ((".svg", drawing.svg), (".png", drawing.png)):
            paths.append(folder / f"{drawing.name}{suffix}")
            write_atomically(paths[-1], content)
    return paths


def private_section(result: RunResult) -> _Row | None:
    """The content of the boxed section of report.html; None without findings. Epsilons by groups of equal parties."""
    if not has_findings(result):
        return None
    findings = result.findings
    statements = {row.name: row for row in accountant_table()}
    attack = findings.attack
    return {
        "why": WHY,
        "accountants": [
            {"name": name, "statement": statements[name].statement, "unit": result.study.unit,
             "view": result.study.view, "adjacency": ADJACENCY, "source": statements[name].source,
             "note": statements[name].note}
            for name in result.findings.accountants
        ],
        "refused": _refused(result),
        "above": _ABOVE if _above(result) else None,
        "groups": _groups(result)[:_MOST_GROUPS],
        "columns": list(_columns_of(result)),
        "attack": None if attack is None else membership_words.summary_rows(attack.for_research()),
        "attack_finding": None if attack is None else membership_words.finding(attack.for_research()),
    }  # fmt: skip


def attack_drawing(result: RunResult) -> Drawing | None:
    """The figure of the membership attack; None if there was none."""
    if result.findings.attack is None:
        return None
    from simulations.plots.groups import roc_drawing

    return roc_drawing(result.findings.attack.for_research())


def printed(result: RunResult) -> list[str]:
    """Lines for the terminal, the first of which marks the rest; empty without findings."""
    if not has_findings(result):
        return []
    lines = [f"private figures  (each {WHY})"]
    worst, columns = result.study.budgets.epsilon_guaranteed.max(), _columns_of(result)
    lines += figure_lines(columns, list(_epsilons(result)), worst=float(worst))
    if _above(result):
        lines.append(f"  {_ABOVE}")
    lines += [f"  {name}: refused: {why}" for name, why in _refused(result).items()]
    if result.findings.attack is not None:
        lines.append(f"  membership attack: {membership_words.finding(result.findings.attack.for_research())}")
    return lines


def printed_analysis(analysis: VoteAnalysis) -> list[str]:
    """Lines for the terminal of an analysis without a budget; the first two say what may not be done with it."""
    settings, answered = analysis.settings, analysis.answered.for_research()
    accuracy, columns = analysis.label_accuracy.for_research(), _columns_of_analysis(analysis)
    epsilons = [name for name in columns if not name.endswith((DEVIATION, _ORDER, MIRONOV))]
    return [
        f"private figures  (each {WHY})",
        f"  {_NO_BUDGET}",
        f"  {analysis.mechanism.released_words(total_weight=analysis.votes)}; unit {settings.unit}, view label, "
        f"delta {at_most(settings.delta)}, seed {analysis.seed}",
        f"  {answered:,} of {analysis.queries:,} queries answered"
        f"{'' if accuracy is None else f', label accuracy {accuracy:.4f}'}",
        f"  worst case, {analysis.charging.name}: epsilon {at_most(analysis.worst_case)} if each were answered, "
        "whatever the votes",
        *figure_lines(columns, epsilons, worst=analysis.worst_case),
        *(f"  {name}: refused: {why.for_research()}" for name, why in analysis.refused.items()),
    ]


def analysis_document(analysis: VoteAnalysis) -> _Row:
    """The same as JSON values; an epsilon of each unit, or one where all units are alike."""
    settings, of_name = analysis.settings, {row.name: row for row in accountant_table()}
    return {
        "publishable": False,
        "why": f"each figure {WHY}; {_NO_BUDGET}",
        "seed": analysis.seed,
        "unit": settings.unit,
        "view": "label",
        "adjacency": ADJACENCY,
        "delta": settings.delta,
        "mechanism": {"name": analysis.mechanism.name, **analysis.mechanism.values},
        "parties": settings.parties,
        "asked": analysis.queries,
        "answered": analysis.answered.for_research(),
        "label_accuracy": analysis.label_accuracy.for_research(),
        "worst_case": {"accountant": analysis.charging.name, "epsilon": analysis.worst_case},
        "accountants": {name: asdict(of_name[name]) for name in analysis.figures},
        "refused": {name: why.for_research() for name, why in analysis.refused.items()},
        "figures": {name: [_number(value) for value in each] for name, each in _columns_of_analysis(analysis).items()},
    }


def _columns_of_analysis(analysis: VoteAnalysis) -> _Columns:
    columns: _Columns = {}
    for name, private in analysis.figures.items():
        columns |= columns_of_figures(name, private.for_research())
    return columns


def _epsilons(result: RunResult) -> dict[str, Float64[ndarray, " parties"]]:
    """The columns that are epsilons, as this project converts, by name."""
    return {
        name: values
        for name, values in _columns_of(result).items()
        if not name.endswith((DEVIATION, _ORDER, MIRONOV)) and np.isfinite(values).any()
    }


def _above(result: RunResult) -> bool:
    """Whether a party's figure is above its guarantee."""
    worst = result.study.budgets.epsilon_guaranteed * (1 + 1e-9)
    return any((np.nan_to_num(values) > worst).any() for values in _epsilons(result).values())


def _details(result: RunResult) -> dict[str, list[_Row]]:
    """By accountant, how its figures came about: once for each distinct way, with the parties that it is for."""
    found: dict[str, list[_Row]] = {}
    for name, private in result.findings.accountants.items():
        rows: dict[tuple[object, ...], _Row] = {}
        for seat, how in zip(result.study.roster, private.for_research().details or (), strict=False):
            row = {"delta": seat.delta, "weight": seat.weight, **how}
            rows.setdefault(tuple(row.values()), {"parties": 0} | row)["parties"] += 1
        found |= {name: list(rows.values())} if rows else {}
    return found


def _refused(result: RunResult) -> dict[str, str]:
    """Why an accountant has no figure for these votes."""
    return {name: why.for_research() for name, why in result.findings.refused.items()}


def _columns_of(result: RunResult) -> dict[str, Float64[ndarray, " parties"]]:
    """Each figure that exists, for every seat of the roster."""
    columns: dict[str, Float64[ndarray, " parties"]] = {}
    for name, private in result.findings.accountants.items():
        columns |= columns_of_figures(name, private.for_research())
    return columns


def _groups(result: RunResult) -> list[_Row]:
    """Figures of parties with the same budget and weight: the mean, and the largest where they differ."""
    study, columns = result.study, _columns_of(result)
    if not columns:
        return []
    guaranteed = study.budgets.epsilon_guaranteed
    keys = np.stack([result.budgets.epsilon, study.weights, study.rates, guaranteed], axis=1)
    distinct, member = np.unique(keys, axis=0, return_inverse=True)
    rows = []
    for index, (budget, weight, _, epsilon) in enumerate(distinct.tolist()):
        chosen = member.ravel() == index
        rows.append(
            {"size": int(chosen.sum()), "budget": budget, "weight": weight, "guaranteed": epsilon,
             "values": [_of_group(values[chosen]) for values in columns.values()]}
        )  # fmt: skip
    return rows


def _of_group(values: Float64[ndarray, " members"]) -> str:
    known = values[np.isfinite(values)]
    if known.size == 0:
        return "none"
    mean, most = known.mean(), known.max()
    return f"{mean:.4g}" if most - known.min() <= 1e-6 * most else f"{mean:.4g} (at most {most:.4g})"


def _findings(result: RunResult) -> _Row:
    findings, study = result.findings, result.study
    of_name = {row.name: row for row in accountant_table()}
    guaranteed, columns = study.budgets.epsilon_guaranteed, _columns_of(result)
    document: _Row = {
        "publishable": False,
        "why": WHY,
        "seed": result.seeds[0].seed,
        "study_digest": study.digest.hex(),
        "unit": study.unit,
        "view": study.view,
        "adjacency": ADJACENCY,
        "mechanism": study.mechanism.name,
        "asked": result.seeds[0].asked,
        "answered": len(result.seeds[0].answered),
        "accountants": {name: asdict(of_name[name]) for name in result.findings.accountants},
        "refused": _refused(result),
        "parties": [
            {
                "party": seat.party,
                "delta": seat.delta,
                "weight": seat.weight,
                "epsilon_guaranteed": float(guaranteed[i]),
            }
            | {name: _number(values[i]) for name, values in columns.items()}
            for i, seat in enumerate(study.roster)
        ],
    }
    if details := _details(result):
        document["details"] = details
    if findings.attack is not None:
        document["membership_attack"] = findings.attack.for_research().to_json()
    return document


def _number(value: object) -> object:
    """`value` for JSON, which has neither NaN nor infinity: both become None."""
    if isinstance(value, float | np.floating):
        return float(value) if np.isfinite(value) else None
    return int(value) if isinstance(value, np.integer) else value


def _parties(result: RunResult) -> str:
    study, columns, guaranteed = result.study, _columns_of(result), result.study.budgets.epsilon_guaranteed
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["party", "epsilon_guaranteed", *(f"private: {name}" for name in columns)])
    for i, seat in enumerate(study.roster):
        writer.writerow([seat.party, guaranteed[i], *(values[i] for values in columns.values())])
    return buffer.getvalue()


def columns_of_figures(name: str, figures: Figures) -> _Columns:
    """An accountant's figures for every unit, by what they are called; those that it has not are left out."""
    happened = name if figures.expected is None else f"{name} (realised)"
    told = {
        happened: figures.happened,
        f"{happened} {MIRONOV}": figures.mironov,
        f"{name} (expected)": figures.expected,
        f"{name} (expected) {MIRONOV}": figures.expected_mironov,
    }
    columns: _Columns = {}
    for called, least in told.items():
        if least is not None:
            columns[called], columns[f"{called} {_ORDER}"] = least.epsilon, least.order
    if figures.std is not None:
        columns[f"{name} {DEVIATION}"] = figures.std
    return columns


def figure_lines(columns: Mapping[str, Float64[ndarray, " units"]], names: list[str], *, worst: float) -> list[str]:
    """A line for each named epsilon, and one for what the papers' conversion makes of it; worst: the worst case."""
    lines = []
    for name in names:
        std, order = columns.get(f"{name} {DEVIATION}"), columns.get(f"{name} {_ORDER}")
        lines.append(
            f"  {name}: epsilon {span(columns[name])}{'' if std is None else f', +- {span(std)} ({DEVIATION})'}"
            f"{'' if order is None else f', order {span(order)}'} (worst case {worst:.4g})"
        )
        papers = f"{name} {MIRONOV}"
        if papers in columns:
            lines.append(
                f"    as the papers convert (Mironov 2017): epsilon {span(columns[papers])}, order "
                f"{span(columns[f'{papers} {_ORDER}'])}"
            )
    return lines


def span(values: Float64[ndarray, " units"]) -> str:
    """The least and the largest known value as text; only one if they are equal."""
    low, high = (f"{value:.4g}" for value in (np.nanmin(values), np.nanmax(values)))
    return low if low == high else f"{low} to {high}"
