"""The levels of confidentiality in a simulation: terms, publicly known keys, and noise that a replay can draw.

Keys and noise come from seeds, so a live study over real ballots and its replay in NumPy have the same noise. They
protect nobody.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from jaxtyping import Bool, Int64
from numpy import ndarray

from coordinator.in_process import GuardianInProcess
from protocols.crypto.identity import encoded_point
from protocols.crypto.lazy_inversion import integer_gaussian
from protocols.crypto.prg import expanded_source
from protocols.crypto.randomness import RandomSource, simulation_rng
from protocols.errors import InvalidInput
from protocols.ledger.ledger import Ledger
from protocols.levels.clear import ClearAggregation, ClearBallot
from protocols.levels.guardian import Guardian
from protocols.levels.level import Aggregation, Ballot
from protocols.levels.secure_sum.aggregation import SummedAggregation
from protocols.levels.secure_sum.ballot import SummedBallot
from protocols.levels.secure_sum.terms import noise_share
from protocols.levels.two_server.aggregation import COORDINATOR_NOISE, SharedAggregation
from protocols.levels.two_server.ballot import SharedBallot
from protocols.levels.two_server.conversation import GUARDIAN_NOISE, NOISE_SEED_BYTES
from protocols.levels.two_server.noise_pool import NoiseLaw, noise_of
from protocols.noise import LatticeNoise, Noise, lattice_noise, simulated
from protocols.study.levels import Clear, Confidentiality, GuardedLevel, SecureSum, TwoServer, guarded, summed
from protocols.study.study import Study

# Lattice units per vote, if a level needs them and none are given.
UNITS = 64
# The order of P-256; a private key is a nonzero residue of it.
_P256 = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


def simulated_level(level: str, *, units: int | None, colluders: int | None, seats: int) -> Confidentiality:
    """A level with known keys. Raises InvalidInput for colluders at a level that does not count them."""
    if level == SecureSum.name:
        return SecureSum(units=units or UNITS, colluders=colluders or 0, seat_keys=seat_keys(seats))
    if colluders is not None:
        raise InvalidInput(f"colluders is {colluders}; level {level!r} does not use it: leave it out")
    if level == TwoServer.name:
        return TwoServer(
            units=units or UNITS,
            abstention=True,
            guardian="guardian",
            sealing_key=_sealing_key().public_key().public_bytes_raw().hex(),
            signing_key=_signing_key().public_key().public_bytes_raw().hex(),
            seat_keys=seat_keys(seats),
        )
    return Clear(units=units)


def seat_key(position: int) -> ec.EllipticCurvePrivateKey:
    """A seat's signing key, which is publicly known."""
    digest = hashlib.sha256(b"conclave simulated seat %d" % position).digest()
    return ec.derive_private_key(1 + int.from_bytes(digest, "big") % (_P256 - 1), ec.SECP256R1())


def seat_keys(seats: int) -> tuple[str, ...]:
    """What a study names for so many simulated seats."""
    return tuple(encoded_point(seat_key(position).public_key()) for position in range(seats))


def simulated_ballot(study: Study, position: int, *, ledger: Ledger, seed: int) -> Ballot:
    """A seat's side of the study's level."""
    seat = study.roster[position].party
    source = simulation_rng(seed, "ballot", position).bytes
    match study.confidentiality:
        case GuardedLevel():
            return SharedBallot(study, seat, key=seat_key(position), source=source)
        case SecureSum():
            return SummedBallot(
                study,
                seat,
                ledger=ledger,
                key=seat_key(position),
                source=source,
                noise_source=_share_source(seed, position),
            )
        case _:
            return ClearBallot()


def simulated_aggregation(study: Study, *, guardians: Ledger, seed: int) -> Aggregation:
    """The coordinator's side, with a guardian in this process if the level has one. guardians: the guardian's
    ledger.
    """
    match study.confidentiality:
        case GuardedLevel():
            guardian = Guardian(
                study,
                ledger=guardians,
                sealing_key=_sealing_key(),
                signing_key=_signing_key(),
                source=simulation_rng(seed, "guardian").bytes,
                noise_source=_server_source(seed, "guardian noise"),
            )
            return SharedAggregation(
                GuardianInProcess(guardian).dial,
                source=simulation_rng(seed, "coordinator").bytes,
                noise_source=_server_source(seed, "coordinator noise"),
            )
        case SecureSum():
            return SummedAggregation()
        case _:
            return ClearAggregation(_clear_noise(study, seed))


def batch_noise(study: Study, *, seed: int) -> BatchNoise:
    """The noise that a live study with this seed draws, batch by batch."""
    match study.confidentiality:
        case GuardedLevel():
            return _both_servers(study, seed)
        case SecureSum():
            return _all_shares(study, seed)
        case _:
            return one_stream(_clear_noise(study, seed))


def one_stream(noise: Noise) -> BatchNoise:
    """The noise of a level where it does not matter who voted: all batches draw from one stream, in order."""
    return lambda voting: noise


def _clear_noise(study: Study, seed: int) -> Noise:
    lattice = study.lattice
    rng = simulation_rng(seed, "noise")
    return simulated(rng) if lattice is None else lattice_noise(rng.bytes, units=lattice.units)


def _both_servers(study: Study, seed: int) -> BatchNoise:
    units = guarded(study.confidentiality).units
    sources = [_server_source(seed, "coordinator noise"), _server_source(seed, "guardian noise")]

    def of_batch(voting: Bool[ndarray, " parties"]) -> Noise:
        one, other = (source(NOISE_SEED_BYTES) for source in sources)

        def of_records(count: int, sigma: float) -> Int64[ndarray, " count"]:
            first, second = (
                lattice_noise(expanded_source(each, label=label), units=units).draw(count, sigma)
                for each, label in ((one, COORDINATOR_NOISE), (other, GUARDIAN_NOISE))
            )
            return first + second

        def of_teachers(count: int, sigma: float) -> Int64[ndarray, " count"]:
            # As both servers' checks of inputs give it, whatever is asked for: a draw for each query and class.
            first, second = noise_of((one, other), NoiseLaw.of(study), queries=count // study.classes)
            return (first + second).reshape(-1)

        return LatticeNoise(units, of_records if study.votes.once else of_teachers)

    return of_batch


def _all_shares(study: Study, seed: int) -> BatchNoise:
    units = summed(study.confidentiality).units
    sources = [_share_source(seed, position) for position in range(len(study.roster))]
    sigma = noise_share(study)

    def of_batch(voting: Bool[ndarray, " parties"]) -> Noise:
        def draw(count: int, _: float) -> Int64[ndarray, " count"]:
            total = np.zeros(count, dtype=np.int64)
            for position in np.flatnonzero(voting):
                total += integer_gaussian(sources[position], sigma=sigma, size=count)
            return total

        return LatticeNoise(units, draw)

    return of_batch


def _server_source(seed: int, stage: str) -> RandomSource:
    return simulation_rng(seed, stage).bytes


def _share_source(seed: int, position: int) -> RandomSource:
    return simulation_rng(seed, "noise share", position).bytes


def _sealing_key() -> X25519PrivateKey:
    return X25519PrivateKey.from_private_bytes(hashlib.sha256(b"conclave simulated guardian, sealing").digest())


def _signing_key() -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(hashlib.sha256(b"conclave simulated guardian, signing").digest())


# The noise of the next batch, given who voted.
BatchNoise = Callable[[Bool[ndarray, " parties"]], Noise]
