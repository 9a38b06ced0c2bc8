"""Plain words for a run: what was done, numbers as people read them, and why a figure was not measured."""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np

from protocols.budgets.individualization import WEIGHT_RULES
from protocols.claims import not_protected_from
from protocols.study.protection import protection_of
from protocols.study.record_votes import RecordVotes
from simulations.pipeline import RunResult
from simulations.setup.experiment import Experiment
from simulations.stages.label import LIVE_PARTIES
from simulations.stages.stored_votes import VoteCounts

_STOP_RULES = {
    "first-exhausted": "the first budget that is used up ends the study for everyone",
    "drop-exhausted": "a party whose budget is used up stops voting and the others go on, with the same "
    "noise and threshold",
}
_INDIVIDUALIZATION = {
    "vanishing": "vanishing: every vote weighs the same, and a party takes part in as many queries as its budget "
    "allows, in a public pattern; other queries cost it nothing",
    "secret-vanishing": "vanishing by secret coins: every vote weighs the same and enters a query by a coin that only "
    "its party sees; every query costs something, but less than a vote that always enters",
    "upsampling": "upsampling: a record is learned by more teachers the larger its budget. That needs pooled data, "
    "which no federation has: simulation only",
}


_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
# More distinct budgets than this are given as a range.
_MOST_BUDGETS = 6


def count(value: float) -> str:
    """A count, or a mean of counts with one decimal, with thousands separators."""
    rounded = round(value, 1)
    return f"{rounded:,.0f}" if float(rounded).is_integer() else f"{rounded:,.1f}"


def power_of_ten(value: float) -> str:
    """A small number such as a delta: 10⁻⁵, 3·10⁻⁶, 0.01."""
    if value >= 1e-3:
        return f"{value:g}"
    digits, _, exponent = f"{value:e}".partition("e")
    raised = f"10{str(int(exponent)).translate(_SUPERSCRIPT)}"
    return raised if float(digits) == 1 else f"{float(digits):.3g}·{raised}"


def parties_words(number: int) -> str:
    """The number of parties in words."""
    return f"{number:,} {'party' if number == 1 else 'parties'}"


def percent(share: float) -> str:
    """A share in [0, 1] as a percentage with one decimal."""
    return f"{100 * share:.1f}\N{NO-BREAK SPACE}%"


def interval(half: float | None, *, seeds: int, points: bool) -> str:
    """The half-width of a 95 % interval over seeds, or why there is none; points: `half` is of a share."""
    if half is None:
        return "one seed: no interval" if seeds == 1 else "known for one seed only: no interval"
    shown = f"{100 * half:.1f} points" if points else count(half)
    return f"±\N{NO-BREAK SPACE}{shown}, 95 % over {seeds} seeds of one partition"


def terms(result: RunResult) -> list[tuple[str, str]]:
    """What was run: a name and its plain words, line by line."""
    settings, study, source = result.settings, result.study, result.source
    stored, about = source.stored, protection_of(study)
    teachers = study.teachers
    lines = [("Parties", _parties(result))]
    if source.dataset is None:
        kind = "counts of votes per class" if isinstance(stored, VoteCounts) else "each party's votes"
        lines.append(("Votes", f"{kind}, from the file {Path(settings.votes or '').name}; no data and no training"))
    else:
        data = source.dataset
        lines += [
            (
                "Data",
                f"{settings.dataset}: {count(len(data.private_labels))} private, "
                f"{count(len(data.public_labels))} public and {count(len(data.test_labels))} test records, "
                f"disjoint; split over parties {settings.partition}. {data.about}".strip(),
            ),
            (
                "Teachers",
                f"{settings.teacher}, {'one' if teachers == 1 else teachers} per party, on disjoint shards of its data",
            )
            if study.records is None
            else ("Record votes", _record_votes(study.records)),
        ]
    weighting = f"{settings.weight_rule}: {WEIGHT_RULES[settings.weight_rule].words}"
    lines += [
        ("Queries", f"{count(stored.queries)} public queries, {study.classes} classes"),
        (
            "Mechanism",
            study.mechanism.released_words(total_weight=study.nominal_weight)
            if study.records is None
            else "the sum of all votes for each query and class, with Gaussian noise of "
            f"{study.gaussian.label_sigma:.4g} votes: the least that every budget affords",
        ),
        ("Individual budgets", _INDIVIDUALIZATION.get(settings.individualization, weighting)),
        (
            "End of study",
            "after its one batch: every record votes once" if study.records else _STOP_RULES[study.stop],
        ),
        ("Who is protected", f"{study.unit}: {about.unit_in_words}"),
        ("From whom", f"{study.view}: anyone who sees {about.view_in_words}"),
        ("Not protected from", not_protected_from(about)),
        ("Neighbours", "replace-one: that unit's data replaced by any other"),
        ("δ", deltas_words(result)),
        ("Accounting", study.budgets.accountant.meaning(study.mechanism)),
        ("Seeds", seeds_text(settings.seeds)),
    ]
    if settings.dropout:
        lines.append(("Drop-out", f"each party misses a batch with probability {settings.dropout:g}"))
    if study.quorum > 1:
        lines.append(("Quorum", f"at least {parties_words(study.quorum)} must answer each batch"))
    return [*lines, ("Compared with live parties", _live(result))]


def _record_votes(records: RecordVotes) -> str:
    share = "one vote" if records.votes == 1 else f"1/√{records.votes} of a vote in each"
    return (
        f"no teachers: each private record votes with its own label in the {records.votes} public queries that it is "
        f"nearest to, {share}, once in the whole study (reverse k-nearest neighbours)"
    )


def _live(result: RunResult) -> str:
    if result.live_checked:
        return "yes: parties with their own ledgers released and were charged the same"
    if isinstance(result.source.stored, VoteCounts):
        return "no: counts of votes do not show parties; the study was only replayed"
    return f"no: above {LIVE_PARTIES:,} parties the study is only replayed"


def _parties(result: RunResult) -> str:
    epsilon, parties = np.unique(result.budgets.epsilon, return_counts=True)
    words = f"{parties_words(len(result.study.roster))}; "
    if len(epsilon) == 1:
        words += f"a budget of ε = {epsilon[0]:g} each"
    elif len(epsilon) <= _MOST_BUDGETS:
        each = (f"{value:g} for {number:,}" for value, number in zip(epsilon, parties, strict=True))
        words += f"budgets ε = {', '.join(each)}"
    else:
        middle = np.median(result.budgets.epsilon)
        words += f"budgets ε from {epsilon[0]:g} to {epsilon[-1]:g}, median {middle:g} ({result.settings.budgets})"
    sizes = result.source.party_sizes
    if sizes is None:
        return words
    low, high = count(int(sizes.min())), count(int(sizes.max()))
    return f"{words}; {low if low == high else f'{low} to {high}'} records each"


def deltas_words(result: RunResult) -> str:
    """The delta of all budgets, or the range of their deltas."""
    low, high = float(result.budgets.delta.min()), float(result.budgets.delta.max())
    return power_of_ten(low) if low == high else f"{power_of_ten(low)} to {power_of_ten(high)}"


def not_measured(result: RunResult, figure: str) -> str:
    """Why a figure is None: "label", "student", "alone", "plurality", "non_private" or "uniform"."""
    settings, source = result.settings, result.source
    if figure in ("non_private", "uniform", "alone") and not settings.baselines:
        return "baselines were switched off"
    if figure in ("student", "non_private"):
        if source.dataset is None:
            return "votes came from a file, so there is no data to train on"
        if settings.student == "none":
            return "no student was asked for"
        return "no label was released to train on"
    if figure == "alone":
        return (
            "votes came from a file, so there is no data to train on"
            if source.dataset is None
            else ("with upsampling, teachers learn pooled records")
        )
    if source.truth is None:
        return "no true labels were given"
    return "no label was released"


def seeds_text(seeds: tuple[int, ...]) -> str:
    """Seeds as the command line takes them: runs of consecutive ones as 0-9."""
    parts: list[list[int]] = []
    for seed in seeds:
        if parts and seed == parts[-1][1] + 1:
            parts[-1][1] = seed
        else:
            parts.append([seed, seed])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in parts)


def command(settings: Experiment) -> str:
    """The command that repeats a run: every setting that is not the default."""
    words = ["conclave-simulate", "run"]
    defaults = {name: field.default for name, field in Experiment.model_fields.items()}
    for name, value in dict(settings).items():
        if value is None or (name in defaults and value == defaults[name]):
            continue
        flag = f"--{name.replace('_', '-')}"
        if isinstance(value, bool):
            words.append(flag if value else flag.replace("--", "--no-", 1))
        else:
            words += [flag, seeds_text(value) if isinstance(value, tuple) else str(value)]
    return shlex.join(words)
