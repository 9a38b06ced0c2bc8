"""What all messages of a secure sum are bound to, and the public values that follow from it.

What a masked sum takes from its study: its context, a party's share of the noise, the roster's keys.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec
from jaxtyping import Bool, Int64
from numpy import ndarray

from protocols.bounds.distributed_noise import share_sigma
from protocols.crypto.discrete_gaussian import integer_gaussian
from protocols.crypto.masks import Graph, graph_parameters, survivors_quorum
from protocols.crypto.randomness import RandomSource
from protocols.crypto.rings import MOST_CELLS, RING_BITS, check_ring
from protocols.errors import InvalidInput
from protocols.levels.level import BatchNoise, Streams
from protocols.levels.secure_sum.wire import Verify, public_keys, verifier
from protocols.noise import LatticeNoise, Noise
from protocols.study.levels import GuardedLevel, SecureSum, summed
from protocols.study.study import Study

_DIGEST_BYTES, _RUN_BYTES = 32, 64


@dataclass(frozen=True)
class Context:
    """One sum: of which study, run and batch, among whom, of how many cells, in which ring.

    study, batch: digests of 32 bytes; run: up to 64 bytes; members: distinct names, whose places are the indices of
    parties; dropouts, colluders: see graph_parameters; cells: numbers that are added up; bits: 32 or 64, of check_ring.
    A party builds it from its own knowledge, never from the coordinator's word. Raises InvalidInput.
    """

    study: bytes
    run: bytes
    batch: bytes
    members: tuple[str, ...]
    dropouts: int
    colluders: int
    cells: int
    bits: int

    def __post_init__(self) -> None:
        if len(self.study) != _DIGEST_BYTES or len(self.batch) != _DIGEST_BYTES or len(self.run) > _RUN_BYTES:
            raise InvalidInput(
                f"study, batch and run have {len(self.study)}, {len(self.batch)} and {len(self.run)} bytes; allowed: "
                f"{_DIGEST_BYTES}, {_DIGEST_BYTES} and at most {_RUN_BYTES}"
            )
        if len(set(self.members)) != len(self.members):
            raise InvalidInput(f"{len(self.members)} members with names that repeat; allowed: distinct names")
        if not 1 <= self.cells <= MOST_CELLS:
            raise InvalidInput(f"cells = {self.cells}; allowed: 1 to {MOST_CELLS}")
        if self.bits not in RING_BITS:
            raise InvalidInput(f"bits = {self.bits}; allowed: {', '.join(map(str, RING_BITS))}")
        graph_parameters(parties=len(self.members), dropouts=self.dropouts, colluders=self.colluders)

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of all of it."""
        numbers = (self.dropouts, self.colluders, self.cells, self.bits)
        parts = (self.study, self.run, self.batch, repr(numbers).encode())
        return hashlib.sha256(b"conclave secure sum 2\n" + _framed(parts) + _framed_names(self.members)).digest()

    @property
    def parties(self) -> int:
        """How many members there are."""
        return len(self.members)

    @cached_property
    def threshold(self) -> int:
        """How many shares open a secret."""
        return graph_parameters(parties=self.parties, dropouts=self.dropouts, colluders=self.colluders)[1]

    @cached_property
    def graph(self) -> Graph:
        """Who masks with whom."""
        degree, _ = graph_parameters(parties=self.parties, dropouts=self.dropouts, colluders=self.colluders)
        return Graph(self.parties, degree, hashlib.sha256(b"conclave secure sum graph 1\n" + self.digest).digest())

    @property
    def fewest(self) -> int:
        """How many parties must be left at every step."""
        return self.parties - self.dropouts

    @property
    def quorum(self) -> int:
        """How many parties must have agreed on the set of survivors."""
        return survivors_quorum(parties=self.parties, colluders=self.colluders)

    @property
    def dtype(self) -> np.dtype:
        """Of masked vectors on the wire."""
        return np.dtype(f"<u{self.bits // 8}")

    def mask_context(self, sharers: Bool[ndarray, " parties"]) -> bytes:
        """What masks are bound to: masks of parties that were told different sharers never cancel."""
        return hashlib.sha256(self.digest + np.packbits(sharers).tobytes()).digest()


def _framed(parts: Iterable[bytes]) -> bytes:
    return b"".join(len(part).to_bytes(8, "big") + part for part in parts)


@lru_cache(maxsize=8)
def _framed_names(members: tuple[str, ...]) -> bytes:
    """The names of a roster: the same ones in every batch of a study."""
    return _framed(name.encode() for name in members)


def context_of(study: Study, digest: bytes, *, queries: int) -> Context:
    """The context of one batch's sum: the whole roster, and the bounds on drop-outs and colluders."""
    level = summed(study.confidentiality)
    cells = queries * study.classes
    total_sigma = float(noise_share(study)) * len(study.roster) ** 0.5
    bits = check_ring(total_units=study.total_units(level.units), noise_sigma_units=total_sigma, cells=cells)
    return Context(
        study=study.digest,
        run=b"",
        batch=digest,
        members=tuple(seat.party for seat in study.roster),
        dropouts=len(study.roster) - study.quorum,
        colluders=level.colluders,
        cells=cells,
        bits=bits,
    )


def noise_share(study: Study) -> Fraction:
    """sigma of each party's noise, in lattice units: the honest parties of a quorum add up to the study's."""
    level = summed(study.confidentiality)
    return share_sigma(
        sigma_units=study.gaussian.sigma * level.units,
        parties=len(study.roster),
        dropouts=len(study.roster) - study.quorum,
        colluders=level.colluders,
    )


def summed_noise(study: Study, streams: Streams) -> BatchNoise:
    """The noise of a batch: the shares of those who voted. For simulations."""
    units, sigma = summed(study.confidentiality).units, noise_share(study)
    sources = [share_source(streams, position) for position in range(len(study.roster))]

    def of_batch(voting: Bool[ndarray, " parties"]) -> Noise:
        def draw(count: int, _: float) -> Int64[ndarray, " count"]:
            total = np.zeros(count, dtype=np.int64)
            for position in np.flatnonzero(voting):
                total += integer_gaussian(sources[position], sigma=sigma, size=count)
            return total

        return LatticeNoise(units, draw)

    return of_batch


def share_source(streams: Streams, position: int) -> RandomSource:
    """Of a simulated seat's share of the noise."""
    return streams("noise share", position).bytes


def roster_verifier(study: Study) -> Verify:
    """verify(seat, message, signature) under the keys of the study's roster."""
    return verifier(roster_keys(study))


def roster_keys(study: Study) -> Mapping[str, ec.EllipticCurvePublicKey]:
    """The public keys of the study's roster, by seat."""
    level = study.confidentiality
    if not isinstance(level, SecureSum | GuardedLevel):
        raise InvalidInput(f"level is {level.name!r}; allowed: secure_sum, two_server, hidden_queries: seats have keys")
    return public_keys(tuple(zip(study.seats, level.seat_keys, strict=True)))
