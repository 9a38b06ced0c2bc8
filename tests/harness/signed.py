"""Votes signed anew, and a guardian's word about votes: for tests in which somebody departs from the protocol."""

import numpy as np

from protocols.levels.two_server.signed_votes import as_array, sent_votes, signed_votes
from protocols.levels.two_server.statement import Fate, Statement
from protocols.wire.messages import ConcealedVotes, Outcome
from tests.harness.levels import SIGNING_KEY


def signed_again(study, seat, reply, *, key, queries):
    """A reply with other arrays than its party made, without its signature, signed by that party all the same."""
    sealed, *own = reply.arrays
    about = {"key": key, "study": study, "request": reply.batch_digest, "queries": queries, "seat": seat}
    signed = signed_votes(sealed.tobytes(), tuple(own), **about)
    return ConcealedVotes(reply.batch_digest, (sealed, *own, as_array(signed.signature)))


def told(study, seat, request, answered, *, reply=None, fate=Fate.COUNTED, key=SIGNING_KEY):
    """An outcome with a guardian's word that a seat's votes had this fate. reply: the votes that it names."""
    answered, seats = np.asarray(answered), len(study.roster)
    fates, votes = np.full(seats, Fate.NOT_SUBMITTED, np.uint8), np.zeros((seats, 32), np.uint8)
    fates[study.seats[seat]] = fate
    if reply is not None:
        votes[study.seats[seat]] = as_array(sent_votes(reply).digest(study.digest, request, seat))
    about = {"study": study.digest, "request": request, "answered": answered}
    statement = Statement.signed(key, **about, fates=fates, votes=votes)
    return Outcome(study.digest, request, answered, statement.told(study.seats[seat]))
