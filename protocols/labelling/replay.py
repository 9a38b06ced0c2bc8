"""Replay: aggregate stored votes under a study, without parties, data or training.

Follows the same schedule as a live study (protocols.labelling.schedule), draws its noise in the same order, and so
gives the same labels and the same ledgers; vectorised over queries, parties and orders, it takes milliseconds per
setting."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Float64, Int64
from numpy import ndarray

from protocols.budgets.participation import coins
from protocols.crypto.randomness import RandomSource, simulation_rng
from protocols.errors import InvalidInput
from protocols.labelling.coordinator import Labelling, TrainStudent
from protocols.labelling.questions import Choose, check_choose, next_questions
from protocols.labelling.schedule import Stop, next_of
from protocols.labelling.stored_votes import CastVotes, RecordSums, StoredVotes, VoteCounts
from protocols.levels.level import BatchNoise
from protocols.levels.simulated import drawn_noise
from protocols.mechanisms import MECHANISMS
from protocols.study.study import Study
from protocols.study.votes import TeacherVotes, UnitSums, Votes, teacher_votes
from protocols.votes import ABSTAIN, NOT_ASKED

# Cells of [parties, teachers, queries] that are masked at a time where parties take part in some queries only.
_MASKED_CELLS = 20_000_000

Presence = Callable[[int], Bool[ndarray, " parties"]]
# coins(voting parties, size of the batch) -> whether each vote of each party enters each of the next queries.
Entering = Bool[ndarray, "parties teachers queries"]
Coins = Callable[[Bool[ndarray, " parties"], int], Entering]


@dataclass(frozen=True, eq=False)
class ReplayedLabelling:
    """A labelling and the parties' ledgers after each batch, for plots."""

    labelling: Labelling
    spent_after: Int64[ndarray, "batches parties"] = field(repr=False)


def replay(
    study: Study,
    stored: StoredVotes | RecordSums,
    *,
    noise: BatchNoise,
    presence: Presence | None,
    entering: Coins | None = None,
    train: TrainStudent | None = None,
    choose: Choose | None = None,
) -> ReplayedLabelling:
    """The labels and charges that the study would have released had these votes been cast live.

    noise(voting parties): that of the next batch; presence(batch number): which parties answer that batch (None: all);
    entering: the secret coins, for participation "secret"; train, choose: as for Coordinator.label. Raises InvalidInput
    when votes or arguments do not fit the study.
    """
    check_fit(study, stored, drops=presence is not None)
    if (entering is None) == (study.secret_coins):
        said = study.votes.participation_name
        raise InvalidInput(f"participation is {said!r}; allowed: secret coins for 'secret' alone")
    if train is None and study.mechanism.interactive:
        raise InvalidInput(f"mechanism is {study.mechanism.name!r}, which needs a student trained between its rounds")
    check_choose(study, choose)
    budgets, taking, queries = study.budgets, study.participation, stored.queries
    round_one = study.mechanism.round_one
    labels = np.full(queries, NOT_ASKED, dtype=np.int64)
    reinforced = np.full(queries, ABSTAIN, dtype=np.int64)
    batch_of = np.full(queries, -1, dtype=np.int64)
    spent = np.zeros(len(study.roster), dtype=np.int64)
    batches: list[tuple[int, int]] = []
    history: list[Int64[ndarray, " parties"]] = []
    predictions: Float64[ndarray, "queries classes"] | None = None
    cells: Int64[ndarray, "queries classes"] | None = None
    alike = presence is None and entering is None and taking.everyone
    count = _counter(study, stored, alike=alike)
    asked = 0
    while True:
        step = next_of(study, spent, asked=asked, queries=queries)
        if isinstance(step, Stop):
            stop = step
            break
        often = taking.among(asked, asked + step.size)
        voting = step.active if presence is None else step.active & presence(len(batches))
        if voting.sum() < study.quorum:
            # As with a coordinator, nothing is released and the reservations stand.
            spent = spent + np.where(step.active, budgets.amount(often, often), 0)
            stop = Stop("quorum_lost", np.zeros(len(spent), dtype=bool))
            break
        ids = next_questions(choose, labels, batch_of >= 0, step.size)
        if train is not None and predictions is None and round_one is not None and asked >= round_one:
            predictions = train(labels.copy())
        of_batch = None if predictions is None else predictions[ids]
        enters = None if entering is None else entering(voting, step.size)
        if isinstance(stored, CastVotes) and stored.reach(int(ids[-1]) + 1):
            count = _counter(study, stored, alike=alike)
        counts = count(voting, ids, enters)
        released, cells = study.released(counts, noise(voting), predictions=of_batch)
        labels[ids] = released
        batch_of[ids] = len(batches)
        if of_batch is not None:
            reinforced[ids] = study.mechanism.reinforced(released, of_batch)
        answered = released != ABSTAIN
        if taking.everyone:
            paid = budgets.amount(step.size, int(answered.sum()))
        else:
            paid = budgets.amount(often, _answered_with(study, ids[answered]))
        spent = spent + np.where(voting, paid, 0)
        batches.append((step.size, int(answered.sum())))
        history.append(spent)
        asked += step.size
    labelling = Labelling(labels, batches, stop, spent, reinforced, batch_of, cells=cells)
    return ReplayedLabelling(labelling, np.array(history, dtype=np.int64).reshape(len(history), len(spent)))


def replay_seed(
    study: Study,
    stored: StoredVotes | RecordSums,
    *,
    seed: int,
    dropout: float,
    train: TrainStudent | None = None,
    choose: Choose | None = None,
) -> ReplayedLabelling:
    """The same with the noise, the drop-outs and the secret coins of one seed. Raises InvalidInput as replay."""
    presence = dropout_presence(len(study.roster), rate=dropout, seed=seed) if dropout else None
    noise, entering = drawn_noise(study, seed=seed), secret_coins(study, seed=seed)
    return replay(study, stored, noise=noise, presence=presence, entering=entering, train=train, choose=choose)


def check_replayed(individualization: str, mechanism: str) -> None:
    """Raises InvalidInput for terms under which votes cannot be stored before the study."""
    if individualization == "upsampling":
        raise InvalidInput(
            "individualization is 'upsampling', which trains its own teachers; it cannot replay stored votes"
        )
    if MECHANISMS[mechanism].interactive:
        raise InvalidInput(f"mechanism is {mechanism!r}, which trains a student; it cannot replay stored votes")


def secret_coins(study: Study, *, seed: int) -> Coins | None:
    """The coins that the parties of `live_study` toss, batch by batch in order; None if there are none.

    A party that misses a batch tosses none for it, so each has its own stream, advanced only by its own votes.
    """
    if not study.secret_coins:
        return None
    sources = [coin_source(seed, seat) for seat in range(len(study.roster))]

    def throw(voting: Bool[ndarray, " parties"], size: int) -> Entering:
        enters = np.zeros((len(sources), study.votes.voters, size), dtype=bool)
        for seat in np.flatnonzero(voting):
            enters[seat] = coins(sources[seat], study.roster[seat].rate, teachers=study.votes.voters, queries=size)
        return enters

    return throw


def coin_source(seed: int, seat: int) -> RandomSource:
    """The simulated randomness of one seat's secret coins."""
    return simulation_rng(seed, "coins", seat).bytes


def dropout_presence(parties: int, *, rate: float, seed: int) -> Presence:
    """Each party is absent from each batch with probability `rate`, as a function of only (seed, batch)."""

    def present(number: int) -> Bool[ndarray, " parties"]:
        return simulation_rng(seed, "dropout", number).random(parties) >= rate

    return present


def _answered_with(study: Study, ids: Int64[ndarray, " answered"]) -> Int64[ndarray, " parties"]:
    """The number of these queries in which each party takes part; computed in chunks of queries."""
    step = max(1, _MASKED_CELLS // len(study.roster))
    parts = [study.participation.votes(ids[at : at + step]).sum(axis=1) for at in range(0, len(ids), step)]
    return np.sum(parts, axis=0) if parts else np.zeros(len(study.roster), dtype=np.int64)


Counter = Callable[
    [Bool[ndarray, " parties"], Int64[ndarray, " queries"], "Entering | None"], Float64[ndarray, "queries classes"]
]


def _counter(study: Study, stored: StoredVotes | RecordSums, *, alike: bool) -> Counter:
    """count(voting parties, queries, coins) -> weighted histograms, by groups of like parties where possible.

    alike: whether parties of the same terms vote in the same queries.
    """
    budgets = study.budgets
    if isinstance(stored, RecordSums):
        # The study is one batch, of all queries.
        return lambda voting, ids, entering: _total(study, stored, voting)
    if study.votes.pooled:
        # Seats are groups of records; every teacher of the pooled data has one vote.
        everything = stored.histogram()
        return lambda voting, ids, entering: everything[ids]
    if isinstance(stored, VoteCounts):
        # All vote, with the same weight: check_fit.
        return lambda voting, ids, entering: study.weights[0] * stored.counts[ids]
    if alike and stored.asks.linear:
        # Parties equal in all of these stay or leave together, so a group is active as a whole or not.
        terms = np.stack([study.weights, budgets.cap, budgets.ask, budgets.answer])
        _, first, member = np.unique(terms, axis=1, return_index=True, return_inverse=True)
        groups = stored.group_counts(member, len(first))
        if groups is not None:
            return _by_groups(study, groups, first)
    return _by_party(study, stored)


def _total(study: Study, stored: RecordSums, voting: Bool[ndarray, " parties"]) -> Float64[ndarray, "queries classes"]:
    total = np.zeros((stored.queries, stored.classes), dtype=np.int64)
    for position in np.flatnonzero(voting).tolist():
        total += stored.sums[position]
    return total / study.units


def _by_groups(study: Study, groups: Float64[ndarray, "groups cells"], first: Int64[ndarray, " groups"]) -> Counter:
    """Counts by groups; first: the position in the roster of one party of each."""
    weights, counts = study.weights[first], groups.reshape(len(groups), -1, study.classes)

    def count(
        voting: Bool[ndarray, " parties"], ids: Int64[ndarray, " queries"], entering: Entering | None
    ) -> Float64[ndarray, "queries classes"]:
        cells = counts[:, ids].reshape(len(counts), -1)
        return ((weights * voting[first]) @ cells).reshape(-1, study.classes)

    return count


def _by_party(study: Study, stored: CastVotes) -> Counter:
    """Counts vote by vote."""
    votes, of = stored.votes, teacher_votes(study)

    def count(
        voting: Bool[ndarray, " parties"], ids: Int64[ndarray, " queries"], entering: Entering | None
    ) -> Float64[ndarray, "queries classes"]:
        weights = study.weights * voting
        if study.participation.everyone and entering is None:
            return of.counts(study, votes[:, :, ids], weights)
        parts = []
        step = max(1, _MASKED_CELLS // (votes.shape[0] * votes.shape[1]))
        for start in range(0, len(ids), step):
            part = slice(start, start + step)
            enters = study.participation.votes(ids[part])[:, None, :]
            if entering is not None:
                enters = enters & entering[:, :, part]
            cast = np.where(enters, votes[:, :, ids[part]], ABSTAIN)
            parts.append(of.counts(study, cast, weights))
        return np.concatenate(parts)

    return count


def check_fit(study: Study, stored: StoredVotes | RecordSums, *, drops: bool) -> None:
    """Raises InvalidInput unless these votes can be replayed under the study; drops: whether parties may be absent."""
    if stored.classes != study.classes:
        raise InvalidInput(f"votes are for {stored.classes} classes; the study has {study.classes}")
    if stored.queries > study.query_limit:
        raise InvalidInput(f"{stored.queries} queries were voted on; allowed: at most {study.query_limit}")
    _FITS[type(study.votes)](study, stored, drops)


def _fit_of_sums(study: Study, stored: StoredVotes | RecordSums, drops: bool) -> None:
    if not isinstance(stored, RecordSums):
        raise InvalidInput("teachers' votes and a study of records; allowed: sums of records")
    if len(stored.sums) != len(study.roster):
        raise InvalidInput(f"sums of {len(stored.sums)} seats; allowed: {len(study.roster)}, those of the roster")


def _fit_of_votes(study: Study, stored: StoredVotes | RecordSums, drops: bool) -> None:
    votes = teacher_votes(study)
    if isinstance(stored, RecordSums):
        raise InvalidInput("sums of records and a study of teachers; allowed: votes of teachers")
    if votes.pooled:
        if drops:
            raise InvalidInput("upsampling pools all data, so no party can miss a batch; allowed: dropout 0")
        if isinstance(stored, VoteCounts) or stored.votes.shape[:2] != (votes.pooled_teachers, 1):
            raise InvalidInput(f"upsampling needs the votes of {votes.pooled_teachers} teachers of pooled data")
        return
    if isinstance(stored, CastVotes):
        if stored.asks != votes.asks:
            raise InvalidInput(f"votes are on {stored.asks}; allowed: on what the study asks, {votes.asks}")
        wanted = (len(study.roster), votes.teachers)
        if stored.votes.shape[:2] != wanted:
            raise InvalidInput(f"votes of shape {stored.votes.shape}; allowed: {wanted} parties and teachers")
        return
    if study.votes.participation_name != "all":
        raise InvalidInput("vote counts hold no parties, so all must take part; give votes as class ids instead")
    if len(np.unique(study.weights)) > 1:
        raise InvalidInput(
            "vote counts do not show parties, so weights must be uniform; give votes as class ids instead"
        )
    uneven = len(np.unique(study.budgets.cap)) > 1 or len(np.unique(study.budgets.order)) > 1
    if drops or (study.votes.stop == "drop-exhausted" and uneven):
        raise InvalidInput("vote counts do not show parties, so none can drop out; give votes as class ids instead")


_FITS: dict[type[Votes], Callable[[Study, StoredVotes | RecordSums, bool], None]] = {
    TeacherVotes: _fit_of_votes,
    UnitSums: _fit_of_sums,
}
