"""The levels of confidentiality in a simulation: publicly known keys, and noise that a replay can draw.

Keys and noise come from seeds, so a live study over real ballots and its replay in NumPy have the same noise. They
protect nobody. What runs at a level is the real thing (protocols/levels/table.py).
"""

from __future__ import annotations

import hashlib
from functools import cache, lru_cache, partial

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from coordinator.in_process import GuardianInProcess
from protocols.crypto.identity import encoded_point
from protocols.crypto.randomness import simulation_rng
from protocols.labelling.guardian import Guardian
from protocols.ledger.ledger import Ledger
from protocols.levels import table
from protocols.levels.level import Aggregation, Ballot, BatchNoise
from protocols.levels.two_server.conversation import GUARDIAN_NOISE
from protocols.study.levels import LEVELS, Confidentiality, Simulated
from protocols.study.study import Study
from protocols.sums.judging import Evaluation, usual_score_bins

# The order of P-256; a private key is a nonzero residue of it.
_P256 = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


def simulated_level(
    level: str, *, units: int | None, colluders: int | None, seats: int, input_bound: float = 1.0
) -> Confidentiality:
    """A level with known keys. input_bound: the largest absolute value in a hidden query. Raises InvalidInput for
    colluders at a level that does not count them.
    """
    sealing, signing = (key().public_key().public_bytes_raw().hex() for key in (_sealing_key, _signing_key))
    *keys, querier = seat_keys(seats + 1)
    made = Simulated(tuple(keys), querier, sealing, signing, input_bound)
    return LEVELS[level].simulated(units=units, colluders=colluders, made=made)


def seat_key(position: int) -> ec.EllipticCurvePrivateKey:
    """A seat's signing key, which is publicly known."""
    digest = hashlib.sha256(b"conclave simulated seat %d" % position).digest()
    return ec.derive_private_key(1 + int.from_bytes(digest, "big") % (_P256 - 1), ec.SECP256R1())


@lru_cache(maxsize=64)  # a plan makes hundreds of studies of the same seats
def seat_keys(seats: int) -> tuple[str, ...]:
    """What a study names for so many simulated seats."""
    return tuple(encoded_point(seat_key(position).public_key()) for position in range(seats))


def simulated_ballot(study: Study, position: int, *, ledger: Ledger, seed: int) -> Ballot:
    """A seat's side of the study's level."""
    return table.ballot_of(
        study,
        study.roster[position].party,
        ledger=ledger,
        source=simulation_rng(seed, "ballot", position).bytes,
        means=table.Means(key=partial(seat_key, position)),
        streams=partial(simulation_rng, seed),
    )


def simulated_aggregation(study: Study, *, guardians: Ledger, seed: int) -> Aggregation:
    """The coordinator's side, with a guardian in this process if the level has one. guardians: the guardian's
    ledger.
    """

    @cache
    def guardian() -> GuardianInProcess:
        return GuardianInProcess(
            Guardian(
                study,
                ledger=guardians,
                sealing_key=_sealing_key(),
                signing_key=_signing_key(),
                source=simulation_rng(seed, "guardian").bytes,
                noise_source=simulation_rng(seed, GUARDIAN_NOISE).bytes,
            )
        )

    return table.aggregation_of(
        study,
        source=simulation_rng(seed, "coordinator").bytes,
        dial=lambda: guardian().dial(),
        streams=partial(simulation_rng, seed),
    )


def drawn_noise(study: Study, *, seed: int) -> BatchNoise:
    """The noise that a live study with this seed draws, batch by batch."""
    return table.batch_noise(study, partial(simulation_rng, seed))


def _sealing_key() -> X25519PrivateKey:
    return X25519PrivateKey.from_private_bytes(hashlib.sha256(b"conclave simulated guardian, sealing").digest())


def _signing_key() -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(hashlib.sha256(b"conclave simulated guardian, signing").digest())


def simulated_judges(
    share: float | None, population: int, *, classes: int, findings: int, seed: int
) -> Evaluation | None:
    """What a simulated study fixes about judges; None where none are asked for."""
    if share is None:
        return None
    key = hashlib.sha256(b"conclave simulated judges %d" % seed).digest()
    bins = usual_score_bins(share * population)
    return Evaluation.of(share=share, key=key, bins=bins, classes=classes, threshold=0.5, findings=findings)
