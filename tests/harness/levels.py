"""Studies of every level of confidentiality, with the pieces that a level needs, in one process."""

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from coordinator.in_process import GuardianInProcess
from party.party import Party
from protocols.labelling.guardian import Guardian
from protocols.ledger.ledger import Ledger
from protocols.study.levels import Confidentiality, SecureSum, TwoServer
from tests.harness.studies import make_study, seat_keys

UNITS = 64
SEALING_KEY = X25519PrivateKey.from_private_bytes(bytes(range(32)))
SIGNING_KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(1, 33)))


SEAT_KEYS = tuple(ec.derive_private_key(1000 + seat, ec.SECP256R1()) for seat in range(6))


def secure_sum(*, colluders: int = 2, units: int = UNITS) -> SecureSum:
    """The terms of a study in which parties mask their votes."""
    return SecureSum(units=units, colluders=colluders, seat_keys=seat_keys(SEAT_KEYS))


def two_server(*, abstention: bool = False, units: int = UNITS, seats: int = 6) -> TwoServer:
    """The terms of a study with a guardian, of the keys above; more seats than six share them."""
    return TwoServer(
        units=units,
        abstention=abstention,
        guardian="guardian",
        sealing_key=SEALING_KEY.public_key().public_bytes_raw().hex(),
        signing_key=SIGNING_KEY.public_key().public_bytes_raw().hex(),
        seat_keys=seat_keys([SEAT_KEYS[at % len(SEAT_KEYS)] for at in range(seats)]),
    )


def lattice_study(level: Confidentiality, *, seats: int = 6, **more):
    """A small study whose weights lie on the lattice; seats: the first of six."""
    given = {
        "sigma": 3.0,
        "sigma_threshold": 3.0,
        "threshold": 2.5,
        "queries": 40,
        "batch_limit": 10,
        "classes": 5,
        "confidentiality": level,
    } | more
    if isinstance(level, SecureSum):
        given = {"view": "histogram", "account": "gaussian", "quorum": 5, "sigma": 4.0} | given
        given["sigma_threshold"] = None
    return make_study([8.0, 8.0, 12.0, 12.0, 16.0, 16.0][:seats], **given)


def seated(study, ledgers, *, ballot, vote):
    """The parties of a study, by name. ledgers: by name; ballot(position, name); vote(position, batch): its votes."""
    return {
        name: Party(
            name,
            study=study,
            ledger=ledgers[name],
            voter=lambda batch, i=i: vote(i, batch),
            coins_from=None,
            ballot=ballot(i, name),
        )
        for i, name in enumerate(ledgers)
    }


class GuardianHere(GuardianInProcess):
    """A study's guardian in threads of this process, with the keys of tests."""

    def __init__(self, study, ledger: Ledger, source, wrap=lambda channel: channel) -> None:
        keys = dict(sealing_key=SEALING_KEY, signing_key=SIGNING_KEY)
        super().__init__(Guardian(study, ledger=ledger, source=source, **keys), wrap=wrap)


def rng_votes(parties: int, teachers: int, queries: int, classes: int, seed: int) -> np.ndarray:
    """Votes that mostly agree, class ids only."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, classes, queries)
    wrong = rng.integers(0, classes, (parties, teachers, queries))
    return np.where(rng.random((parties, teachers, queries)) < 0.8, truth, wrong)
