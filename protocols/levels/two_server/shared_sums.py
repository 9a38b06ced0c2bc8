"""Sums of contributions as additive shares modulo 2**32 or 2**64, one for the coordinator and one for the guardian.

Where records vote, nothing but the noisy sum is computed, and addition needs no field: the ring is that of the masked
sums (crypto/rings.py). The guardian's share is expanded from a seed of 16 bytes, the coordinator's is the
difference: either alone is uniform and says nothing about the sum. Seeds are bound to `context`, which names the batch.

Nothing about a shared sum is proved: each server sees that a share has the right form, and a party that departs from
the protocol may share any vector (docs/explanation/threat-model.md).

Where records vote: each server adds its whole noise to its share of the sum, and both open it to each other.

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
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Int64, UInt8
from numpy import ndarray

from protocols.crypto.masks import key_stream
from protocols.crypto.prg import SEED_BYTES, derived_key
from protocols.crypto.randomness import RandomSource
from protocols.crypto.rings import BITS, from_ring, to_ring
from protocols.errors import InvalidInput, MalformedMessage, Refused
from protocols.ledger.ledger import Ledger
from protocols.levels.two_server.conversation import server_noise
from protocols.levels.two_server.shares import GuardianShare
from protocols.noise import LatticeNoise
from protocols.refusals.code import Code
from protocols.study.level_checks import check_shared_sums
from protocols.study.levels import guarded
from protocols.study.study import Study


@dataclass(frozen=True, eq=False)
class SumShare:
    """What the coordinator gets: words of 32 or 64 bits, [queries, classes]."""

    words: ndarray = field(repr=False)

    def arrays(self) -> tuple[ndarray]:
        """As they travel."""
        return (self.words,)

    @staticmethod
    def total(shares: Sequence[SumShare]) -> ndarray:
        """The coordinator's share of the sum of several parties. Raises InvalidInput for none."""
        if not shares:
            raise InvalidInput("0 shares; allowed: 1 or more")
        total = shares[0].words.copy()
        for share in shares[1:]:
            total += share.words  # modulo the size of a word
        return total


def share_sum(
    cells: Int64[ndarray, "queries classes"], *, bits: int, context: bytes, source: RandomSource
) -> tuple[SumShare, GuardianShare]:
    """Shares of one party's sum in lattice units. source: fresh cryptographic randomness, 16 bytes."""
    seeds = np.frombuffer(source(SEED_BYTES), dtype=np.uint8).reshape(1, SEED_BYTES)
    return SumShare(to_ring(cells, bits=bits) - _expanded(seeds[0], cells.shape, bits, context)), GuardianShare(seeds)


def guardian_total(share: GuardianShare, *, shape: tuple[int, int], bits: int, context: bytes) -> ndarray:
    """The guardian's share of the sum of all parties whose seeds these are, [queries, classes]."""
    total = np.zeros(shape, dtype=f"<u{bits // 8}")
    for seed in share.seeds:
        total += _expanded(seed, shape, bits, context)
    return total


def check_sum_share(arrays: tuple[ndarray, ...], *, shape: tuple[int, int], bits: int) -> SumShare:
    """The share of a sum, from a party or from the other server. Raises MalformedMessage."""
    if len(arrays) != 1:
        raise MalformedMessage(f"a share of {len(arrays)} arrays; expected: 1")
    (words,) = arrays
    if words.dtype != f"<u{bits // 8}" or words.shape != shape:
        raise MalformedMessage(
            f"a share of a sum is {words.dtype} of shape {words.shape}; expected: words of {bits} bits, {shape}"
        )
    return SumShare(np.ascontiguousarray(words))


def _expanded(seed: UInt8[ndarray, "16"], shape: tuple[int, int], bits: int, context: bytes) -> ndarray:
    assert bits in BITS
    key = derived_key("guardian's share of a sum", context, seed.tobytes())
    return key_stream(key, shape[0] * shape[1], bits=bits).reshape(shape)


_OWN_SHARE, _OTHER_SHARE = "own_share", "other_share"


def ring_bits(study: Study) -> int:
    """The size of the words in which a study's sums are shared: 32 or 64 bits."""
    level = guarded(study.confidentiality)
    return check_shared_sums(study, level.name, units=level.units)


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
