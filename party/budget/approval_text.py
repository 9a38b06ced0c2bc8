"""What a hospital agrees to when it approves a study, in plain words."""

from __future__ import annotations

import numpy as np

from party.budget.standing import Forecast
from party.lifetime import seats_of
from party.settings import PartySettings
from protocols.budgets.accountant import accountant
from protocols.study.deployed import DeployedStudy
from protocols.study.levels import GuardedLevel, SecureSum
from protocols.study.study import ADJACENCY
from protocols.study.terms import Terms

_UNITS = {
    "record": "one record of one patient (one patient, where the patient's column is set), replaced by another",
    "party": "all data of this hospital, replaced by other data",
}
_VIEWS = {
    "label": "the labels that are released (and which queries got none)",
    "histogram": "the noisy vote counts of every query",
}

_NOT_COVERED = {
    "clear": "Against the coordinator itself votes are not protected: it sees them in the clear and is trusted with "
    "them.",
    "secure_sum": "Against the coordinator together with more parties than that, nothing is promised.",
    "two_server": "Against coordinator and guardian together votes are not protected.",
    "hidden_queries": "Against {0} and the guardian together votes are not protected, nor is your model against the "
    "guardian together with {0} or with the operator. Other hospitals may ask in studies of their own: all count "
    "against the cap above.",
}


def _who_sees(study: DeployedStudy) -> list[str]:
    """Who may see a vote, who adds the noise, and whose keys a hospital must have compared."""
    level = study.confidentiality
    if isinstance(level, SecureSum):
        return [
            "Who sees     the coordinator sees noisy sums of all votes and no vote; each party adds some noise",
            f"             as long as at most {level.colluders} parties collude with it; your node signs with its key",
        ]
    if isinstance(level, GuardedLevel):
        first = level.who_asks("the coordinator")
        return [
            f"Who sees     nobody sees a vote, unless {first} and the guardian {level.guardian} collude; each",
            "             adds noise. Compare the guardian's keys, or the digest, with the guardian by telephone: a",
            "             coordinator that put keys of its own in their place would see every vote.",
            f"             sealing_key {level.sealing_key}",
            f"             signing_key {level.signing_key}",
        ]
    return ["Who sees     the coordinator sees every vote, draws the noise, and is trusted with both"]


def _what_is_asked(study: DeployedStudy, terms: Terms, *, pool_checked: bool) -> list[str]:
    """Who asks what, what this hospital does for it, and what comes out."""
    level, batches = study.confidentiality, f"in batches of up to {study.batch_limit}, until {terms.ends}"
    roster = f"{len(study.roster)} seats take part, {study.quorum} needed for each batch"
    if level.hides_queries:
        querier = level.who_asks(terms.coordinator)
        return [
            f"Who asks     {querier}, over {terms.coordinator}, which only relays; {roster}",
            f"Asked        up to {terms.pool_size} private records of {querier}, {batches}",
            "Questions    nobody but who asks sees them, so nobody can check what is asked; only their number is held",
            "Your part    one model answers queries that it does not see; its architecture is public, not its weights",
            f"Released     a label a query, by {study.mechanism.name}, to {querier} alone",
        ]
    checked = "each is held against the pool that you were sent; any other is refused"
    unchecked = "only their shape and number can be checked; ask for the pool and give it with --pool"
    return [
        f"Who asks     {terms.coordinator}; {roster}",
        f"Asked        {terms.pool_size} public queries, {batches}",
        f"Questions    {checked if pool_checked else unchecked}",
        f"Your part    {study.teachers} teachers a seat vote on each query; records, models and features stay here",
        f"Released     a label a query, by {study.mechanism.name}, a student model trained on these labels, and a "
        "privacy statement",
    ]


def describe(
    study: DeployedStudy, party: str, settings: PartySettings, forecasts: list[Forecast], *, pool_checked: bool
) -> list[str]:
    """Lines for people: the task, who asks, what is released, what it costs, what is left, what is not covered."""
    terms = study.terms
    lines = [
        f"Study        {study.name}, digest {study.digest.hex()}",
        f"Task         {terms.task}",
        f"Classes      {', '.join(terms.class_names)}",
        *_what_is_asked(study, terms, pool_checked=pool_checked),
        *_who_sees(study),
        "",
        f"What it may cost, at most (unit {study.unit}: {_UNITS[study.unit]}; adjacency {ADJACENCY}; view "
        f"{study.view}: {_VIEWS[study.view]}; {accountant(study.accountant_name).statement}):",
    ]
    budgets = study.budgets
    answers = budgets.affordable(np.zeros(len(study.roster), np.int64), limit=study.query_limit)
    for seat in seats_of(study, party):
        at = study.seats[seat]
        lines.append(
            f"  {seat}: epsilon {budgets.epsilon_guaranteed[at]:.4g} at delta {study.roster[at].delta:g}, weight "
            f"{study.roster[at].weight:g} a vote; enough for {int(answers[at])} answers if every query is answered"
        )
    lines += ["", f"What it takes of the lifetime cap of data set {settings.data.name!r}:"]
    for each in forecasts:
        lines.append(
            f"  unit {each.after.unit}: {_share(each.before.share)} of epsilon {each.after.cap.epsilon:g} at delta "
            f"{each.after.cap.delta:g} is reserved; with this study {_share(each.after.share)} "
            f"({'it fits' if each.fits else 'IT DOES NOT FIT'}; epsilon {each.after.epsilon_reserved:.4g} in all)"
        )
    return lines + ["", "Not covered:", *(f"  - {line}" for line in _not_covered(study, settings))]


def _not_covered(study: DeployedStudy, settings: PartySettings) -> list[str]:
    level = study.confidentiality
    lines = [
        _NOT_COVERED[level.name].format(level.who_asks("the coordinator")),
        "A patient who is known to several hospitals costs more than any one of them counts; the release's statement "
        "says how much.",
        "Other releases about these data that do not go through this node.",
    ]
    if study.unit == "record" and not settings.data.patient:
        lines.append("data.patient is not set: a patient with several records here is protected for one of them only.")
    if study.unit == "record":
        lines.append("Facts that hold for many patients: they are what the study is to learn.")
    if settings.settle:
        lines.append(
            "Which queries were answered is the coordinator's signed word (settle = true). A false word would let it "
            "spend more; it is kept as evidence, and `audit verify --release` compares it with the release."
        )
    if settings.teachers.kind == "onnx" and study.teachers > 1:
        lines.append("teachers.kind is onnx: that no patient was learned by two of the files is for you to ensure.")
    return lines


def _share(share: float) -> str:
    return f"{100 * share:.1f} %"
