"""What a coordinator stores of a batch that was released: its labels, and behind them the cells where records vote.

The outcome that a party of a batch is told, with what a guardian signed about its votes.

The coordinator: asks in batches that every budget can pay for, counts votes with noise, and publishes labels.

It charges its own ledger (one account per party) before it asks, releases labels once noise was added and they were
stored, and tells the parties which queries were answered so that they settle.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64
from numpy import ndarray

from protocols.errors import ChannelClosed, InvalidInput, Refused
from protocols.labelling.questions import Choose, check_choose, next_questions
from protocols.labelling.schedule import Batch, Stop, StopReason, next_of
from protocols.ledger.ledger import Ledger, StoredBatch
from protocols.levels.level import Aggregation, Counted, ReservedBatch
from protocols.levels.table import statement_of
from protocols.levels.two_server.statement import Statement
from protocols.mechanisms.interactive_gnmax import check_predictions
from protocols.refusals.code import Code
from protocols.study.queries import QueryBatch, no_inputs
from protocols.study.study import Study
from protocols.votes import ABSTAIN, NOT_ASKED
from protocols.wire.messages import Outcome, Settled, Transport, VoteRequest


def stored_payload(counted: Counted) -> bytes:
    """The bytes to store of a batch that was counted."""
    return b"".join(each.astype("<i8").tobytes() for each in (counted.labels, counted.cells) if each is not None)


@dataclass(frozen=True, eq=False)
class SecondSum:
    """What came of a second batch: what judges said of a model, or residuals of the first sum's scores.

    cells: the noisy sums, rows x classes, in lattice units: of judges where votes are clear those of each seat of the
    roster one below the other, else the total; None without a quorum: nothing was released, and asking again continues.
    counted: of the roster, whose sum is in it. refusals: why other seats' are not.
    """

    cells: Int64[ndarray, "rows classes"] | None = field(repr=False)
    counted: Bool[ndarray, " seats"]
    refusals: dict[str, str] = field(default_factory=dict)


def stored_again(study: Study, ledger: Ledger) -> SecondSum | None:
    """What came of a second batch, if it was released."""
    stored = ledger.stored(AGAIN)
    if stored is None or not stored.settled or not study.votes.rows_again:
        return None
    counted, cells = np.split(np.frombuffer(stored.payload, dtype="<i8")[stored.queries :], [len(study.roster)])
    return SecondSum(cells.reshape(-1, study.classes).astype(np.int64), counted > 0)


def stored_labels(stored: StoredBatch) -> Int64[ndarray, " queries"]:
    """The labels of a batch that was released."""
    return np.frombuffer(stored.payload, dtype="<i8")[: stored.queries]


def stored_cells(study: Study, stored: StoredBatch) -> Int64[ndarray, "rows classes"] | None:
    """The noisy sums in lattice units; None where teachers vote, or nothing was released."""
    cells = np.frombuffer(stored.payload, dtype="<i8")[stored.queries :]
    return cells.reshape(-1, study.classes).astype(np.int64) if len(cells) else None


# The number of the second batch: after that of votes.
AGAIN = 1
# The note that keeps a guardian's statement of a batch.
GUARDIAN = "guardian"


def outcomes_of(study: Study, ledger: Ledger, stored: StoredBatch, parties: Iterable[str]) -> dict[str, Outcome]:
    """The outcome that each of these parties of a batch is told, released or given up; empty if there is nothing to
    tell.

    Where there is a guardian, with its signed word on what became of the party's votes.
    """
    if not stored.settled:
        outcome = unanswered(study, ledger, stored)
        return {} if outcome is None else dict.fromkeys(parties, outcome)
    answered, statement = stored_labels(stored) != ABSTAIN, kept_statement(study, ledger, stored)
    if statement is None:
        return dict.fromkeys(parties, Outcome(study.digest, stored.digest, answered))
    words = {party: statement.told(study.seats[party]) for party in parties}
    return {party: Outcome(study.digest, stored.digest, answered, told) for party, told in words.items()}


def kept_statement(study: Study, ledger: Ledger, stored: StoredBatch) -> Statement | None:
    """The guardian's statement of a batch; None if there is none. Raises MalformedMessage."""
    return statement_of(study, ledger.noted(stored.digest, GUARDIAN) or b"")


def unanswered(study: Study, ledger: Ledger, stored: StoredBatch) -> Outcome | None:
    """The outcome that nothing was answered; None if it would lower a reservation or needs a guardian.

    What was sent may have been opened, so no reservation may be lowered.
    """
    charged = ledger.charged(stored.number)
    takes_part = study.participation.votes(np.array(ledger.queries(stored.number), dtype=np.int64))
    queries_asked = takes_part.sum(axis=1)
    due = study.budgets.amount(queries_asked, np.zeros_like(queries_asked))
    lowers = any(due[study.seats[party]] < amount for party, amount in charged.items())
    if lowers or study.confidentiality.second_server:
        return None
    return Outcome(study.digest, stored.digest, np.zeros(stored.queries, dtype=bool))


# Round one's labels of the pool (class ids, ABSTAIN, NOT_ASKED) -> a student's probabilities on the whole pool.
TrainStudent = Callable[[Int64[ndarray, " queries"]], Float64[ndarray, "queries classes"]]

# The note that the parties of a batch were told its outcome; absent ones are told when they connect.
_TOLD = "told"

# A placeholder in a Labelling under construction.
_UNFINISHED = Stop("pool_exhausted", np.zeros(0, dtype=bool))


@dataclass(frozen=True, eq=False)
class Labelling:
    """What a study released, and how it ended.

    labels: class ids, ABSTAIN (asked, not answered) or NOT_ASKED, one per query of the pool; batches: size and answered
    queries of each; reinforced: in the second round of an interactive mechanism, the student's own label where the
    parties gave none and the student was confident, ABSTAIN elsewhere; batch_of: the number of the batch in which each
    query was asked, -1 for none; spent: nano-units, including reservations that stand; refusals: party to the reason
    why its votes were left out of the last batch; ledger_differences: parties whose own ledger is, or may be, higher
    than the coordinator's, and by how much, because of reservations that stand; cells: the noisy histograms in lattice
    units, where records vote; again: what came of a second batch, if that is of residuals and was released.
    """

    labels: Int64[ndarray, " queries"] = field(repr=False)
    batches: list[tuple[int, int]]
    stop: Stop
    spent: Int64[ndarray, " parties"]
    reinforced: Int64[ndarray, " queries"] = field(repr=False)
    batch_of: Int64[ndarray, " queries"] = field(repr=False)
    refusals: dict[str, str] = field(default_factory=dict)
    ledger_differences: dict[str, int] = field(default_factory=dict)
    cells: Int64[ndarray, "rows classes"] | None = field(default=None, repr=False)
    again: SecondSum | None = field(default=None, repr=False)


class Coordinator:
    """Runs one study over a transport. aggregation: of the study's level; it holds the noise.

    run: 16 fresh random bytes, which name this coordinator's run if the ledger is new. A ledger that was used continues
    where it stopped: settled batches are released again as stored, and a batch that was reserved and never released is
    asked again, which costs nobody anything more.
    """

    def __init__(
        self, study: Study, *, ledger: Ledger, aggregation: Aggregation, exchange: Transport, run: bytes
    ) -> None:
        """Opens one account per seat. Raises InvalidInput for a ledger of another study, or a study for simulation
        only.
        """
        if study.votes.pooled:
            raise InvalidInput("the study upsamples pooled data; allowed in a simulation only, where nobody is a party")
        self._study = study
        self._ledger = ledger
        self._aggregation = aggregation
        self._exchange = exchange
        # Why the last unreleased batch was not released.
        self._unreleased = _UNFINISHED
        self._parties = [seat.party for seat in study.roster]
        self.run = ledger.bind(study=study.digest, run=run)
        ledger.open_accounts(dict(zip(self._parties, study.budgets.tagged(study.budgets.cap), strict=True)))

    def label(
        self,
        inputs: Float32[ndarray, "queries ..."],
        *,
        train: TrainStudent | None = None,
        choose: Choose | None = None,
        on_batch: Callable[[Sequence[tuple[int, int]]], None] | None = None,
        without: Callable[[], Collection[str]] = tuple,
    ) -> Labelling:
        """Asks the pool's queries, in order or as `choose` says, until budgets or pool run out. on_batch(size and
        answered queries of each batch so far); without: the parties of which no new batch is asked.

        choose: for a study whose queries are chosen; called before each new batch, and not for one that was reserved
        before, whose queries are in the ledger. train: for an interactive mechanism, trains a student on the labels
        of round one and predicts the pool; called once, before the first batch of round two, and again after a restart.
        Stops with "quorum_lost" when too few parties answer a batch, and with "guardian_lost" when the guardian is
        gone: nothing of that batch is released, its reservations stand, and another call continues with it or, after
        give_up, with the next one. Raises InvalidInput for a pool above the query limit.
        """
        study = self._study
        if len(inputs) > study.query_limit:
            raise InvalidInput(f"the pool has {len(inputs)} queries; allowed: at most {study.query_limit}")
        if (train is None) == study.mechanism.interactive:
            raise InvalidInput(
                f"{study.mechanism.name} {'needs' if train is None else 'does not use'} a student trained "
                "between two rounds"
            )
        check_choose(study, choose)
        round_one = study.mechanism.round_one
        released = self._nothing(len(inputs))
        predictions: Float64[ndarray, "queries classes"] | None = None
        asked = 0
        while True:
            number = len(released.batches)
            if train is not None and predictions is None and round_one is not None and asked >= round_one:
                predictions = train(released.labels.copy())
                check_predictions(predictions, shape=(len(inputs), study.classes))
            ids = np.array(self._ledger.queries(number), dtype=np.int64)
            stored = None if asked and asked == len(inputs) else self._ledger.stored(number)
            labels = None if stored is None else self._ended(stored)
            if stored is not None and labels is not None:
                if self._ledger.noted(stored.digest, _TOLD) is None:
                    self._forget(stored, QueryBatch(number, ids, inputs[ids]))
                    self._tell(stored, released)
            else:
                if stored is not None:
                    active = self._members(number)
                elif isinstance(step := self._next(asked, len(inputs), without()), Batch):
                    active = step.active
                    ids = next_questions(choose, released.labels, released.batch_of >= 0, step.size)
                else:
                    return self._with_cells(replace(released, stop=step, spent=self._spent()))
                batch = QueryBatch(number, ids, inputs[ids])
                seen = None if predictions is None else predictions[ids]
                labels = self._batch(batch, active, seen, released, reserved=stored is not None)
            if labels is None:
                return self._with_cells(replace(released, stop=self._unreleased, spent=self._spent()))
            self._add(released, ids, labels)
            if predictions is not None:
                released.reinforced[ids] = study.mechanism.reinforced(labels, predictions[ids])
            asked += len(ids)
            if on_batch:
                on_batch(released.batches)

    def so_far(self, queries: int, *, reason: StopReason) -> Labelling:
        """What was released of a pool of that many queries, without asking anybody and without the labels that a
        student reinforced."""
        released = self._nothing(queries)
        while (stored := self._ledger.stored(len(released.batches))) is not None and (released.batch_of < 0).any():
            labels = self._ended(stored)
            if labels is None:
                break
            self._add(released, np.array(self._ledger.queries(stored.number), dtype=np.int64), labels)
        return self._with_cells(replace(released, stop=Stop(reason, np.zeros(len(self._parties), dtype=bool))))

    def ask_again(self, model: bytes) -> SecondSum:
        """Asks the seats that voted once more: their judges about a model, an ONNX file, or all units about the scores
        of the first sum (residuals.FirstScores); once, and about no other. It was paid for with the votes
        (docs/explanation/mathematics.md, sections 2.4 and 2.5).

        Raises Refused before votes were released, and for another model than was asked about before; ChannelClosed if
        the guardian is gone: another call continues.
        """
        study, votes = self._study, self._ledger.stored(0)
        ids = np.arange(study.query_limit - study.votes.rows_again, study.query_limit)
        if votes is None or not votes.settled or not len(ids):
            raise Refused(Code.UNKNOWN_BATCH, "a second batch is asked; allowed in a study with one, after its votes")
        batch = QueryBatch(AGAIN, ids, no_inputs(len(ids)), model)
        released, stored = self._nothing(0), self._ledger.stored(AGAIN)
        if stored is not None and stored.digest != VoteRequest(study.digest, self.run, batch).digest:
            raise Refused(Code.BATCH_REUSED, "the second batch was about another model; allowed: that one alone")
        if self._ledger.given_up(AGAIN):
            raise Refused(Code.GIVEN_UP, "the second batch was given up; allowed: no further one")
        if stored is not None and stored.settled:
            if self._ledger.noted(stored.digest, _TOLD) is None:
                self._forget(stored, batch)
                self._tell(stored, released)
        else:
            paid = self._ledger.settled(0)
            voted = np.array([bool(paid.get(party)) for party in self._parties])
            asked = voted if stored is None else self._members(AGAIN)
            self._batch(batch, asked, None, released, reserved=stored is not None)
        found = stored_again(study, self._ledger)
        nobody = SecondSum(None, np.zeros(len(self._parties), dtype=bool), released.refusals)
        return nobody if found is None else replace(found, refusals=released.refusals)

    @property
    def open_batch(self) -> int | None:
        """The number of the batch that is neither released nor given up, or None."""
        return next((number for number in self._ledger.unsettled() if not self._ledger.given_up(number)), None)

    def give_up(self, number: int, inputs: Float32[ndarray, "queries ..."], *, model: bytes = b"") -> None:
        """Ends a reserved batch for ever, without labels. inputs: the pool; model: that the second batch was about.
        Calling it again changes nothing.

        Its charges stand, here and at the parties: what they sent may have been opened, and nobody can prove that it
        was not. Its queries are never asked again: noise is never drawn twice for one query. If telling the
        parties lowers no reservation, they are told when `label` continues, or when they connect: they then forget
        their secrets, and nobody can open the batch any more. Raises Refused for a batch that was never charged, or was
        released.
        """
        stored = self._ledger.stored(number)
        if stored is None:
            raise Refused(Code.UNKNOWN_BATCH, f"batch {number} was never charged")
        self._ledger.give_up(number, stored.digest)
        ids = np.array(self._ledger.queries(number), dtype=np.int64)
        asked = no_inputs(len(ids)) if self._study.votes.again(ids) else inputs[ids]
        self._forget(stored, QueryBatch(number, ids, asked, model))

    def outcome_for(self, party: str, request: bytes) -> Outcome | None:
        """The outcome of a request that a party still waits for, if released with the party's vote; None otherwise.

        For a batch that was given up: that nothing was answered, if that lowers no reservation.
        """
        stored = self._ledger.stored_under(request)
        if stored is None:
            return None
        number = stored.number
        if self._ledger.given_up(number):
            waits = party in self._ledger.charged(number)
        else:
            paid = bool(self._ledger.settled(number).get(party)) or party in self._counted_again(stored)
            # With a guardian's statement, a party learns why its votes did not count.
            guarded = kept_statement(self._study, self._ledger, stored) is not None
            waits = paid or (guarded and party in self._ledger.charged(number))
        return outcomes_of(self._study, self._ledger, stored, [party]).get(party) if waits else None

    def _counted_again(self, stored: StoredBatch) -> list[str]:
        """Who is counted in a second batch: it was paid for before, so that no amount says it."""
        found = stored_again(self._study, self._ledger) if stored.number == AGAIN else None
        if found is None:
            return []
        return [party for party, of in zip(self._parties, found.counted.tolist(), strict=True) if of]

    def _ended(self, stored: StoredBatch) -> Int64[ndarray, " queries"] | None:
        """The labels of a batch that was released, or given up; None for one that is open."""
        if stored.settled:
            return stored_labels(stored)
        return np.full(stored.queries, NOT_ASKED, dtype=np.int64) if self._ledger.given_up(stored.number) else None

    def _tell(self, stored: StoredBatch, released: Labelling, *, parties: Collection[str] | None = None) -> None:
        """Tells the parties of a batch its outcome, and notes that; if it was stopped in between they are told again,
        which has no effect.

        parties: those that voted; None: those that the ledger names.
        """
        if not stored.settled and unanswered(self._study, self._ledger, stored) is None:
            return
        charged = self._ledger.charged(stored.number)
        settled = self._ledger.settled(stored.number) if stored.settled else charged
        statement = kept_statement(self._study, self._ledger, stored)
        if statement is not None:  # also those whose votes came and were not counted
            parties = [self._parties[at] for at in statement.submitted]
        elif parties is None:
            parties = [party for party, amount in settled.items() if amount or party in self._counted_again(stored)]
        outcomes = outcomes_of(self._study, self._ledger, stored, parties)
        replies, balances = self._exchange(outcomes), self._ledger.balances()
        for party, reply in replies.items():
            if isinstance(reply, Settled):
                difference = reply.spent - balances[party].spent
            else:
                difference = charged[party] - settled[party]
            if difference:
                released.ledger_differences[party] = difference
        self._ledger.note(stored.digest, _TOLD, b"")

    def _forget(self, stored: StoredBatch, batch: QueryBatch) -> None:
        request = VoteRequest(self._study.digest, self.run, batch)
        seats = tuple(self._ledger.charged(stored.number))
        takes_part = self._study.participation.votes(batch.ids)
        self._aggregation.released(
            ReservedBatch(self._study, self._ledger, request, seats, takes_part, None, self._exchange)
        )

    def _members(self, number: int) -> Bool[ndarray, " parties"]:
        charged = self._ledger.charged(number)
        return np.array([party in charged for party in self._parties])

    def _nothing(self, queries: int) -> Labelling:
        """A labelling in which nothing was asked yet."""
        labels, reinforced, batch_of = (np.full(queries, what, dtype=np.int64) for what in (NOT_ASKED, ABSTAIN, -1))
        return Labelling(labels, [], _UNFINISHED, self._spent(), reinforced, batch_of)

    @staticmethod
    def _add(released: Labelling, ids: Int64[ndarray, " queries"], labels: Int64[ndarray, " queries"]) -> None:
        """Adds a batch that ended to what was released."""
        released.labels[ids] = labels
        released.batch_of[ids] = len(released.batches)
        released.batches.append((len(ids), int((labels >= 0).sum())))

    def _next(self, asked: int, queries: int, without: Collection[str]) -> Batch | Stop:
        gone = np.array([party in without for party in self._parties])
        return next_of(self._study, self._spent(), asked=asked, queries=queries, without=gone)

    def _batch(
        self,
        batch: QueryBatch,
        members: Bool[ndarray, " parties"],
        predictions: Float64[ndarray, "queries classes"] | None,
        released: Labelling,
        *,
        reserved: bool,
    ) -> Int64[ndarray, " queries"] | None:
        """The labels of one batch: reserve, ask, add up with noise, settle, tell the parties. None without quorum."""
        study = self._study
        takes_part = study.participation.votes(batch.ids)
        queries_asked = takes_part.sum(axis=1)
        request = VoteRequest(study.digest, self.run, batch)
        active = [party for party, member in zip(self._parties, members, strict=True) if member]
        most = study.budgets.tagged(study.budgets.amount(queries_asked, queries_asked))
        worst = dict(zip(self._parties, most, strict=True))
        if not reserved:
            self._aggregation.check_next(study, self._ledger)
            amounts = {party: worst[party] for party in active}
            ids, limit = batch.ids.tolist(), study.query_limit
            self._ledger.reserve(batch.number, request.digest, amounts, b"", queries=ids, limit=limit)
        asking = ReservedBatch(study, self._ledger, request, tuple(active), takes_part, predictions, self._exchange)
        try:
            counted = self._aggregation.count(asking)
        except ChannelClosed:
            self._unreleased = Stop("guardian_lost", np.zeros(len(members), dtype=bool))
            return None
        labels, votes = counted.labels, counted.voted
        for party, reason in counted.left_out.items():
            released.refusals[party] = reason
            # The party may have charged itself nevertheless.
            released.ledger_differences[party] = worst[party]
        if labels is None:
            self._unreleased = Stop("quorum_lost", np.zeros(len(members), dtype=bool))
            return None
        answered = labels != ABSTAIN
        due = study.budgets.amount(queries_asked, (takes_part & answered).sum(axis=1))
        # A party whose vote was not counted pays nothing: its data had no influence on what was released.
        final = study.budgets.tagged(np.where([party in votes for party in self._parties], due, 0))
        amounts = {party: final[study.seats[party]] for party in active}
        if counted.guardian:
            self._ledger.note(request.digest, GUARDIAN, counted.guardian)
        payload = stored_payload(counted)
        if study.votes.again(batch.ids) and counted.cells is not None:
            # Nothing was charged that would say whose sum is in it.
            seats = np.array([party in votes for party in self._parties], dtype="<i8")
            payload = np.concatenate([np.zeros(len(labels), "<i8"), seats, counted.cells.ravel()]).tobytes()
        self._ledger.settle(batch.number, request.digest, amounts, payload=payload)
        self._aggregation.released(asking)
        settled = StoredBatch(batch.number, request.digest, payload, True, len(labels))
        self._tell(settled, released, parties=votes)
        return labels

    def _with_cells(self, released: Labelling) -> Labelling:
        """With the cells of the one batch that a study of record votes has, if it was released; and with residuals."""
        stored = self._ledger.stored(0)
        if stored is None:
            return released
        again = stored_again(self._study, self._ledger) if self._study.votes.residuals else None
        return replace(released, cells=stored_cells(self._study, stored), again=again)

    def _spent(self) -> Int64[ndarray, " parties"]:
        balances = self._ledger.balances()
        return np.array([balances[party].spent for party in self._parties], dtype=np.int64)
