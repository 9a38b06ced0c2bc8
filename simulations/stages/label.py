"""The labelling stages of a run: the study live between parties and coordinator, and its replay for every seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial

import numpy as np
import scipy
from jaxtyping import Float32, Float64, Int64
from numpy import ndarray

from coordinator.in_process import GuardianInProcess, InProcessTransport
from coordinator.labelling.soft_labels import SoftLabels
from coordinator.students.student import one_hot
from party.party import Party, Voter
from protocols.crypto.randomness import simulation_rng
from protocols.errors import EngineFailed
from protocols.labelling.coordinator import Coordinator, Labelling, TrainStudent
from protocols.labelling.guardian import Guardian
from protocols.labelling.questions import Choose
from protocols.labelling.replay import Presence, coin_source, dropout_presence, replay_seed
from protocols.labelling.stored_votes import CastVotes, StoredVotes
from protocols.ledger.ledger import Ledger
from protocols.levels import table
from protocols.levels.level import Aggregation
from protocols.levels.simulated import sealing_key, signing_key, simulated_ballot
from protocols.levels.two_server.conversation import GUARDIAN_NOISE
from protocols.study.right_labels import share_of_noise
from protocols.study.study import Study
from protocols.sums.residuals import FirstScores
from protocols.votes import ABSTAIN, NOT_ASKED
from protocols.wire.messages import Request, VoteRequest

# Above this many parties only the replay is run: one ledger per party takes too long.
LIVE_PARTIES = 1000


@dataclass(frozen=True, eq=False)
class SeedResult:
    """One seed's labelling and the figures of its released labels.

    soft: where records vote, the labels that were made of the released sums for all of the pool. told: where teachers
    voted on several findings, what labels say of each: -1 nothing, 0, 1. first: the scores that a second batch was
    about. noise: share_of_noise of the labels.
    """

    seed: int
    labelling: Labelling
    spent_after: Int64[ndarray, "batches parties"]
    label_accuracy: float | None
    soft: SoftLabels | None = None
    told: Int64[ndarray, "pool findings"] | None = None
    first: FirstScores | None = None
    noise: float = 0.0

    @property
    def answered(self) -> Int64[ndarray, " answered"]:
        """Positions in the pool of the queries that got a label."""
        return np.flatnonzero(self.labelling.labels >= 0)

    def training_set(self, classes: int) -> tuple[Int64[ndarray, " labelled"], Float32[ndarray, "labelled classes"]]:
        """Positions and targets for training a student: of the labels released and of those reinforced for free, or the
        soft labels of the whole pool where records vote."""
        if self.soft is not None:
            return np.arange(len(self.soft.probabilities)), self.soft.probabilities.astype(np.float32)
        if self.labelling.cells is not None or self.told is not None:
            # The labels are of queries, or of rows, which are no records of the pool.
            return np.empty(0, np.int64), np.empty((0, classes), np.float32)
        released, reinforced = self.labelling.labels, self.labelling.reinforced
        labels = np.where(released >= 0, released, reinforced)
        positions = np.flatnonzero(labels >= 0)
        return positions, one_hot(labels[positions], classes)

    def of_findings(self, tasks: int) -> list[SeedResult]:
        """The same with the labels of each finding alone; of one label, itself."""
        if self.soft is not None:
            return [replace(self, soft=each) for each in self.soft.each]
        if self.told is None:
            return [self] * tasks
        found, none = self.told.T, np.full(len(self.told), ABSTAIN, dtype=np.int64)
        # A query has one row, or one a finding, all of them in one batch.
        batch_of = self.labelling.batch_of[:: len(self.labelling.batch_of) // len(self.told)]
        made = [replace(self.labelling, labels=each, reinforced=none, batch_of=batch_of) for each in found]
        return [replace(self, told=None, labelling=each) for each in made]

    @property
    def said(self) -> Float64[ndarray, "pool findings"] | None:
        """How likely the labels say that each record of the pool has each finding, NaN where they do not; None of one
        label."""
        if self.soft is not None:
            return self.soft.probabilities.astype(np.float64)
        return None if self.told is None else np.where(self.told < 0, np.nan, self.told)

    @property
    def asked(self) -> int:
        """How many queries were asked."""
        return int((self.labelling.labels != NOT_ASKED).sum())


def label_seed(
    study: Study,
    stored: StoredVotes,
    *,
    seed: int,
    dropout: float,
    truth: Int64[ndarray, " queries"] | None,
    train: TrainStudent | None = None,
    choose: Choose | None = None,
) -> SeedResult:
    """Replays the study with one seed. train, choose: see Coordinator.label."""
    result = replay_seed(study, stored, seed=seed, dropout=dropout, train=train, choose=choose)
    labels = result.labelling.labels
    answered = labels >= 0
    accuracy = None if truth is None or not answered.any() else float((labels == truth)[answered].mean())
    return SeedResult(
        seed, result.labelling, result.spent_after, accuracy, told=stored.asks.folded(labels),
        noise=share_of_noise(study, labels),
    )  # fmt: skip


def live_study(
    study: Study,
    stored: CastVotes,
    *,
    seed: int,
    dropout: float,
    train: TrainStudent | None = None,
    choose: Choose | None = None,
) -> Labelling:
    """The same study between real Party objects, each with its own ledger, and a Coordinator with its own.

    The parties' teachers are the votes that were cast. The replay is compared with it: see `check_live`.
    """
    votes = stored.votes

    def voter(position: int) -> Voter:
        return lambda batch: votes[position][:, batch.ids].astype(np.int64)

    return live_labelling(study, voter, queries=stored.queries, seed=seed, dropout=dropout, train=train, choose=choose)


def live_labelling(
    study: Study,
    voter: Callable[[int], Voter],
    *,
    queries: int,
    seed: int,
    dropout: float = 0.0,
    train: TrainStudent | None = None,
    choose: Choose | None = None,
    again: bytes = b"",
) -> Labelling:
    """What a study releases between Party objects and a Coordinator, each with a ledger of its own.

    voter: of the seat at a position of the roster; queries: size of the pool; again: what a second batch is about, if
    there is one. Raises EngineFailed if the parties'
    ledgers differ from the coordinator's.
    """
    secret = study.secret_coins
    ledgers = [Ledger(":memory:") for _ in study.roster]
    with Ledger(":memory:") as ledger, Ledger(":memory:") as guardians:
        parties = {
            seat.party: Party(
                seat.party,
                study=study,
                ledger=ledgers[i],
                voter=voter(i),
                coins_from=coin_source(seed, i) if secret else None,
                ballot=simulated_ballot(study, i, ledger=ledgers[i], seed=seed),
            )
            for i, seat in enumerate(study.roster)
        }
        exchange = InProcessTransport(
            {name: party.handle for name, party in parties.items()},
            absent=_absent(study, dropout_presence(len(parties), rate=dropout, seed=seed)) if dropout else None,
        )
        coordinator = Coordinator(
            study,
            ledger=ledger,
            aggregation=simulated_aggregation(study, guardians=guardians, seed=seed),
            exchange=exchange,
            run=simulation_rng(seed, "run").bytes(16),
        )
        pool = np.zeros((queries, 1), dtype=np.float32)
        labelling = coordinator.label(pool, train=train, choose=choose)
        if again:
            labelling = replace(labelling, again=coordinator.ask_again(again))
    own = np.array([ledgers[i].balance(seat.party).spent for i, seat in enumerate(study.roster)])
    for party_ledger in ledgers:
        party_ledger.close()
    # A batch without quorum leaves the coordinator's reservations of absent parties standing.
    differ = own > labelling.spent if labelling.stop.reason == "quorum_lost" else own != labelling.spent
    if differ.any():
        raise EngineFailed(f"{differ.sum()} parties' ledgers differ from the coordinator's")
    return labelling


def simulated_aggregation(study: Study, *, guardians: Ledger, seed: int) -> Aggregation:
    """The coordinator's side, with a guardian in this process if the level has one. guardians: the guardian's
    ledger.
    """

    @cache
    def guardian() -> GuardianInProcess:
        return GuardianInProcess(
            Guardian(
                study,
                ledger=guardians,
                sealing_key=sealing_key(),
                signing_key=signing_key(),
                source=simulation_rng(seed, "guardian").bytes,
                noise_source=simulation_rng(seed, GUARDIAN_NOISE).bytes,
            )
        )

    return table.aggregation_of(
        study,
        source=simulation_rng(seed, "coordinator").bytes,
        dial=lambda: guardian().dial(),
        streams=partial(simulation_rng, seed),
    )


def check_live(live: Labelling, replayed: Labelling) -> None:
    """Raises EngineFailed unless the live study and its replay released the same and charged the same."""
    same = np.array_equal(live.batch_of, replayed.batch_of) and np.array_equal(live.labels, replayed.labels)
    same = same and np.array_equal(live.reinforced, replayed.reinforced)
    same = same and (live.cells is None) == (replayed.cells is None)
    if live.cells is not None and replayed.cells is not None:
        same = same and np.array_equal(live.cells, replayed.cells)
    second = [None if each.again is None else each.again.cells for each in (live, replayed)]
    if second[0] is not None and second[1] is not None:
        same = same and np.array_equal(second[0], second[1])
    if not same or not np.array_equal(live.spent, replayed.spent):
        raise EngineFailed("the live study and its replay differ; this is a fault in Conclave, please report it")


def _absent(study: Study, presence: Presence) -> Callable[[Mapping[str, Request]], frozenset[str]]:
    def absent(requests: Mapping[str, Request]) -> frozenset[str]:
        first = next(iter(requests.values()))
        # An outcome reaches everyone who voted; only votes are missed.
        if not isinstance(first, VoteRequest):
            return frozenset()
        present = presence(first.batch.number)
        return frozenset(name for name in requests if not present[study.seats[name]])

    return absent


def mean_and_interval(values: Float64[ndarray, " seeds"], *, level: float = 0.95) -> tuple[float, float | None]:
    """The mean and the half-width of its confidence interval (Student's t); no half-width for one value."""
    if len(values) < 2:
        return float(values.mean()), None
    half = float(scipy.stats.t.ppf((1 + level) / 2, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values)))
    return float(values.mean()), half
