"""A level of confidentiality in a simulation: publicly known keys, and noise that is drawn again from a seed.

They protect nobody. What runs at a level is the real thing (table.py).
"""

from __future__ import annotations

import hashlib
from functools import lru_cache, partial

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from protocols.crypto.identity import encoded_point
from protocols.crypto.randomness import simulation_rng
from protocols.ledger.ledger import Ledger
from protocols.levels import table
from protocols.levels.level import Ballot, BatchNoise
from protocols.study.levels import LEVELS, Confidentiality, Simulated
from protocols.study.study import Study

# The order of P-256; a private key is a nonzero residue of it.
_P256 = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


def simulated_level(
    level: str, *, units: int | None, colluders: int | None, seats: int, input_bound: float = 1.0
) -> Confidentiality:
    """A level with known keys. input_bound: the largest absolute value in a hidden query. Raises InvalidInput for
    colluders at a level that does not count them.
    """
    sealing, signing = (key().public_key().public_bytes_raw().hex() for key in (sealing_key, signing_key))
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


def drawn_noise(study: Study, *, seed: int) -> BatchNoise:
    """The noise that a live study with this seed draws, batch by batch."""
    return table.batch_noise(study, partial(simulation_rng, seed))


def sealing_key() -> X25519PrivateKey:
    """The guardian's key that votes are sealed to, which is publicly known."""
    return X25519PrivateKey.from_private_bytes(hashlib.sha256(b"conclave simulated guardian, sealing").digest())


def signing_key() -> Ed25519PrivateKey:
    """The guardian's key that it signs with, which is publicly known."""
    return Ed25519PrivateKey.from_private_bytes(hashlib.sha256(b"conclave simulated guardian, signing").digest())
