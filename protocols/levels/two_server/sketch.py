"""The servers' check that every shared vector is one-hot, or zero where abstention is allowed; it opens nothing else.

Boneh, Boyle, Corrigan-Gibbs, Gilboa & Ishai 2021, "Lightweight techniques for private heavy hitters", sections 4 and
C.4: for random r, <r,v>^2 - <r^2,v> = sum_i (v_i^2 - v_i) r_i^2 + 2 sum_{i<j} v_i v_j r_i r_j is the zero polynomial
in r if every v_i is 0 or 1 and at most one is 1, and only then. Whether v is one-hot or zero does not show.

**Keyed once.** With s = <r,v>, the servers open only Z = s + a, uniform as neither knows the party's a, and then have
shares of T = Z^2 + A Z + B - <r^2,v> - <r,k v> = s^2 + k s - <r^2,v> - k <r,v>, which is zero for an honest voter
(shares.py). If one server shifts Z by d, then T moves by d (2 s + d + k): uniform, because k is, and k is used for this
query and repetition alone. So a shift is noticed, and what the shifting server sees next is independent of s.

**Only zero is told.** A repetition's T of all queries are added up with random factors; the three sums are one element
R of the field of p^3 elements. Its value is never opened: each server draws l_S, and l R, l = l_C + l_G, is opened with
the party's product of two factors (Beaver 1991). It is zero if R is, and else uniform. A server that shifts what it
opens there gets (l + d)(R + e): it learns whether R = -e. For the votes of an honest party R is zero, or uniform by k.
Only where a dealer or a querying party spoils a vote itself (`hidden_queries`) does R depend on it, and then that one
comparison is all that shows.

**Fixed before it is seen.** The coordinator commits to each message, the guardian sends its own, the coordinator opens:
no message depends on the other server's of the same step. And for ever: each server pins what it got, before it sends
what follows from it (`pin`); all else follows from its shares and its secret of the batch. So however often a check is
broken off and repeated, an honest server sends one transcript, or refuses. Under two coins, or two Z, differences of
what is opened would give votes.

    coordinator -> guardian   digest of the ballots, commitment to its number
    guardian -> coordinator   digest, its number: both now have the coin, and from it r and the factors
    coordinator -> guardian   its number opened; commitment to its shares of Z
    guardian -> coordinator   its shares of Z
    coordinator -> guardian   its shares of Z opened; commitment to its masked factors l_C and results R
    guardian -> coordinator   its masked factors and results
    coordinator -> guardian   its own opened; commitment to its shares of l R
    guardian -> coordinator   its shares of l R
    coordinator -> guardian   its own opened

Soundness. Parties share before the coin is drawn, from numbers that no party sees. A wrong k v, B or product adds terms
to T that are at most linear in r, or a constant to l R, so T stays a non-zero polynomial of degree two, and l R +
constant not constant if R is not zero. A voter with any bad vector has R = 0 in one repetition with probability at most
2/p (Schwartz-Zippel) plus 1/p (all queries' T in one random combination), and passes with (3/p)^3 + 1/p^3, below 2^-88.
Where every voter must vote, the combination also holds sum_c v_c - 1, which must be zero.

docs/explanation/vote-check.md is the specification, with the proof that one server's view can be simulated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, UInt32
from numpy import ndarray

from protocols.crypto.channel import Channel, elements, receive
from protocols.crypto.field import cubic_times, matrix_product, minus, plus, reduced, times
from protocols.crypto.prg import derived_key, field_elements
from protocols.errors import InvalidInput, MalformedMessage
from protocols.levels.two_server.shares import (
    REPETITIONS,
    Blinds,
    CoordinatorShare,
    GuardianShare,
    coordinator_blinds,
    guardian_blinds,
    guardian_determined,
    guardian_votes,
)

# Stores what a step of a batch's check was done with; raises Refused for any other than the first: see batch_notes.py.
_Pin = Callable[[str, bytes], None]

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
    channel: Channel, share: CoordinatorShare, ballots: Ballots, *, secret: bytes, pin: _Pin
) -> Bool[ndarray, " voters"]:
    """Which voters' vectors are all well formed; the guardian gets the same.

    secret: 32 random bytes of this server for this batch, the same in every attempt at it; pin(step, value): called
    before anything that follows from the value is sent; keeps the first value of a step, and raises Refused for any
    other. Raises MalformedMessage, ChannelClosed, InvalidInput, and what `pin` raises.
    """
    _check_sizes(ballots, share.votes.shape, share.seeds.shape)
    mine = _Own(secret, ballots)
    channel.send(ballots.digest + mine.commitment("number", mine.number))
    answer = receive(channel, 2 * _HASH_BYTES, "the guardian's number")
    _check_digest(answer, ballots)
    coin = derived_key("challenge", ballots.context, mine.number, answer[_HASH_BYTES:])
    pin("coin", coin)

    def exchanged(before: str, opened: bytes, step: str, values: UInt32[ndarray, "*sizes"]) -> ndarray:
        """Opens what the step before committed to, commits to this one's values; returns the sum of both servers'."""
        channel.send(mine.opening(before, opened) + mine.commitment(step, values.astype("<u4").tobytes()))
        theirs = receive(channel, values.nbytes, f"the guardian's {step}")
        pin(step, derived_key("heard", theirs))
        return plus(values, elements(theirs, values.shape))

    blinds = coordinator_blinds(share.seeds, queries=ballots.queries, context=ballots.context)
    sketch = _Sketch(ballots, _challenge(coin, ballots), blinds, share.constants, share.products)
    for at in voter_blocks(len(share.seeds), ballots.queries * ballots.classes):
        sketch.take(at, share.votes[at], share.keyed[at])
    blinded = sketch.blinded
    z = exchanged("number", mine.number, "blinded sums", blinded)
    masked = sketch.masked(z, mine.factors, leads=True)
    opened = exchanged("blinded sums", blinded.astype("<u4").tobytes(), "masked results", masked)
    tested = sketch.tested(opened, leads=True)
    total = exchanged("masked results", masked.astype("<u4").tobytes(), "tests", tested)
    channel.send(mine.opening("tests", tested.astype("<u4").tobytes()))
    return _all_zero(total)


def guardian_checks(
    channel: Channel, share: GuardianShare, ballots: Ballots, *, secret: bytes, pin: _Pin
) -> Bool[ndarray, " voters"]:
    """As `coordinator_checks`, for the guardian."""
    voters, queries = ballots.takes_part.shape
    sizes = {"queries": queries, "context": ballots.context}
    _check_sizes(ballots, (voters, queries, ballots.classes), share.seeds.shape)
    mine = _Own(secret, ballots)
    question = receive(channel, 2 * _HASH_BYTES, "the coordinator's commitment")
    _check_digest(question, ballots)
    pin("number", question[_HASH_BYTES:])
    channel.send(ballots.digest + mine.number)
    answer = receive(channel, 3 * _HASH_BYTES, "the coordinator's number")
    number = _opened(ballots, "number", answer[: 2 * _HASH_BYTES], question[_HASH_BYTES:])
    coin = derived_key("challenge", ballots.context, number, mine.number)
    pin("coin", coin)

    def exchanged(step: str, commitment: bytes, values: UInt32[ndarray, "*sizes"], last: bool) -> tuple[ndarray, bytes]:
        """(the sum of both servers' values, the coordinator's commitment to the next ones)."""
        pin(step, commitment)
        channel.send(values.astype("<u4").tobytes())
        size = values.nbytes + _HASH_BYTES
        data = receive(channel, size + (0 if last else _HASH_BYTES), f"the coordinator's {step}")
        theirs = elements(_opened(ballots, step, data[:size], commitment), values.shape)
        return plus(values, theirs), data[size:]

    blinds = guardian_blinds(share.seeds, **sizes)
    constants, products = np.empty_like(blinds.points), np.empty((voters, REPETITIONS), dtype=np.uint32)
    sketch = _Sketch(ballots, _challenge(coin, ballots), blinds, constants, products)
    for at in voter_blocks(voters, queries * ballots.classes):
        votes = guardian_votes(share.seeds[at], classes=ballots.classes, **sizes)
        determined = guardian_determined(share.seeds[at], classes=ballots.classes, **sizes)
        constants[at], products[at] = determined.constants, determined.products
        sketch.take(at, votes, determined.keyed)
    z, following = exchanged("blinded sums", answer[2 * _HASH_BYTES :], sketch.blinded, False)
    masked = sketch.masked(z, mine.factors, leads=False)
    opened, following = exchanged("masked results", following, masked, False)
    total, _ = exchanged("tests", following, sketch.tested(opened, leads=False), True)
    return _all_zero(total)


@dataclass(frozen=True, eq=False)
class _Challenge:
    """r, and the factors that add queries up: those of the results, and those of the sums of v."""

    points: UInt32[ndarray, "queries classes repetitions"] = field(repr=False)
    of_results: UInt32[ndarray, "repetitions queries"] = field(repr=False)
    of_sums: UInt32[ndarray, "repetitions queries"] = field(repr=False)


def _challenge(coin: bytes, ballots: Ballots) -> _Challenge:
    queries, classes = ballots.queries, ballots.classes
    r = field_elements(derived_key("points", coin), queries * classes * REPETITIONS)
    shape = (2, REPETITIONS, queries)
    factors = field_elements(derived_key("factors", coin), int(np.prod(shape))).reshape(shape)
    if ballots.abstention:
        factors[1] = 0
    return _Challenge(r.reshape(queries, classes, REPETITIONS), factors[0], factors[1])


class _Sketch:
    """One server's shares of Z, of R and of l R, for all voters.

    leads: whether this server, the coordinator, adds the public terms.
    """

    def __init__(
        self,
        ballots: Ballots,
        challenge: _Challenge,
        blinds: Blinds,
        constants: UInt32[ndarray, "voters repetitions queries"],
        products: UInt32[ndarray, "voters repetitions"],
    ) -> None:
        """constants, products: may be filled until all votes are taken."""
        self._ballots, self._challenge = ballots, challenge
        self._blinds, self._constants, self._products = blinds, constants, products
        self._sums = np.empty_like(blinds.points)
        self._rest = np.empty((len(blinds.points), REPETITIONS), dtype=np.uint32)
        r, rho = challenge.points, challenge.of_results.T[:, None]
        # Of v: r, and the factor of its sum minus that of <r^2,v>; of k v: that of <r,k v>.
        self._of_votes = np.concatenate([r, minus(challenge.of_sums.T[:, None], times(rho, times(r, r)))], axis=2)
        self._of_keyed = times(rho, r).transpose(2, 0, 1)[..., None]

    def take(
        self,
        at: slice,
        votes: UInt32[ndarray, "some queries classes"],
        keyed: UInt32[ndarray, "some repetitions queries classes"],
    ) -> None:
        """The shares of v and of k v of some voters."""
        takes_part = self._ballots.takes_part[at].T
        of_votes = matrix_product(votes.transpose(1, 0, 2), self._of_votes)
        self._sums[at] = of_votes[..., :REPETITIONS].transpose(1, 2, 0)
        of_keyed = matrix_product(keyed.transpose(1, 2, 0, 3), self._of_keyed)[..., 0].transpose(1, 2, 0)
        terms = minus(of_votes[..., REPETITIONS:], of_keyed) * takes_part[..., None]
        self._rest[at] = reduced(terms.sum(axis=0, dtype=np.uint64))

    @property
    def blinded(self) -> UInt32[ndarray, "voters repetitions queries"]:
        """This server's shares of Z."""
        return plus(self._sums, self._blinds.points)

    def masked(
        self,
        z: UInt32[ndarray, "voters repetitions queries"],
        own: UInt32[ndarray, "voters repetitions"],
        *,
        leads: bool,
    ) -> UInt32[ndarray, "2 voters repetitions"]:
        """This server's shares of l and R, each masked by one of the party's factors. own: its share of l."""
        rho, sigma = self._challenge.of_results, self._challenge.of_sums
        takes_part = self._ballots.takes_part
        values = plus(times(self._blinds.slopes, z), self._constants)
        if leads:
            values = plus(values, times(z, z))
        values = (values * takes_part[:, None]).transpose(1, 0, 2)
        results = plus(self._rest, matrix_product(values, rho[:, :, None])[:, :, 0].T)
        if leads:
            # Each sum of v that takes part must be 1.
            due = matrix_product(takes_part.astype(np.uint32), np.ascontiguousarray(sigma.T))
            results = minus(results, due)
        return minus(np.stack([own, results]), self._blinds.factors)

    def tested(
        self, opened: UInt32[ndarray, "2 voters repetitions"], *, leads: bool
    ) -> UInt32[ndarray, "voters repetitions"]:
        """This server's shares of l R, from l and R as they were opened under the factors (Beaver 1991)."""
        (factor, result), (first, second) = opened, self._blinds.factors
        shares = plus(plus(cubic_times(factor, second), cubic_times(result, first)), self._products)
        return plus(shares, cubic_times(factor, result)) if leads else shares


class _Own:
    """What a server derives from its secret of the batch: the same in every attempt."""

    def __init__(self, secret: bytes, ballots: Ballots) -> None:
        if len(secret) != _HASH_BYTES:
            raise InvalidInput(f"a secret of {len(secret)} bytes; allowed: {_HASH_BYTES}")
        self._secret, self._ballots = secret, ballots
        # Its part of the coin: determined by secret and batch, whoever's votes are in it.
        self.number = derived_key("number", secret, ballots.context)

    @property
    def factors(self) -> UInt32[ndarray, "voters repetitions"]:
        """This server's share of l."""
        shape = (len(self._ballots.takes_part), REPETITIONS)
        key = derived_key("blinding", self._secret, self._ballots.digest)
        return field_elements(key, shape[0] * shape[1]).reshape(shape)

    def commitment(self, step: str, data: bytes) -> bytes:
        """A commitment to what this server says in a step."""
        return _commitment(self._ballots, step, data, self._salt(step))

    def opening(self, step: str, data: bytes) -> bytes:
        """What it had committed to, and the salt."""
        return data + self._salt(step)

    def _salt(self, step: str) -> bytes:
        return derived_key("salt", self._secret, step.encode(), self._ballots.digest)


def _commitment(ballots: Ballots, step: str, data: bytes, salt: bytes) -> bytes:
    return derived_key("commitment", step.encode(), ballots.digest, salt, data)


def _opened(ballots: Ballots, step: str, opening: bytes, commitment: bytes) -> bytes:
    """What the coordinator had committed to. Raises MalformedMessage for anything else."""
    data, salt = opening[:-_HASH_BYTES], opening[-_HASH_BYTES:]
    if _commitment(ballots, step, data, salt) != commitment:
        raise MalformedMessage(f"the coordinator opened another {step} than it had committed to")
    return data


def voter_blocks(voters: int, cells: int) -> Iterator[slice]:
    """Slices of voters of which each has about a million cells, so that memory stays bounded."""
    step = max(1, _BLOCK_CELLS // max(1, cells))
    for start in range(0, voters, step):
        yield slice(start, min(start + step, voters))


def _all_zero(total: UInt32[ndarray, "voters repetitions"]) -> Bool[ndarray, " voters"]:
    return np.asarray(~total.any(axis=1))


def _check_sizes(ballots: Ballots, votes: tuple[int, ...], seeds: tuple[int, ...]) -> None:
    expected = (*ballots.takes_part.shape, ballots.classes)
    if votes != expected or seeds[0] != expected[0]:
        raise InvalidInput(f"shares of shape {votes} with {seeds[0]} seeds; expected: {expected}")


def _check_digest(message: bytes, ballots: Ballots) -> None:
    if message[:_HASH_BYTES] != ballots.digest:
        raise MalformedMessage("the servers differ in voters, queries, classes, abstention, participation or context")
