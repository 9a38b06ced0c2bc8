"""Replay: aggregate stored votes under a study, without parties, data or training.

Follows the same schedule as a live study (protocols.schedule), draws its noise in the same order, and so gives the
same labels and the same ledgers; vectorised over queries, parties and orders, it takes milliseconds a setting.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Float64, Int64, Integer
from numpy import ndarray

from coordinator.coordinator import Labelling
from protocols.errors import InvalidInput
from protocols.mechanisms import check_view
from protocols.noise import StandardNormal
from protocols.randomness import simulation_rng
from protocols.schedule import Batch, Stop, check_stop, next_batch
from protocols.study import Study
from protocols.votes import ABSTAIN, NOT_ASKED, count_votes

# Histograms of groups of equal weight are kept where they have at most this many cells (8 bytes each).
_GROUP_CELLS = 20_000_000
_GROUPS = 64

Presence = Callable[[int], Bool[ndarray, " parties"]]


@dataclass(frozen=True, eq=False)
class StoredVotes:
    """Votes that were cast once: of teachers, or (counts) only their unweighted histogram.

    votes: class ids or ABSTAIN; counts: votes per class, each row summing to the number of voters.
    """

    classes: int
    votes: Integer[ndarray, "parties teachers queries"] | None
    counts: Float64[ndarray, "queries classes"] | None
    _groups: dict[bytes, Float64[ndarray, "groups cells"]] = field(default_factory=dict, repr=False)

    @property
    def queries(self) -> int:
        """The number of queries that were voted on."""
        if self.votes is not None:
            return self.votes.shape[2]
        assert self.counts is not None
        return len(self.counts)

    def group_counts(self, member: Int64[ndarray, " parties"], groups: int) -> Float64[ndarray, "groups cells"] | None:
        """Unweighted histograms of each group of parties, flattened; None where that would take too much memory.

        Kept from one call to the next: a sweep over budgets, weights and noise counts the votes once.
        """
        if self.votes is None:
            assert self.counts is not None
            return self.counts.reshape(1, -1)
        cells = self.queries * self.classes
        if groups > _GROUPS or groups * cells > _GROUP_CELLS:
            return None
        key = member.astype(np.int32).tobytes()
        if key not in self._groups:
            rows = [
                count_votes(self.votes, (member == group).astype(float), classes=self.classes).ravel()
                for group in range(groups)
            ]
            self._groups.clear()
            self._groups[key] = np.stack(rows)
        return self._groups[key]


@dataclass(frozen=True, eq=False)
class Replay:
    """A labelling and the parties' ledgers after each batch, for plots."""

    labelling: Labelling
    spent_after: Int64[ndarray, "batches parties"]


def replay(study: Study, stored: StoredVotes, *, noise: StandardNormal, presence: Presence | None) -> Replay:
    """What the study would have released had these votes been cast live.

    presence(batch number) says which parties answer that batch (None: all). Raises InvalidInput when the votes do
    not fit the study.
    """
    check_fit(study, stored, drops=presence is not None)
    budgets, view = study.budgets, check_view(study.view)
    labels = np.full(stored.queries, NOT_ASKED, dtype=np.int64)
    spent = np.zeros(len(study.roster), dtype=np.int64)
    batches: list[tuple[int, int]] = []
    history: list[Int64[ndarray, " parties"]] = []
    count = _counter(study, stored, by_group=presence is None)
    asked = 0
    while isinstance(
        step := next_batch(
            budgets,
            spent,
            left=stored.queries - asked,
            batch_limit=study.batch_limit,
            stop=check_stop(study.stop),
            quorum=study.quorum,
        ),
        Batch,
    ):
        voting = step.active if presence is None else step.active & presence(len(batches))
        if voting.sum() < study.quorum:
            # As a coordinator does: nothing is released, the reservations stand.
            spent = spent + np.where(step.active, budgets.amount(step.size, step.size), 0)
            step = Stop("quorum_lost", np.zeros(len(spent), dtype=bool))
            break
        batch = slice(asked, asked + step.size)
        released = study.mechanism.release(count(voting, batch), noise, view=view)
        labels[batch] = released
        answered = int((released != ABSTAIN).sum())
        spent = spent + np.where(voting, budgets.amount(step.size, answered), 0)
        batches.append((step.size, answered))
        history.append(spent)
        asked += step.size
    assert isinstance(step, Stop)
    labelling = Labelling(labels, batches, step, spent)
    return Replay(labelling, np.array(history, dtype=np.int64).reshape(len(history), len(spent)))


def dropout_presence(parties: int, *, rate: float, seed: int) -> Presence:
    """Each party is absent from each batch with probability `rate`, as a function of (seed, batch) alone."""

    def present(number: int) -> Bool[ndarray, " parties"]:
        return simulation_rng(seed, "dropout", number).random(parties) >= rate

    return present


def _counter(
    study: Study, stored: StoredVotes, *, by_group: bool
) -> Callable[[Bool[ndarray, " parties"], slice], Float64[ndarray, "queries classes"]]:
    """count(voting parties, queries) -> weighted histograms, by groups of like parties where that is possible."""
    budgets, classes = study.budgets, stored.classes
    if by_group:
        # Parties alike in all of these stay or leave together, so a group is active or not as a whole.
        alike = np.stack([study.weights, budgets.cap, budgets.ask, budgets.answer])
        _, first, member = np.unique(alike, axis=1, return_index=True, return_inverse=True)
        if stored.votes is None:
            first, member = first[:1], np.zeros_like(member)
        groups = stored.group_counts(member, len(first))
        if groups is not None:
            group_weights = study.weights[first]

            def by_groups(voting: Bool[ndarray, " parties"], batch: slice) -> Float64[ndarray, "queries classes"]:
                cells = groups[:, batch.start * classes : batch.stop * classes]
                return ((group_weights * voting[first]) @ cells).reshape(-1, classes)

            return by_groups
    votes = stored.votes
    assert votes is not None

    def by_party(voting: Bool[ndarray, " parties"], batch: slice) -> Float64[ndarray, "queries classes"]:
        return count_votes(votes[:, :, batch], study.weights * voting, classes=classes)

    return by_party


def check_fit(study: Study, stored: StoredVotes, *, drops: bool) -> None:
    """Raises InvalidInput unless these votes can be replayed under the study; drops: whether parties may be absent."""
    if stored.classes != study.classes:
        raise InvalidInput(f"votes are for {stored.classes} classes; the study has {study.classes}")
    if stored.queries > study.query_limit:
        raise InvalidInput(f"{stored.queries} queries were voted on; allowed: at most {study.query_limit}")
    if stored.votes is not None:
        wanted = (len(study.roster), study.teachers)
        if stored.votes.shape[:2] != wanted:
            raise InvalidInput(f"votes of shape {stored.votes.shape}; allowed: {wanted} parties and teachers")
        return
    if len(np.unique(study.weights)) > 1:
        raise InvalidInput("vote counts hold no parties, so weights must be uniform; give votes as class ids instead")
    uneven = len(np.unique(study.budgets.cap)) > 1 or len(np.unique(study.budgets.order)) > 1
    if drops or (study.stop == "drop-exhausted" and uneven):
        raise InvalidInput("vote counts hold no parties, so none can drop out; give votes as class ids instead")
