"""Where records vote: each server adds its whole noise to its share of the sum, and both open it to each other.

    coordinator -> guardian   its noisy share
    guardian -> coordinator   its noisy share; its signatures of the outcome and of the opened sums; its log's head

So both learn the noisy sums, which are released anyway, and each is protected from by the other's noise. There is no
check of what was shared and no garbled circuit.

A server sends one noisy share of a batch and never another (`pin_share`): under the same noise, two of different
parties would show by their difference the share of those that one has and the other has not, and to the other server,
which holds their other share, what these parties sent.
"""

from __future__ import annotations

import hashlib

import numpy as np
from jaxtyping import Int64
from numpy import ndarray

from protocols.crypto.masked_ring import from_ring, to_ring
from protocols.errors import Refused
from protocols.ledger.ledger import Ledger
from protocols.levels.two_server.conversation import server_noise
from protocols.noise import LatticeNoise
from protocols.refusals.code import Code
from protocols.study.level_checks import check_shared_sums
from protocols.study.levels import guarded
from protocols.study.study import Study

_OWN_SHARE, _OTHER_SHARE = "own_share", "other_share"


def ring_bits(study: Study) -> int:
    """The size of the words in which a study's sums are shared: 32 or 64 bits."""
    level = guarded(study.confidentiality)
    return check_shared_sums(study, level.name, units=level.units).bits


def shape_of(study: Study) -> tuple[int, int]:
    """(queries, classes) of a sum: always all of the study's, as records vote once."""
    return study.query_limit, study.classes


def noisy_share(study: Study, total: ndarray, noise: LatticeNoise) -> ndarray:
    """A server's share of the sum with all of that server's noise, in the words of the share."""
    drawn = server_noise(study, noise, queries=len(total))
    return total + to_ring(drawn, bits=8 * total.dtype.itemsize)


def opened(mine: ndarray, theirs: ndarray) -> Int64[ndarray, "queries classes"]:
    """The noisy sums in lattice units."""
    return from_ring(mine + theirs)


def pin_share(ledger: Ledger, request: bytes, words: ndarray, *, own: bool) -> None:
    """Keeps which noisy share this server sent (own) or was sent. Raises Refused("other_sums") for a second one."""
    digest = hashlib.sha256(np.ascontiguousarray(words).tobytes()).digest()
    if ledger.note(request, _OWN_SHARE if own else _OTHER_SHARE, digest) != digest:
        raise Refused(Code.OTHER_SUMS, "the batch's sums were opened before, with another share")
