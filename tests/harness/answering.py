"""Asking a home for votes, and putting an older file in the place of a newer one."""

import contextlib
import sqlite3

import numpy as np

from party.budget.spending import withdraw
from party.voting.answering import Answering
from protocols.study.queries import QueryBatch
from protocols.wire.messages import VoteReply, VoteRequest

SEAT = "hospital-0"


def request(study, number, start=0):
    inputs = np.zeros((5, 4), np.float32)
    return VoteRequest(study.digest, b"run", QueryBatch(number, np.arange(start, start + 5), inputs))


def opened(place, events=None):
    home, settings, _, policy = place
    kept = [] if events is None else events
    return Answering(home, settings, policy, party=SEAT, on_event=lambda event, fields: kept.append(event))


def copied(source, target):
    """A backup, or its restoration: a file as it was, without the journals of the one that it replaces."""
    for end in ("-wal", "-shm"):
        target.with_name(target.name + end).unlink(missing_ok=True)
    target.unlink(missing_ok=True)
    with contextlib.closing(sqlite3.connect(source)) as old, contextlib.closing(sqlite3.connect(target)) as new:
        old.backup(new)


def answered(place, numbers):
    """Votes for these batches of five; what the seat's ledger says it spent."""
    with opened(place) as answering:
        (seat,) = [each for each in answering.seats() if each.study == place[2]]
        for number in numbers:
            sent = request(place[2], number, start=5 * number)
            reply = seat.answer(lambda sent=sent: seat.party.handle(sent))
            assert isinstance(reply, VoteReply), reply
        return seat.ledger.balance(SEAT).spent


def ended(home, policy, study):
    """What each seat of a study that is withdrawn has spent, and whether its ledger shows it."""
    final = withdraw(home, policy, study, data_set="ward", party=SEAT)
    return {seat: (each.spent, each.proven) for seat, each in final.items()}


def reserved(policy):
    return policy.lifetime_uses()[0].reserved
