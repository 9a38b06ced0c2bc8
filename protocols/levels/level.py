"""A level of confidentiality: how a party sends its votes, and how they become labels.

A level has two sides. A `Ballot` puts one party's votes into the form that leaves it; an `Aggregation` asks the parties
of a batch and gives labels. Both keep what must survive a crash as notes in the ledger; the first note stands, so that
a repeated step gives the same result. The contract suite runs every level over every transport.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Float64, Int64
from numpy import ndarray

from protocols.crypto.randomness import RandomSource
from protocols.errors import Refused
from protocols.ledger.ledger import Ledger
from protocols.noise import Noise
from protocols.refusals.code import Code
from protocols.study.study import Study
from protocols.wire.messages import (
    ConcealedVotes,
    Outcome,
    Refusal,
    Reply,
    StepReply,
    StepRequest,
    Transport,
    VoteReply,
    VoteRequest,
)

# What one seat's voters say about the current batch. The argument is the source of its secret coins; None for the
# party's own source.
Casting = Callable[[RandomSource | None], Int64[ndarray, "rows columns"]]


# The noise of the next batch, given who voted: of a simulation, which draws again what was drawn.
BatchNoise = Callable[[Bool[ndarray, " parties"]], Noise]
# A stream of random numbers by its name, the same each time it is asked for.
Streams = Callable[..., np.random.Generator]


class Ballot(ABC):
    """One seat's side of a level."""

    @abstractmethod
    def cast(self, request: VoteRequest, votes: Casting) -> VoteReply | ConcealedVotes:
        """The reply to a batch, made once: it is stored with its charge. Raises Refused: then nothing is charged.

        votes: asks the teachers; not called by a level that hides the queries.
        """

    def step(self, request: StepRequest) -> StepReply:
        """One step around a batch; costs no budget. Raises Refused."""
        raise Refused(Code.NO_SUCH_STEP, f"step {request.step!r}; allowed: none at this level")

    def refused(self, request: VoteRequest | StepRequest, refusal: Refusal) -> Refusal:
        """A refusal as it leaves: at a level whose requests others pass on, signed for this request."""
        return refusal

    @abstractmethod
    def settle(self, outcome: Outcome, sent: VoteReply | ConcealedVotes) -> str:
        """Called before an outcome settles a reservation; forgets what is no longer needed. sent: the stored reply.

        Returns what the level proves about the fate of the votes, "counted" or a code; "" if it proves nothing. Raises
        Refused unless the level allows it to settle.
        """


@dataclass(frozen=True, eq=False)
class ReservedBatch:
    """A reserved batch: whom it asks, about what, over which transport.

    seats: the names that are asked; takes_part: for all seats of the roster; predictions: the student's, in round two
    of an interactive mechanism, None otherwise.
    """

    study: Study
    ledger: Ledger
    request: VoteRequest
    seats: tuple[str, ...]
    takes_part: Bool[ndarray, "parties queries"]
    predictions: Float64[ndarray, "queries classes"] | None = field(repr=False)
    exchange: Transport


@dataclass(frozen=True, eq=False)
class Counted:
    """The result of a batch.

    labels: class ids or ABSTAIN; None without a quorum: then nothing was released, and asking again continues; voted:
    the seats whose votes were counted; left_out: for each other seat, the code why not; guardian: its signed statement;
    cells: the noisy histograms in lattice units, where records vote; of judges at `clear`, of each seat of the roster
    one below the other.
    """

    labels: Int64[ndarray, " queries"] | None = field(repr=False)
    voted: tuple[str, ...]
    left_out: dict[str, str] = field(default_factory=dict)
    guardian: bytes = field(default=b"", repr=False)
    cells: Int64[ndarray, "rows classes"] | None = field(default=None, repr=False)


class Aggregation(ABC):
    """The coordinator's side of a level."""

    @abstractmethod
    def count(self, reserved: ReservedBatch) -> Counted:
        """Asks and counts. Raises ChannelClosed, or Refused by a guardian: then nothing was released."""

    @abstractmethod
    def check_next(self, study: Study, ledger: Ledger) -> None:
        """Raises Refused if the level asks no new batch of the study any more; called before one is charged."""

    @abstractmethod
    def released(self, reserved: ReservedBatch) -> None:
        """Called once the batch's labels are stored and settled: forgets what was kept for continuing."""


def votes_of(reply: Reply | None, request: VoteRequest) -> VoteReply | ConcealedVotes:
    """The votes that a reply to a batch carries. Raises LeftOut with a code if there is nothing to count."""
    if reply is None:
        raise LeftOut(Code.ABSENT)
    if isinstance(reply, Refusal):
        raise LeftOut(code_of(reply))
    if not isinstance(reply, VoteReply | ConcealedVotes) or reply.batch_digest != request.digest:
        raise LeftOut(Code.BAD_REPLY)
    return reply


def code_of(refusal: Refusal) -> str:
    """The code of a refusal, if it is one; it appears in tables and logs."""
    return refusal.code if re.fullmatch("[a-z_]{1,40}", refusal.code) else Code.REFUSED


class LeftOut(Exception):
    """A seat's votes are not counted; `code` says why."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code
