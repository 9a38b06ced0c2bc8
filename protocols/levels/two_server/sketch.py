"""The servers' check that every shared vector is one-hot, or zero where abstention is allowed; it opens nothing else.

Boneh, Boyle, Corrigan-Gibbs, Gilboa & Ishai 2021, "Lightweight techniques for private heavy hitters", section 4: for
random r, <r,v>^2 - <r^2,v> = sum_i (v_i^2 - v_i) r_i^2 + 2 sum_{i<j} v_i v_j r_i r_j is the zero polynomial in r if
every v_i is 0 or 1 and at most one is 1, and only then. Otherwise a random point of F_p^m is a zero with probability at
most 2/p (Schwartz-Zippel). Whether v is one-hot or zero does not show.

Squaring a shared number uses up a shared square (a, a^2) of the party: d = <r,v> - a is opened, uniform since neither
server knows a, and <r,v>^2 = d^2 + 2 d a + a^2 is then local. A malformed square a^2 + e only adds the constant e to
the polynomial, because e was fixed before r was drawn: the polynomial stays non-zero, of degree two, so e does not help
a cheat; it only gets an honest vector refused.

One coin per batch. Opened under two coins, d and d' would give <r - r', v>, and with it v. So r is derived from one
number of each server, the same in every attempt at a batch, whoever's votes are in it, and each server pins the coin
before it sends anything that depends on votes: no other coin is ever used for the batch.

Soundness. Parties share before the coin is drawn, from numbers that no party sees; the coordinator's is committed to
before it sees the guardian's. The REPETITIONS = 3 results of all queries of a voter are added up with two random
combinations each, so that a voter with any bad vector passes with probability at most (2/p + 1/p^2)^3, about 2^-90.
Where every voter must vote, the combinations also hold sum_c v_c - 1, which must be zero.

Only sums that are zero for an honest voter are opened. For a malicious one they reveal something of its own vectors,
and the voter is left out entirely. Both servers are semi-honest and do not collude: a server that deviates can get an
honest voter refused, or learn a bit of its vote by shifting its share; the MAC'd sketch of the same paper would prevent
that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, UInt32
from numpy import ndarray

from protocols.crypto.channel import Channel
from protocols.crypto.field import matrix_product, minus, plus, times
from protocols.crypto.prg_chacha import derived_key, field_elements
from protocols.crypto.wire_arrays import elements, receive
from protocols.errors import InvalidInput, MalformedMessage
from protocols.levels.two_server.shares import (
    REPETITIONS,
    CoordinatorShare,
    GuardianShare,
    expand_coordinator,
    expand_guardian,
)

# Stores the coin of a batch; raises Refused for any other than the first.
Pin = Callable[[bytes], None]

_COMBINATIONS = 2
# Columns of the products of a vector: <r,v> and <r^2,v> of each repetition, and the sum of v.
_LINEAR = slice(0, REPETITIONS)
_QUADRATIC = slice(REPETITIONS, 2 * REPETITIONS)
_SUM = slice(2 * REPETITIONS, 2 * REPETITIONS + 1)
_PRODUCTS = 2 * REPETITIONS + 1
_HASH_BYTES = 32
# Cells of a block of voters that are worked on at once.
_BLOCK_CELLS = 1_000_000


@dataclass(frozen=True, eq=False)
class Ballots:
    """What both servers know about a batch's submissions: sizes, who takes part in what, whether anyone may abstain.

    takes_part: public; an entry that does not take part counts as zero, whatever was shared. context: as given to
    `share_votes`, and bound into the coin.
    """

    takes_part: Bool[ndarray, "voters queries"]
    classes: int
    abstention: bool
    context: bytes = field(repr=False)

    @property
    def queries(self) -> int:
        return self.takes_part.shape[1]

    @property
    def digest(self) -> bytes:
        """A hash of all of it, over which the servers must agree."""
        voters, queries = self.takes_part.shape
        sizes = np.array([voters, queries, self.classes, self.abstention], dtype="<i8").tobytes()
        return derived_key("ballots", sizes, np.packbits(self.takes_part).tobytes(), self.context)


def coordinator_checks(
    channel: Channel, share: CoordinatorShare, ballots: Ballots, *, coin_seed: bytes, pin: Pin
) -> Bool[ndarray, " voters"]:
    """Which voters' vectors are all well formed; the guardian gets the same.

    coin_seed: 32 secret random bytes of this server for this batch, the same in every attempt at it; pin(coin): called
    before anything that depends on votes is sent; keeps the coin of the batch, and raises Refused for any other.
    Raises MalformedMessage, ChannelClosed, InvalidInput, and what `pin` raises.
    """
    _check_sizes(ballots, share.votes.shape, share.seeds.shape)
    number, opening = _number(coin_seed, ballots), derived_key("opening", _checked_seed(coin_seed), ballots.context)
    channel.send(ballots.digest + derived_key("coin", number, opening))
    answer = receive(channel, 2 * _HASH_BYTES, "the guardian's number")
    _check_digest(answer, ballots)
    coin = derived_key("challenge", ballots.context, number, answer[_HASH_BYTES:])
    pin(coin)
    channel.send(number + opening)
    points = expand_coordinator(share.seeds, queries=ballots.queries, context=ballots.context)
    challenge = _challenge(coin, ballots)
    products = np.empty((len(points), ballots.queries, _PRODUCTS), dtype=np.uint32)
    for at in voter_blocks(len(points), ballots.queries * ballots.classes):
        products[at] = _products(share.votes[at], challenge)
    blinded = minus(products[:, :, _LINEAR], points)
    channel.send(blinded.astype("<u4").tobytes())
    voters, size = len(share.seeds), blinded.nbytes
    answer = receive(channel, size + 4 * voters * REPETITIONS * _COMBINATIONS, "the guardian's sketch")
    opened = plus(blinded, elements(answer[:size], blinded.shape))
    # The public terms, d^2 and the one that a sum must be, are the coordinator's to add.
    results = plus(_results(opened, products, points, share.squares), times(opened, opened))
    mine = _combined(results, minus(products[:, :, _SUM], np.ones_like(products[:, :, _SUM])), challenge, ballots)
    channel.send(mine.astype("<u4").tobytes())
    return _all_zero(plus(mine, elements(answer[size:], mine.shape)))


def guardian_checks(
    channel: Channel, share: GuardianShare, ballots: Ballots, *, coin_seed: bytes, pin: Pin
) -> Bool[ndarray, " voters"]:
    """As `coordinator_checks`, for the guardian."""
    voters, queries = ballots.takes_part.shape
    _check_sizes(ballots, (voters, queries, ballots.classes), share.seeds.shape)
    number = _number(coin_seed, ballots)
    question = receive(channel, 2 * _HASH_BYTES, "the coordinator's commitment")
    _check_digest(question, ballots)
    channel.send(ballots.digest + number)
    answer = receive(channel, 2 * _HASH_BYTES, "the coordinator's number")
    theirs = answer[:_HASH_BYTES]
    if derived_key("coin", theirs, answer[_HASH_BYTES:]) != question[_HASH_BYTES:]:
        raise MalformedMessage("the coordinator opened another number than it had committed to")
    coin = derived_key("challenge", ballots.context, theirs, number)
    pin(coin)
    challenge = _challenge(coin, ballots)
    products = np.empty((voters, queries, _PRODUCTS), dtype=np.uint32)
    points, squares = (np.empty((voters, queries, REPETITIONS), dtype=np.uint32) for _ in range(2))
    for at in voter_blocks(voters, queries * ballots.classes):
        masks, points[at], squares[at] = expand_guardian(
            share.seeds[at], queries=queries, classes=ballots.classes, context=ballots.context
        )
        products[at] = _products(masks, challenge)
    blinded = minus(products[:, :, _LINEAR], points)
    answer = receive(channel, blinded.nbytes, "the coordinator's sketch")
    opened = plus(blinded, elements(answer, blinded.shape))
    mine = _combined(_results(opened, products, points, squares), products[:, :, _SUM], challenge, ballots)
    channel.send(blinded.astype("<u4").tobytes() + mine.astype("<u4").tobytes())
    answer = receive(channel, 4 * mine.size, "the coordinator's result")
    return _all_zero(plus(mine, elements(answer, mine.shape)))


@dataclass(frozen=True, eq=False)
class _Challenge:
    """r and r^2 side by side; the factors that add queries up, of the results and of the sums."""

    powers: UInt32[ndarray, "queries classes both"] = field(repr=False)
    of_results: UInt32[ndarray, "repetitions queries combinations"] = field(repr=False)
    of_sums: UInt32[ndarray, "repetitions queries combinations"] = field(repr=False)


def _challenge(coin: bytes, ballots: Ballots) -> _Challenge:
    queries, classes = ballots.queries, ballots.classes
    r = field_elements(derived_key("points", coin), queries * classes * REPETITIONS)
    r = r.reshape(queries, classes, REPETITIONS)
    shape = (2, REPETITIONS, queries, _COMBINATIONS)
    factors = field_elements(derived_key("factors", coin), int(np.prod(shape))).reshape(shape)
    return _Challenge(np.concatenate([r, times(r, r)], axis=2), factors[0], factors[1])


def _products(
    votes: UInt32[ndarray, "some queries classes"], challenge: _Challenge
) -> UInt32[ndarray, "some queries products"]:
    """This server's shares of <r,v>, of <r^2,v> and of the sum of v, side by side."""
    ones = np.ones((*votes.shape[1:], 1), dtype=np.uint32)
    factors = np.concatenate([challenge.powers, ones], axis=2)
    return matrix_product(votes.transpose(1, 0, 2), factors).transpose(1, 0, 2)


def _results(
    opened: UInt32[ndarray, "voters queries repetitions"],
    products: UInt32[ndarray, "voters queries products"],
    points: UInt32[ndarray, "voters queries repetitions"],
    squares: UInt32[ndarray, "voters queries repetitions"],
) -> UInt32[ndarray, "voters queries repetitions"]:
    """This server's shares of 2 d a + a^2 - <r^2,v>."""
    return minus(plus(times(plus(opened, opened), points), squares), products[:, :, _QUADRATIC])


def _combined(
    results: UInt32[ndarray, "voters queries repetitions"],
    sums: UInt32[ndarray, "voters queries 1"],
    challenge: _Challenge,
    ballots: Ballots,
) -> UInt32[ndarray, "repetitions voters combinations"]:
    """All queries of a voter in random combinations; those that it takes no part in are left out."""
    results = results * ballots.takes_part[:, :, None]
    total = matrix_product(results.transpose(2, 0, 1), challenge.of_results)
    if ballots.abstention:
        return total
    sums = sums * ballots.takes_part[:, :, None]
    repeated = np.broadcast_to(sums.transpose(2, 0, 1), (REPETITIONS, *ballots.takes_part.shape))
    return plus(total, matrix_product(repeated, challenge.of_sums))


def voter_blocks(voters: int, cells: int) -> Iterator[slice]:
    """Slices of voters of which each has about a million cells, so that memory stays bounded."""
    step = max(1, _BLOCK_CELLS // max(1, cells))
    for start in range(0, voters, step):
        yield slice(start, min(start + step, voters))


def _all_zero(total: UInt32[ndarray, "repetitions voters combinations"]) -> Bool[ndarray, " voters"]:
    return np.asarray(~total.any(axis=(0, 2)))


def _number(coin_seed: bytes, ballots: Ballots) -> bytes:
    """A server's part of the coin: determined by seed and batch, whoever's votes are in it."""
    return derived_key("number", _checked_seed(coin_seed), ballots.context)


def _checked_seed(coin_seed: bytes) -> bytes:
    if len(coin_seed) != _HASH_BYTES:
        raise InvalidInput(f"a coin seed of {len(coin_seed)} bytes; allowed: {_HASH_BYTES}")
    return coin_seed


def _check_sizes(ballots: Ballots, votes: tuple[int, ...], seeds: tuple[int, ...]) -> None:
    expected = (*ballots.takes_part.shape, ballots.classes)
    if votes != expected or seeds[0] != expected[0]:
        raise InvalidInput(f"shares of shape {votes} with {seeds[0]} seeds; expected: {expected}")


def _check_digest(message: bytes, ballots: Ballots) -> None:
    if message[:_HASH_BYTES] != ballots.digest:
        raise MalformedMessage("the servers differ in voters, queries, classes, abstention, participation or context")
