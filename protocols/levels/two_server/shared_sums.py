"""Sums of contributions as additive shares modulo p = 2^31 - 1, one for the coordinator and one for the guardian.

Where records vote, nothing but the noisy sum is computed. A hospital shares the bits of its sum, and a proof that they
are bits and that its declared units could send the sum (sums/bounded.py, crypto/shared_squares.py). The guardian's
share of it all is expanded from a seed of 16 bytes, the coordinator's is the difference: either alone is uniform and
says nothing about the sum. Seeds are bound to `context`, which names the batch.

    coordinator -> guardian   digest of what is to be proved, its number
    guardian -> coordinator   digest, its number: both now have the coin
    guardian -> coordinator   what it opens of each proof
    coordinator -> guardian   what it opens of each proof; then its noisy share of the sum of all that hold
    guardian -> coordinator   its noisy share; its signatures of the outcome and of the opened sums; its log's head

Each server adds its whole noise to its share of the sum. So both learn the noisy sums, which are released anyway, and
each is protected from by the other's noise. There is no garbled circuit.

All is shared before the coin, to which each server contributes one number per batch. What the other server said is
pinned before anything follows from it: under two coins, what is opened would say more than zero.

A server sends one noisy share of a batch and never another (`pin_share`): under the same noise, two of different
parties would show by their difference the share of those that one has and the other has not, and to the other server,
which holds their other share, what these parties sent.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from jaxtyping import Bool, Int64, UInt8, UInt32
from numpy import ndarray

from protocols.crypto.channel import elements
from protocols.crypto.field import from_integers, minus, plus
from protocols.crypto.prg import SEED_BYTES, derived_key, field_elements
from protocols.crypto.randomness import RandomSource
from protocols.crypto.shared_squares import POINTS, Coin, Layout
from protocols.errors import MalformedMessage, Refused
from protocols.ledger.ledger import Ledger
from protocols.levels.two_server.conversation import server_noise
from protocols.levels.two_server.one_time_masks import PinnedExchange
from protocols.levels.two_server.shares import GuardianShare
from protocols.noise import LatticeNoise
from protocols.ranges import in_range
from protocols.refusals.code import Code
from protocols.study.study import Study
from protocols.study.votes import unit_sums
from protocols.sums.bounded import Proven

_HASH_BYTES = 32
_Numbers = UInt32[ndarray, " numbers"]
_Sum = UInt32[ndarray, "queries classes"]
# Whose proofs hold, and a server's share of the sum of these.
_Checked = tuple[Bool[ndarray, " seats"], _Sum]


@dataclass(frozen=True, eq=False)
class SumShare:
    """What the coordinator gets: its share of a sum and of the proof."""

    numbers: _Numbers = field(repr=False)

    def arrays(self) -> tuple[ndarray]:
        """As they travel."""
        return (self.numbers.astype("<u4", copy=False),)


def proofs_of(study: Study, seats: Iterable[str], ids: Int64[ndarray, " queries"]) -> list[Proven]:
    """What each of these seats proves of its sum of these queries."""
    votes = unit_sums(study)
    return [votes.proofs(study, seat)[votes.again(ids)] for seat in seats]


def share_sum(
    cells: Int64[ndarray, "queries classes"], *, proof: Proven, context: bytes, source: RandomSource
) -> tuple[SumShare, GuardianShare]:
    """Shares of one party's sum in lattice units, with the proof. source: fresh cryptographic randomness, 32 bytes."""
    seeds = np.frombuffer(source(2 * SEED_BYTES), dtype=np.uint8).reshape(2, SEED_BYTES)
    bits = proof.bits(cells)
    whole = proof.layout.proved(bits, proof.squared(bits, leads=True), seed=seeds[1].tobytes())
    return SumShare(minus(whole, _expanded(seeds[0], proof, context))), GuardianShare(seeds[:1].copy())


def check_sum_share(arrays: tuple[ndarray, ...], *, shape: tuple[int, ...]) -> UInt32[ndarray, "..."]:
    """A share of a sum, from a party or from the other server. Raises MalformedMessage."""
    if len(arrays) != 1:
        raise MalformedMessage(f"a share of {len(arrays)} arrays; expected: 1")
    (numbers,) = arrays
    if numbers.dtype != "<u4" or numbers.shape != shape:
        raise MalformedMessage(
            f"a share of a sum is {numbers.dtype} of shape {numbers.shape}; expected: words of 32 bits, {shape}"
        )
    return np.ascontiguousarray(in_range("two servers", "field element", numbers))


def checks_sums(
    exchange: PinnedExchange, shares: Iterable[_Numbers], proofs: Sequence[Proven], *, context: bytes, secret: bytes
) -> _Checked:
    """Whose sums are proved, which the other server finds too, and this server's share of their sum.

    shares: this server's; secret: as of `coordinator_checks` (sketch.py). Raises MalformedMessage, ChannelClosed, and
    what the exchange's `pin` raises.
    """
    agreed, number = _agreed(proofs, context), derived_key("number of sums", secret, context)
    theirs = exchange.of("coin", agreed + number, 2 * _HASH_BYTES)
    if theirs[:_HASH_BYTES] != agreed:
        raise MalformedMessage("the servers differ in what hospitals are to prove, or in the batch")
    numbers = (number, theirs[_HASH_BYTES:]) if exchange.leads else (theirs[_HASH_BYTES:], number)
    coin = derived_key("coin of sums", context, *numbers)
    opened, sums = _opened(shares, proofs, coin, leads=exchange.leads)
    said = exchange.of("opened proofs", opened.astype("<u4").tobytes(), opened.nbytes, guardian_first=True)
    return _checked(opened, elements(said, opened.shape), sums, proofs, coin)


def _agreed(proofs: Sequence[Proven], context: bytes) -> bytes:
    """A hash of all that both servers must know alike."""
    return derived_key("proofs of sums", context, *(repr(each).encode() for each in proofs))


def _sizes(proof: Proven) -> tuple[int, int, int]:
    """How many numbers are opened: of polynomials, of sums of their squares, and of what must be zero."""
    return POINTS * sum(proof.layout.blocks), POINTS, proof.equations


def _opened(
    shares: Iterable[_Numbers], proofs: Sequence[Proven], seed: bytes, *, leads: bool
) -> tuple[_Numbers, list[_Sum]]:
    """What a server opens of all proofs, and its share of each sum. seed: the coin."""
    opened, sums = [], []
    for numbers, proof in zip(shares, proofs, strict=True):
        shared = proof.layout.parts(numbers)
        said = proof.layout.opened(shared, proof.squared(shared.bits, leads=leads), _coin(seed, proof.layout))
        opened += [*(each.ravel() for each in said), proof.zeros(shared, leads=leads)]
        sums.append(proof.sums(shared.bits, leads=leads))
    return np.concatenate(opened), sums


def _checked(mine: _Numbers, theirs: _Numbers, sums: Sequence[_Sum], proofs: Sequence[Proven], seed: bytes) -> _Checked:
    valid, total, at = np.zeros(len(proofs), dtype=bool), np.zeros_like(sums[0]), 0
    for place, (own, proof) in enumerate(zip(sums, proofs, strict=True)):
        ends = at + np.cumsum(_sizes(proof))
        one, other = (np.split(each[at : ends[-1]], ends[:-1] - at) for each in (mine, theirs))
        first, second = ((each[0].reshape(-1, POINTS), each[1]) for each in (one, other))
        valid[place] = _coin(seed, proof.layout).holds(first, second) and not plus(one[2], other[2]).any()
        total = plus(total, own) if valid[place] else total
        at = ends[-1]
    return valid, total


@lru_cache(maxsize=8)
def _coin(seed: bytes, layout: Layout) -> Coin:
    return Coin.of(derived_key("points and factors", seed), layout)


def guardian_numbers(share: GuardianShare, proofs: Sequence[Proven], context: bytes) -> Iterator[_Numbers]:
    """The guardian's shares, one by one."""
    return (_expanded(seed, proof, context) for seed, proof in zip(share.seeds, proofs, strict=True))


def _expanded(seed: UInt8[ndarray, "16"], proof: Proven, context: bytes) -> _Numbers:
    return field_elements(derived_key("guardian's share of a sum", context, seed.tobytes()), proof.layout.size)


_OWN_SHARE, _OTHER_SHARE = "own_share", "other_share"


def noisy_share(study: Study, total: _Sum, noise: LatticeNoise) -> _Sum:
    """A server's share of the sum with all of that server's noise."""
    return plus(total, from_integers(server_noise(study, noise, queries=len(total))))


def pin_share(ledger: Ledger, request: bytes, words: ndarray, *, own: bool) -> None:
    """Keeps which noisy share this server sent (own) or was sent. Raises Refused("other_sums") for a second one."""
    digest = hashlib.sha256(np.ascontiguousarray(words).tobytes()).digest()
    if ledger.note(request, _OWN_SHARE if own else _OTHER_SHARE, digest) != digest:
        raise Refused(Code.OTHER_SUMS, "the batch's sums were opened before, with another share")
