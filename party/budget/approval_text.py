"""What a hospital agrees to when it approves a study, in plain words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf

import numpy as np

from party.lifetime import Forecast, LifetimeUse, seats_of
from party.settings import PartySettings
from protocols.budgets.accountant import accountant
from protocols.claims.coverage import (
    COUNTED_LIFETIME,
    WHOLE_PATIENT,
    charged,
    not_covered_by_approval,
    often_asked,
    several,
    used_once,
)
from protocols.claims.languages import ENGLISH, attacked, guesses, number, protected, say, sees_votes, unprotected
from protocols.claims.protection import Protection
from protocols.claims.strength import WEAK, percent_at_most, strength
from protocols.claims.who_sees import who_sees_votes
from protocols.plural import at_most, counted
from protocols.study.chosen import CHOSEN, GIVEN
from protocols.study.deployed import DeployedStudy
from protocols.study.protection import protection_of
from protocols.study.purposes import ForCounts, ForLabels, Purpose
from protocols.study.released_noise import little_released
from protocols.study.several_hospitals import any_hospitals, each_seat
from protocols.study.terms import Terms
from protocols.study.votes import TeacherVotes, UnitSums, Votes, teacher_votes, unit_sums
from protocols.sums.judging import Evaluation


def _who_sees(study: DeployedStudy, about: Protection) -> list[str]:
    """Who may see a vote, who adds the noise, and whose keys a hospital must have compared."""
    lines = [f"Who sees     {who_sees_votes(about)}"]
    level = study.confidentiality
    if level.signs:
        lines.append("             Your node signs with its key.")
    if level.second_server:
        lines.append(
            f"             Have the guardian, {level.second_server}, read out the fingerprint of its keys by "
            "telephone, and type it: a coordinator that put its own keys in their place would see every vote."
        )
    return lines


def _what_is_asked(study: DeployedStudy, terms: Terms, *, pool_checked: bool) -> list[str]:
    """Who asks what, what this hospital does for it, and what comes out."""
    level, batches = study.confidentiality, f"in batches of up to {study.batch_limit}, until {terms.ends}"
    roster = f"{counted(len(study.roster), 'seat')} in all, {study.quorum} needed for each batch"
    if querier := level.asked_by:
        return [
            f"Who asks     {querier}, over {terms.coordinator}, which only relays; {roster}",
            f"Asked        up to {terms.pool_size} private records of {querier}, {batches}",
            _misses(terms, querier),
            "Queries      only the hospital that asks sees them, so nobody can check what is asked; only their "
            "number is limited",
            "Your part    one model answers queries that it does not see; its architecture is public, not its weights",
            f"Released     one label per query, by {study.mechanism.name}, to {querier} alone",
        ]
    return _ASKED[type(study.votes)](study, terms, pool_checked)


def _misses(terms: Terms, asked: str) -> str:
    return (
        f"If late      after {counted(terms.misses, 'late batch')} of your hospital, {asked} may "
        "continue without you; what you were charged stays charged"
    )


def _records_asked(study: DeployedStudy, terms: Terms, pool_checked: bool) -> list[str]:
    return _ASKED_OF_SUMS[type(unit_sums(study).use)](study, terms)


def _counts_asked(study: DeployedStudy, terms: Terms) -> list[str]:
    sums, columns = unit_sums(study), ", ".join(each.column for each in terms.features)
    by = f", by {terms.label}" if terms.label else ""
    whole = "of each hospital by itself, and of all together" if study.apart else "of all hospitals together"
    return [
        f"Who asks     {terms.coordinator}; {counted(len(study.roster), 'seat')} in all, {study.quorum} needed",
        f"Asked        once, how many {study.unit}s have which values of {columns}{by}, until {terms.ends}",
        f"Your part    each {study.unit} is counted once in each column; the counts leave this hospital, no record "
        "does",
        f"Released     the counts {whole}, with noise of {sums.sigma:g} votes in each sum, and a privacy statement",
    ]


def _labels_asked(study: DeployedStudy, terms: Terms) -> list[str]:
    sums = unit_sums(study)
    own = "findings, which together weigh as much as one label," if study.findings else "label"
    asked, part = "queries", f"each record votes with its own {own} in {sums.votes} of the queries"
    if sums.signed:
        asked = "features"
        part = f"each record adds to each of {sums.queries} features, by how strongly it has it and its own {own}"
    return [
        f"Who asks     {terms.coordinator}; {counted(len(study.roster), 'seat')} in all, {study.quorum} needed",
        f"Asked        {often_asked(sums.residuals)}, {sums.queries} public {asked} together, until {terms.ends}",
        f"{asked.capitalize():<13}in the file that you were given, whose hash the study names: the same for every "
        "hospital",
        f"Your part    {part}, and each {study.unit} weighs the same; the sum of these votes leaves this hospital, no "
        "record does, and nothing is trained here",
        *([] if sums.evaluation is None else [_judges(study, sums.evaluation)]),
        f"Released     the sum of all hospitals' votes with noise of {sums.sigma:g} votes in each "
        "cell, labels and a student model made from it, and a privacy statement",
    ]


def _judges(study: DeployedStudy, evaluation: Evaluation) -> str:
    return (
        f"Judges       {100 * evaluation.share:g} of 100 {study.unit}s, drawn by a public key, do not vote: once, in a "
        "second noisy sum, they say how often the student is right about them. This costs nothing more. Their records "
        "lie in the study's folder until they have answered"
    )


def _teachers_asked(study: DeployedStudy, terms: Terms, pool_checked: bool) -> list[str]:
    votes = teacher_votes(study)
    checked = "each is compared with the pool that you were sent; any other is refused"
    unchecked = "only their shape and number can be checked; ask for the pool and give it with --pool"
    chosen = [] if votes.questions == GIVEN else [f"             {CHOSEN}"]
    return [
        f"Who asks     {terms.coordinator}; {counted(len(study.roster), 'seat')} in all, {study.quorum} needed for "
        "each batch",
        f"Asked        {terms.pool_size} public queries, in batches of up to {votes.batch_limit // votes.asks.rows}, "
        f"until {terms.ends}",
        _misses(terms, "the operator"),
        *chosen,
        f"Queries      {checked if pool_checked else unchecked}",
        f"Your part    each of {votes.teachers} teachers per seat votes on each query{votes.asks.in_words}; records, "
        "models and features stay here",
        f"Released     one label {'of each finding ' * bool(study.findings)}per query, by "
        f"{study.mechanism.name}, a student model trained on these labels, and a privacy statement",
    ]


def in_brief(study: DeployedStudy, party: str, forecasts: list[Forecast], *, language: str = ENGLISH) -> list[str]:
    """What stands at the prompt, in at most 24 lines of 80 columns: what a figure means, who sees votes, what is left
    of the cap, who is not protected."""
    about, every = protection_of(study), each_seat(study)
    own = (every[study.seats[seat]].figure for seat in seats_of(study, party))
    weakest = max(own, key=lambda each: each.epsilon)
    epsilon, delta = (number(language, at_most(each)) for each in (weakest.epsilon, weakest.delta))
    named = {"study": study.name, "delta": delta, "unit": protected(language, about)}
    costs = say(language, "costs all", **named)
    if weakest.epsilon < inf:
        rating, right, found = say(language, weakest.rating), guesses(language, weakest), attacked(language, weakest)
        costs = say(language, "costs", **named, epsilon=epsilon, rating=rating, guesses=right, attack=found)
    left = [
        say(
            language,
            "reserved",
            after=number(language, percent_at_most(each.after.share)),
            before=number(language, percent_at_most(each.before.share)),
            cap=number(language, at_most(each.after.cap.epsilon)),
            unit=say(language, f"unit {each.after.unit}"),
        )
        for each in forecasts
    ]
    lines = {
        "brief": costs,
        "brief votes": f"{sees_votes(language, about)}.",
        "brief cap": f"{'; '.join(left) or say(language, 'no cap')}.",
        "brief not": unprotected(language, about),
    }
    return [f"{say(language, name):<13}{said[0].upper()}{said[1:]}" for name, said in lines.items()]


def approval_words(
    study: DeployedStudy, party: str, settings: PartySettings, forecasts: list[Forecast], *, pool_checked: bool
) -> list[str]:
    """Lines for people: the task, who asks, what is released, what it costs, what is left, what is not covered."""
    terms = study.terms
    about = protection_of(study)
    lines = [
        f"Study        {study.name}, digest {study.digest.hex()}",
        f"Task         {terms.task}",
        f"{'Findings' if terms.findings else 'Classes':<13}{terms.predicted}",
        *_what_is_asked(study, terms, pool_checked=pool_checked),
        f"Licence      of what is released: {terms.licence or 'none is named; see the agreement'}",
        *_who_sees(study, about),
        "",
        f"What it may cost, at most ({about.figures}; {accountant(study.accountant_name).statement}), for "
        f"{about.unit_in_words}, whose data are compared with any others in their place. The observer is anyone who "
        f"sees {about.view_in_words}:",
    ]
    lines += _COST[type(study.votes)](study, party, settings)
    return lines + _warnings(study, party) + lifetime_lines(study, settings, forecasts) + _last(study, settings)


def _cost_of_teachers(study: DeployedStudy, party: str, settings: PartySettings) -> list[str]:
    """What each seat's budget guarantees, and for how many answers it is enough."""
    budgets, lines = study.budgets, []
    answers = budgets.affordable(np.zeros(len(study.roster), np.int64), limit=study.query_limit)
    enough = "answers if every query is answered" if budgets.settles else "queries"
    guaranteed = each_seat(study)
    for seat in seats_of(study, party):
        at = study.seats[seat]
        lines.append(
            f"  {seat}: epsilon {at_most(guaranteed[at].epsilon)} at delta {at_most(guaranteed[at].delta)}, weight "
            f"{study.roster[at].weight:g} per vote; enough for {int(answers[at]) // study.votes.asks.rows} {enough}"
        )
        lines.append(f"    {strength(guaranteed[at].figure)}")
    if study.unit == "record" and settings.data.patient:
        lines.append(f"  {WHOLE_PATIENT}")
    return [*lines, *_several(study), f"  {charged(protection_of(study))}"]


def _cost_of_records(study: DeployedStudy, party: str, settings: PartySettings) -> list[str]:
    """What each seat's budget means for one unit, once and for ever."""
    about, guaranteed, lines = protection_of(study), each_seat(study), []
    for seat in seats_of(study, party):
        at = study.seats[seat]
        figure = guaranteed[at].figure
        lines.append(f"  {seat}, weight {study.roster[at].weight:g}: {used_once(about, figure)}")
        lines.append(f"    {strength(figure)}")
    return lines + _several(study)


def _warnings(study: DeployedStudy, party: str) -> list[str]:
    """That hardly anything will be released, or that what this hospital's patients are promised is weak."""
    figures = [each.figure for each in each_seat(study)]
    worst = max((figures[study.seats[seat]] for seat in seats_of(study, party)), key=lambda each: each.epsilon)
    warnings = [little_released(study)]
    if worst.rating == WEAK:
        warnings.append(
            f"epsilon {at_most(worst.epsilon)} is weak. Ask the operator for a smaller one, or your data-protection "
            "officer whether it is enough (--officers-file FILE)."
        )
    return [line for each in warnings if each is not None for line in ("", f"Warning      {each}")]


def _several(study: DeployedStudy) -> list[str]:
    """What a patient of two hospitals, and of all, is guaranteed; or the one guarantee that counts them."""
    if study.votes.hospitals_per_patient > 1:
        return [f"  {several(protection_of(study))}"]
    every = any_hospitals(study)
    shown = {count: every[count - 1] for count in (2, len(every)) if 1 < count <= len(every)}
    return [
        f"  a patient with data at any {count} hospitals: epsilon {at_most(each.epsilon)}. {strength(each.figure)}"
        for count, each in shown.items()
    ]


def lifetime_lines(study: DeployedStudy, settings: PartySettings, forecasts: list[Forecast]) -> list[str]:
    """What a study takes from each lifetime cap."""
    lines = ["", f"What it takes from the lifetime cap of data set {settings.data.name!r}:"]
    for each in forecasts:
        lines.append(
            f"  unit {each.after.unit}: the cap is epsilon {at_most(each.after.cap.epsilon)} at delta "
            f"{at_most(each.after.cap.delta)}. Reserved: {_share(each.before.share)} of it now, "
            f"{_share(each.after.share)} with this study, which is epsilon {at_most(each.after.epsilon_reserved)}: "
            f"{'this study fits' if each.fits else 'THIS STUDY DOES NOT FIT'}"
        )
        if study.votes.bounded(study.unit) == (each.after.unit,) == ("record",) and settings.data.patient:
            lines.append(
                "    here for one record: as data.patient is set, studies in which teachers vote take it for a whole "
                "patient, but in this one a patient with several records may cost more than the cap"
            )
    return lines if study.budgets.planned is None else [*lines, f"  {COUNTED_LIFETIME}"]


def reserved_lines(data_set: str, uses: Sequence[LifetimeUse]) -> list[str]:
    """What all approved studies of a data set have reserved of each of its lifetime caps."""
    return [f"What all approved studies have reserved of the lifetime cap of data set {data_set!r}:"] + [
        f"  unit {each.unit}: {_share(each.share)} of epsilon {at_most(each.cap.epsilon)} at delta "
        f"{at_most(each.cap.delta)}, which is epsilon {at_most(each.epsilon_reserved)}"
        for each in uses
        if each.data_set == data_set
    ]


def _last(study: DeployedStudy, settings: PartySettings) -> list[str]:
    return ["", "Not covered:", *(f"  - {line}" for line in _not_covered(study, settings))]


def _not_covered(study: DeployedStudy, settings: PartySettings) -> list[str]:
    lines = not_covered_by_approval(protection_of(study), patient_named=bool(settings.data.patient))
    if settings.settle and study.budgets.settles:
        lines.append(
            "The coordinator's signed word is trusted on which queries were answered (settle = true). A false "
            "one would let it spend more; it is kept as evidence, and `conclave-party verify --release` compares it "
            "with the release."
        )
    if settings.teachers.kind == "onnx" and study.votes.voters > 1:
        lines.append(
            "teachers.kind is onnx: it is for you to ensure that no patient's records trained two of the files."
        )
    return lines


def _share(share: float) -> str:
    return f"{100 * share:.1f} %"


_ASKED_OF_SUMS: dict[type[Purpose], Callable[[DeployedStudy, Terms], list[str]]] = {
    ForLabels: _labels_asked,
    ForCounts: _counts_asked,
}
# What an approval says of each kind of votes: what is asked, and what it may cost.
_ASKED: dict[type[Votes], Callable[[DeployedStudy, Terms, bool], list[str]]] = {
    TeacherVotes: _teachers_asked,
    UnitSums: _records_asked,
}
_COST: dict[type[Votes], Callable[[DeployedStudy, str, PartySettings], list[str]]] = {
    TeacherVotes: _cost_of_teachers,
    UnitSums: _cost_of_records,
}
