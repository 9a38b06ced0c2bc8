"""What a masked sum takes from its study: its context, a party's share of the noise, the roster's keys."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec
from jaxtyping import Bool, Int64
from numpy import ndarray

from protocols.bounds.distributed_noise import share_sigma
from protocols.crypto.lazy_inversion import integer_gaussian
from protocols.crypto.masked_ring import check_ring
from protocols.crypto.randomness import RandomSource
from protocols.errors import InvalidInput
from protocols.levels.level import BatchNoise, Streams
from protocols.levels.secure_sum.authenticator import Verify, public_keys, verifier
from protocols.levels.secure_sum.context import Context
from protocols.noise import LatticeNoise, Noise
from protocols.study.levels import GuardedLevel, SecureSum, summed
from protocols.study.study import Study


def context_of(study: Study, digest: bytes, *, queries: int) -> Context:
    """The context of one batch's sum: the whole roster, and the bounds on drop-outs and colluders."""
    level = summed(study.confidentiality)
    cells = queries * study.classes
    total_sigma = float(noise_share(study)) * len(study.roster) ** 0.5
    ring = check_ring(total_units=study.total_units(level.units), noise_sigma_units=total_sigma, cells=cells)
    return Context(
        study=study.digest,
        run=b"",
        batch=digest,
        members=tuple(seat.party for seat in study.roster),
        dropouts=len(study.roster) - study.quorum,
        colluders=level.colluders,
        cells=cells,
        bits=ring.bits,
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
