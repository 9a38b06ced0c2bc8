"""The queries that a run asked, with their votes: the input of data-dependent figures.

Reconstructed from a labelling and its ledgers, so a replay need not store histograms.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float64, Int64
from numpy import ndarray

from protocols.errors import InvalidInput
from protocols.labelling.stored_votes import CastVotes, StoredVotes, VoteCounts
from protocols.research.data_dependent import QueryVotes, Units
from protocols.study.study import Study
from protocols.votes import ABSTAIN, NOT_ASKED, count_votes
from simulations.setup.accountants import cast_weights
from simulations.stages.label import SeedResult

# Cells of [parties, teachers, queries] held at a time.
_CELLS = 20_000_000


class AskedVotes:
    """What was asked and released: the weighted histograms, and who took part in which query.

    positions: of the asked queries in the pool; entering[party, query]; counts: weighted; offsets: what was subtracted
    from the counts before the threshold test (Interactive-GNMax; else zeros); thresholds: of each query. predictions:
    of the student between the rounds. Raises InvalidInput for secret participation, whose coins are not stored, and for
    a labelling of another study.
    """

    def __init__(
        self,
        study: Study,
        stored: StoredVotes,
        result: SeedResult,
        predictions: Float64[ndarray, "queries classes"] | None = None,
    ) -> None:
        if study.secret_coins:
            raise InvalidInput("participation is 'secret', so who voted is not known; allowed: 'all', 'periodic'")
        self.study, self._stored = study, stored
        labels = result.labelling.labels
        self.positions: Int64[ndarray, " queries"] = np.flatnonzero(labels != NOT_ASKED)
        self.answered: Bool[ndarray, " queries"] = labels[self.positions] != ABSTAIN
        asked = sum(size for size, _ in result.labelling.batches)
        if asked != len(self.positions):
            raise InvalidInput(f"batches hold {asked} queries and {len(self.positions)} were asked; allowed: as many")
        # Every party that voted in a batch was charged for it.
        paid = np.diff(result.spent_after, axis=0, prepend=0) > 0
        self.entering: Bool[ndarray, "parties queries"] = paid[result.labelling.batch_of[self.positions]].T
        if not study.participation.everyone:
            self.entering = self.entering & study.participation.votes(self.positions)
        self.counts = self._count()
        self.offsets = np.zeros((len(self.positions), 1))
        mechanism = study.mechanism
        self.thresholds = np.full(len(self.positions), mechanism.needed(second_round=False) or 0.0)
        if mechanism.round_one is not None and predictions is not None:
            second = self.positions >= mechanism.round_one
            self.offsets = np.where(second[:, None], study.nominal_weight * predictions[self.positions], 0.0)
            self.thresholds[second] = mechanism.needed(second_round=True) or 0.0

    @property
    def evidence(self) -> QueryVotes:
        """The same as input for a data-dependent accountant, with one threshold: differences from it go into the
        offsets.
        """
        student = None
        if self.study.mechanism.interactive:
            above = (self.thresholds - (self.study.mechanism.needed(second_round=False) or 0.0))[:, None]
            student = np.broadcast_to(self.offsets + above, self.counts.shape).copy()
        return QueryVotes(
            mechanism=self.study.mechanism,
            counts=self.counts,
            abstentions=self._abstentions(),
            answered=self.answered,
            student_votes=student,
        )

    @property
    def units(self) -> Units:
        """The study's protected units, one per seat, with their own votes if each has one per query."""
        study, own = self.study, None
        if isinstance(self._stored, CastVotes) and study.votes.voters == 1 and not study.votes.pooled:
            own = np.where(self.entering, self._stored.votes[:, 0, self.positions], ABSTAIN).astype(np.int64)
        return Units(
            sensitivity=study.votes_per_unit * study.weights,
            cast=cast_weights(study),
            delta=np.array([seat.delta for seat in study.roster]),
            present=self.entering,
            own_votes=own,
        )

    def _abstentions(self) -> bool:
        """Whether some vote that entered is an abstention, so that the histogram lacks its weight."""
        study = self.study
        if isinstance(self._stored, VoteCounts) or study.votes.pooled:
            entered = np.full(len(self.counts), study.largest_weight)
        else:
            entered = study.votes.voters * (study.weights @ self.entering)
        # Weights lie on the lattice of votes, so sums are exact.
        return bool((self.counts.sum(axis=1) < entered).any())

    def _count(self) -> Float64[ndarray, "queries classes"]:
        study = self.study
        if isinstance(self._stored, VoteCounts):
            return self._stored.counts[self.positions] * study.weights[0]
        votes = self._stored.votes
        weights = np.ones(len(votes)) if study.votes.pooled else study.weights
        counts = np.zeros((len(self.positions), study.classes))
        step = max(1, _CELLS // max(1, votes.shape[0] * votes.shape[1]))
        for start in range(0, len(self.positions), step):
            part = slice(start, start + step)
            cast = votes[:, :, self.positions[part]]
            if not study.votes.pooled:
                cast = np.where(self.entering[:, None, part], cast, ABSTAIN)
            counts[part] = count_votes(cast, weights, classes=study.classes)
        return counts
