"""A run in plain words and tables: what was done, what is not for release, what an attack found, groups of records."""

from __future__ import annotations

import csv
import io
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import (
    Any,  # the values of a JSON object
    Final,
)

import numpy as np

from protocols.budgets.individualization import WEIGHT_RULES
from protocols.claims.coverage import often_asked
from protocols.claims.who_sees import not_protected_from
from protocols.labelling.stored_votes import VoteCounts
from protocols.plural import at_most, counted
from protocols.study.protection import protection_of
from protocols.study.released_noise import noise_in
from protocols.study.study import Study
from protocols.study.votes import TeacherVotes, UnitSums, Votes, teacher_votes, unit_sums
from runtime.board import percent
from simulations.groups import FEWEST, ByGroup, Calibration, CostOfPrivacy, GroupFigures, PaysMost
from simulations.membership.report import LEVEL, AttackResult, Estimate, MembershipReport
from simulations.pipeline import RunResult
from simulations.setup.experiment import SETTINGS, Experiment
from simulations.stages.label import LIVE_PARTIES, mean_and_interval

# Computed from votes, teachers or records, not from released labels: no budget pays for it.
NOT_FOR_RELEASE: Final = (
    "teacher_accuracy_mean",
    "plurality_accuracy",
    "asker",
    "baselines.non_private_student_accuracy",
    "baselines.single_party_accuracy_mean",
    "baselines.single_party_accuracy_best",
    "baselines.single_parties_that_gain",
    "baselines.findings_auroc",
    "baselines.findings_auroc_macro",
    "baselines.calibration_error",
    "baselines.brier",
    "baselines.cost",
    "baselines.cost_by_group",
    "baselines.pays_most",
    "baselines.minimum_budget_uniform.answered",
    "baselines.minimum_budget_uniform.label_accuracy",
    "baselines.minimum_budget_uniform.student_accuracy",
)
# Put before such a figure outside the private folder.
MARK: Final = "not for release: "


def not_for_release(name: str) -> bool:
    """Whether a figure of summary.json, by its dotted name, is one of these or part of one."""
    return any(f"{name}.".startswith(f"{each}.") for each in NOT_FOR_RELEASE)


ATTACKS: Final = {"loss": "loss threshold", "modified_entropy_by_class": "modified entropy, threshold by class"}
MODELS: Final = {
    "released": "released student",
    "no_private_data": "control: student of public data only",
    "non_private": "control: private data without privacy",
}
_Row = tuple[str, str, str]


def finding(report: MembershipReport) -> str:
    """What the attacks show, in a sentence or two that claim no more than the intervals do.

    Something is found where an area is above 1/2, or an advantage above 0, by its whole interval; with two attacks that
    happens by chance in up to one run of ten.
    """
    if not _finds(report.released):
        words = "The attacks do not tell members from non-members; that is no proof that no attack can."
        if report.non_private and not _finds(report.non_private):
            words += " They find none in the model without privacy either: they are too weak here to show anything."
        return words
    words = "The attacks tell private records from test records"
    if not report.beyond_shift:
        return f"{words}; no control was measured to show whether that is leakage or due to how the parts were chosen."
    if any(beyond.area.low > 0 or beyond.advantage.low > 0 for beyond in report.beyond_shift):
        return f"{words}, and more than on a student that has seen no private data."
    return (
        f"{words}, but not detectably more than on a student that has seen no private data: this shows no "
        "leakage, only "
        "that the parts differ."
    )


def _finds(results: tuple[AttackResult, ...]) -> bool:
    return any(result.area.low > 0.5 or result.advantage.low > 0 for result in results)


def summary_rows(report: MembershipReport) -> list[_Row]:
    """The figures and their ceilings: name, value, and its 95 % interval or reference value."""
    lines: list[_Row] = []
    for name, called in MODELS.items():
        for result in getattr(report, name):
            lines += _attack_rows(f"{called}; {ATTACKS[result.attack]}", result)
    for beyond in report.beyond_shift:
        words = f"released student minus student of public data only; {ATTACKS[beyond.attack]}"
        lines.append((f"{words}: AUC", *_signed(beyond.area)))
        lines.append((f"{words}: advantage", *_signed(beyond.advantage)))
    lines.append(("released student; loss threshold: AUC with membership permuted", *_figures(report.permuted)))
    for group in report.groups:
        low, high = at_most(group.epsilon_low), at_most(group.epsilon_high)
        words = f"ε = {low}" if low == high else f"ε from {low} to {high}"
        value, interval = _figures(group.area)
        lines.append((f"AUC, {count(group.members)} members of {words} (at most {group.ceiling:.3f})", value, interval))
    for words, ceiling in (
        ("every unit", report.least_protected),
        ("the unit with the lowest ceiling", report.most_protected),
    ):
        about = f"ε = {at_most(ceiling.epsilon)}, δ = {at_most(ceiling.delta)}"
        lines.append((f"ceiling for {words}: AUC", f"{ceiling.area:.3f}", about))
        lines.append((f"ceiling for {words}: advantage", f"{ceiling.advantage:.3f}", about))
        for rate, most in zip(report.released[0].rates, ceiling.rates, strict=True):
            lines.append((f"ceiling for {words}: TPR at FPR {_percent(rate.wanted)}", _percent(most), about))
    return lines


def _attack_rows(words: str, result: AttackResult) -> list[_Row]:
    lines = [(f"{words}: AUC", *_figures(result.area)), (f"{words}: advantage", *_signed(result.advantage))]
    for rate in result.rates:
        found, false = rate.true_positive_rate, rate.false_positive_rate
        name = f"{words}: TPR at FPR {_percent(rate.wanted)}"
        if false.value == 0:
            # Too few non-members for one false positive: only this upper bound of the threshold's rate is known.
            name += f" (no false positive among {count(result.non_members)}; FPR up to {_percent(false.high)})"
        lines.append((name, _percent(found.value), f"{_percent(found.low)} to {_percent(found.high)}"))
    return lines


def _figures(estimate: Estimate) -> tuple[str, str]:
    return f"{estimate.value:.3f}", f"{estimate.low:.3f} to {estimate.high:.3f}, {100 * LEVEL:.0f}\N{NO-BREAK SPACE}%"


def _signed(estimate: Estimate) -> tuple[str, str]:
    interval = f"{estimate.low:+.3f} to {estimate.high:+.3f}, {100 * LEVEL:.0f}\N{NO-BREAK SPACE}%"
    return f"{estimate.value:+.3f}", interval


def _percent(share: float) -> str:
    return f"{100 * share:.3g}\N{NO-BREAK SPACE}%"


GroupRow = dict[str, Any]  # Any: JSON

# What is said where a share is of so few records.
FEW = f"fewer than {FEWEST} records"


def groups_summary(found: ByGroup | None) -> list[GroupRow] | None:
    """The student's figures of each group; None without a student."""
    return None if found is None else [_own(each) for each in found.groups]


def calibration_summary(found: ByGroup | None) -> GroupRow | None:
    """The student's calibration, as a mean over the seeds whose student was trained; None without a student."""
    if found is None:
        return None
    error, error_half = mean_and_interval(np.array([each.error for each in found.calibrations]))
    brier, brier_half = mean_and_interval(np.array([each.brier for each in found.calibrations]))
    return {
        "error": error,
        "error_ci95": error_half,
        "brier": brier,
        "brier_ci95": brier_half,
        "bins": len(found.calibrations[0].records),
    }


def baseline_groups(found: ByGroup | None) -> GroupRow:
    """What is computed from private records, and not for release: keys of `baselines`; None without a pooled model."""
    if found is None or found.pooled is None:
        return {"calibration_error": None, "brier": None, "cost": None, "cost_by_group": None, "pays_most": None}
    rows = [
        {"attribute": each.attribute, "group": each.group, "pooled_accuracy": each.pooled, **_cost("cost", each.cost)}
        for each in found.groups
    ]
    return {
        "calibration_error": found.pooled.error,
        "brier": found.pooled.brier,
        "cost": _cost("cost", found.cost),
        "cost_by_group": rows,
        "pays_most": None if found.pays_most is None else _most(found.pays_most),
    }


def _own(each: GroupFigures) -> GroupRow:
    return {
        "attribute": each.attribute,
        "group": each.group,
        "records": each.records,
        "accuracy": each.accuracy,
        "accuracy_low": each.low,
        "accuracy_high": each.high,
        "confidence": each.confidence,
        "brier": each.brier,
        "note": FEW if each.records < FEWEST else "",
    }


def _cost(name: str, cost: CostOfPrivacy | None) -> GroupRow:
    if cost is None:
        return {}
    return {name: cost.value, f"{name}_low": cost.low, f"{name}_high": cost.high}


def _most(most: PaysMost) -> GroupRow:
    return {
        "attribute": most.figures.attribute,
        "group": most.figures.group,
        "records": most.figures.records,
        **_cost("cost", most.figures.cost),
        "cost_of_the_others": most.rest,
        **_cost("excess", most.excess),
        "compared": most.compared,
    }


def groups_table(found: ByGroup) -> str:
    """by_group.csv: one row per group; columns that are not for release say so."""
    rows = []
    for each in found.groups:
        own = _own(each)
        note = own.pop("note")
        private = {"pooled_accuracy": each.pooled, **_cost("cost", each.cost)}
        shown = {} if each.pooled is None else {f"{MARK}{name}": value for name, value in private.items()}
        rows.append({**own, **shown, "note": note})
    return _csv(rows)


def calibration_table(found: ByGroup) -> str:
    """calibration.csv: one row per bin of the first seed's student, from the least sure to the surest."""
    first = found.calibrations[0]
    rows = _bins(first, "")
    if found.pooled is not None:
        rows = [{**own, **other} for own, other in zip(rows, _bins(found.pooled, f"{MARK}pooled_"), strict=True)]
    return _csv([{"bin": number, "records": int(first.records[number]), **row} for number, row in enumerate(rows)])


def _bins(found: Calibration, start: str) -> list[GroupRow]:
    return [
        {f"{start}confidence": sure, f"{start}accuracy": right}
        for sure, right in zip(found.confidence.tolist(), found.accuracy.tolist(), strict=True)
    ]


def _csv(rows: list[GroupRow]) -> str:
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, rows[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()


def pays_most_words(most: GroupRow, *, seeds: int) -> str:
    """In one sentence: the group for which privacy costs most, as `pays_most` of summary.json says, and whether it may
    be chance. Or that it costs none of them accuracy."""
    if most["cost"] <= 0:
        return f"none of {most['compared']} groups loses accuracy"

    def wrong(name: str) -> str:
        return f"{100 * most[name]:.1f}"

    chance = (
        "the difference may be chance"
        if most["excess_low"] <= 0
        else f"more than the choice of {'test records and seeds' if seeds > 1 else 'test records'} explains"
    )
    return (
        f"{most['attribute']} {most['group']}: {wrong('cost')} more of 100 records are wrong than with the pooled "
        f"model (95 %: {wrong('cost_low')} to {wrong('cost_high')}; {most['records']:,} test records), of the others "
        f"{wrong('cost_of_the_others')}: {chance}, among {most['compared']} groups"
    )


def judged_of(figures: GroupRow) -> tuple[list[GroupRow], list[str]]:
    """What judges found, of each finding or the one label; and the names of the findings, none of one label."""
    names = [each["name"] for each in (figures["findings"] or {"each": ()})["each"]]
    found = figures["evaluation"]
    return ([found[name] for name in names] if names else [found]), names


def judged_words(figures: GroupRow) -> str:
    """How often the student is right by its judges, of each finding or the one label."""
    each, names = judged_of(figures)
    about = [f"about {name} " for name in names] or [""]
    shares = [map(percentage, of["accuracy"]) for of in each]
    return "; ".join(at + "for {} (95 %: {} to {})".format(*of) for at, of in zip(about, shares, strict=True))


def sums_words(figures: GroupRow) -> str:
    """How many sums were released where records vote: of two, the second may lack its quorum in some seeds."""
    votes, seeds = figures["record_votes"], len(figures["seeds"])
    return "one noisy sum" if votes["sums"] == 1 else "two noisy sums" + _lacked(votes["second_sums"], seeds)


def _lacked(second_sums: int, seeds: int) -> str:
    """In how many seeds the second sum was not released, in brackets; nothing where it was in all."""
    lack = seeds - second_sums
    return f" (the second sum lacked its quorum in {lack} of {counted(seeds, 'seed')})" if lack else ""


def share_text(share: float, records: int) -> str:
    """A share as a percentage, with a note where it is of few records."""
    return percentage(share) if records >= FEWEST else f"{percentage(share)} of only {records}"


_STOP_RULES = {
    "first-exhausted": "the first budget that is used up ends the study for everyone",
    "drop-exhausted": "a party whose budget is used up stops voting and the others continue, with the same "
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


# More distinct budgets than this are given as a range.
_MOST_BUDGETS = 6


def count(value: float) -> str:
    """A count, or a mean of counts with one decimal, with thousands separators."""
    rounded = round(value, 1)
    return f"{rounded:,.0f}" if float(rounded).is_integer() else f"{rounded:,.1f}"


def parties_words(number: int) -> str:
    """The number of parties in words."""
    return f"{number:,} {'party' if number == 1 else 'parties'}"


def percentage(share: float) -> str:
    """A share as every page writes it, in one piece where lines break."""
    return percent(share).replace(" ", "\N{NO-BREAK SPACE}")


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
    words = _WORDS[type(study.votes)]
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
            words.voters(result),
        ]
    asked = "hidden" if study.confidentiality.asked_by else "public"
    weighting = f"{settings.weight_rule}: {WEIGHT_RULES[settings.weight_rule].words}"
    lines += [
        (_WORDS[type(study.votes)].asked(study), f"{count(stored.queries)} {asked}, {study.classes} classes"),
        ("Mechanism", words.mechanism(study)),
        ("Individual budgets", _INDIVIDUALIZATION.get(settings.individualization, weighting)),
        ("End of study", words.end(study)),
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


def _teachers(result: RunResult) -> tuple[str, str]:
    teachers = teacher_votes(result.study).teachers
    each = "one" if teachers == 1 else teachers
    return "Teachers", f"{result.settings.teacher}, {each} per party, on disjoint shards of its data"


def _record_votes(result: RunResult) -> tuple[str, str]:
    sums = unit_sums(result.study)
    votes = sums.votes
    if sums.signed:
        again = sum(seed.labelling.again is not None for seed in result.seeds)
        lacked = _lacked(again, len(result.seeds)) if sums.residuals else ""
        return "Graded votes", (
            f"no teachers: each private record gives its label to {votes} public features of it, as long together as "
            f"one vote; asked {often_asked(sums.residuals)}{lacked} (noisy sums of features: Vu and Slavkovic 2009)"
        )
    share = "one vote" if votes == 1 else f"1/√{votes} of a vote in each"
    return "Record votes", (
        f"no teachers: each private record votes with its own label in the {votes} public queries that it is "
        f"nearest to, {share}, once in the whole study (reverse k-nearest neighbours)"
    )


@dataclass(frozen=True)
class _Words:
    """What is said of one kind of votes."""

    voters: Callable[[RunResult], tuple[str, str]]
    mechanism: Callable[[Study], str]
    end: Callable[[Study], str]
    asked: Callable[[Study], str] = lambda study: "Queries"


_WORDS: dict[type[Votes], _Words] = {
    TeacherVotes: _Words(
        voters=_teachers,
        mechanism=lambda study: study.mechanism.released_words(total_weight=study.nominal_weight),
        end=lambda study: _STOP_RULES[study.votes.stop],
    ),
    UnitSums: _Words(
        voters=_record_votes,
        mechanism=lambda study: (
            f"the sum of all votes for each {'feature' if unit_sums(study).signed else 'query'} and class, with "
            f"Gaussian noise of {noise_in(study):.4g} votes: the least that every budget affords"
            + ("; and as much of how far labels are from what it says" if unit_sums(study).residuals else "")
        ),
        end=lambda study: f"when every record has been asked {often_asked(unit_sums(study).residuals)}",
        asked=lambda study: "Features" if unit_sums(study).signed else "Queries",
    ),
}


def _live(result: RunResult) -> str:
    if result.live_checked:
        return "yes: parties with their own ledgers released and were charged the same"
    if isinstance(result.source.stored, VoteCounts):
        return "no: counts of votes do not show parties; the study was only replayed"
    if result.study.confidentiality.asked_by:
        return "no: votes are those of private inference, bit for bit, but the study was only replayed"
    return f"no: above {LIVE_PARTIES:,} parties the study is only replayed"


def _parties(result: RunResult) -> str:
    epsilon, parties = np.unique(result.budgets.epsilon, return_counts=True)
    words = f"{parties_words(len(result.study.roster))}; "
    if len(epsilon) == 1:
        words += f"a budget of ε = {at_most(epsilon[0])} each"
    elif len(epsilon) <= _MOST_BUDGETS:
        each = (f"{at_most(value)} for {number:,}" for value, number in zip(epsilon, parties, strict=True))
        words += f"budgets ε = {', '.join(each)}"
    else:
        middle = np.median(result.budgets.epsilon)
        low, high = at_most(epsilon[0]), at_most(epsilon[-1])
        words += f"budgets ε from {low} to {high}, median {at_most(middle)} ({result.settings.budgets})"
    sizes = result.source.party_sizes
    if sizes is None:
        return words
    low, high = count(int(sizes.min())), count(int(sizes.max()))
    return f"{words}; {low if low == high else f'{low} to {high}'} records each"


def deltas_words(result: RunResult) -> str:
    """The delta of all budgets, or the range of their deltas."""
    low, high = float(result.budgets.delta.min()), float(result.budgets.delta.max())
    return " to ".join(dict.fromkeys((at_most(low), at_most(high))))


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


def command(settings: Experiment, *, named: Mapping[str, object] | None = None) -> str:
    """The command that repeats a run: every setting that is not the default. named: flags that are no settings."""
    chosen = {
        name: seeds_text(value) if isinstance(value, tuple) else value
        for name, value in settings.known.items()
        if name not in SETTINGS or value != SETTINGS[name]
    }
    return run_line({**chosen, **(named or {})})


def run_line(values: Mapping[str, object]) -> str:
    """The command of a run with these settings, by name."""
    words = ["conclave-simulate", "run"]
    for name, value in values.items():
        flag = f"--{name.replace('_', '-')}"
        if isinstance(value, bool):
            words.append(flag if value else f"--no-{flag[2:]}")
        else:  # written with "=" where the value begins with a dash
            words += [f"{flag}={value}"] if str(value).startswith("-") else [flag, str(value)]
    return shlex.join(words)
