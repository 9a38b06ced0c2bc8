"""The outcome that a party of a batch is told, with what a guardian signed about its votes."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from protocols.labelling.payload import stored_labels
from protocols.ledger.ledger import Ledger, StoredBatch
from protocols.levels.table import statement_of
from protocols.levels.two_server.statement import Statement
from protocols.study.levels import GuardedLevel
from protocols.study.study import Study
from protocols.votes import ABSTAIN
from protocols.wire.messages import Outcome

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
    if lowers or isinstance(study.confidentiality, GuardedLevel):
        return None
    return Outcome(study.digest, stored.digest, np.zeros(stored.queries, dtype=bool))
