"""Small studies of every level and mechanism for generated faults: how each is asked, answered and paid for."""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec

from protocols.ledger.ledger import Ledger
from protocols.levels.hidden_queries.querier import PrivateQueries
from protocols.levels.level import Aggregation
from protocols.levels.table import Means, aggregation_of, ballot_of
from protocols.study.deployed import DeployedStudy
from protocols.study.levels import Clear, HiddenQueries, SecureSum, TwoServer
from protocols.study.queries import QueryBatch
from tests.harness import askers
from tests.harness.deployed_records import record_study_of, sum_of
from tests.harness.levels import SEALING_KEY, SIGNING_KEY, two_server
from tests.harness.studies import deployed_study, pool_of, seat_keys, voter

POOL, SIZE = 12, 2
KEYS = [ec.derive_private_key(2000 + seat, ec.SECP256R1()) for seat in range(3)]
# One noisy number per class and query: both thresholds of the one draw.
ONE_DRAW = {"mechanism": "thresholded_gnmax", "sigma_threshold": None}
# Counted before the first query, and composed exactly.
EXACT = {"account": "exact_composition"}
SUMMED = {"view": "histogram", "account": "gaussian", "sigma_threshold": None, "sigma": 4.0}


@dataclass(frozen=True)
class Kind:
    """A study and the parts of its participants. settles: whether hospitals believe outcomes that lower charges."""

    name: str
    study: DeployedStudy
    settles: bool = True

    @property
    def guarded(self) -> bool:
        """Whether there is a guardian, with a ledger of its own."""
        return isinstance(self.study.confidentiality, TwoServer | HiddenQueries)

    @property
    def hidden(self) -> bool:
        """Whether a hospital asks about records that nobody else sees."""
        return isinstance(self.study.confidentiality, HiddenQueries)

    @property
    def queries(self) -> int:
        """How many queries there are to ask."""
        return min(self.study.query_limit, POOL)

    def pool(self, count: int) -> np.ndarray:
        """What a coordinator labels: the first so many queries, or their positions if they are not sent."""
        if self.hidden or self.study.votes.once:
            return np.zeros((count, 0), dtype=np.float32)
        return pool_of(self.study.terms.pool_size, 4)[:count]

    def ballot(self, name: str, ledger: Ledger):
        """A seat's side of the level, with randomness of its own after each start."""
        study, at = self.study, self.study.seats[name]
        means = Means(key=lambda: _keys(self)[at], load=lambda: _model(study, name))
        return ballot_of(study, name, ledger=ledger, source=os.urandom, means=means)

    def aggregation(self, dial) -> Aggregation:
        """The asking side of the level."""
        if self.hidden:
            return PrivateQueries(self.study, askers.queries(), dial, key=askers.ASKER_KEY, source=os.urandom)
        return aggregation_of(self.study, source=os.urandom, dial=dial if self.guarded else None)

    def voter(self, name: str) -> Callable[[QueryBatch], np.ndarray]:
        """A seat's teachers, or its records."""
        if not self.study.votes.once:
            return voter(name)
        return lambda batch: _sums(self.study.digest, name)


@cache
def _model(study, name):
    return askers.model_of(study, name)


def _keys(kind: Kind) -> list[ec.EllipticCurvePrivateKey]:
    return list(askers.KEYS.values()) if kind.hidden else KEYS


_OF_RECORDS: dict[bytes, tuple] = {}


@cache
def _sums(digest: bytes, name: str) -> np.ndarray:
    study, queries = _OF_RECORDS[digest]
    return sum_of(study, queries, name)


def _records(level) -> DeployedStudy:
    study, queries = record_study_of(level=level)
    _OF_RECORDS[study.digest] = (study, queries)
    return study


def _teachers(level=None, *, hospitals: int = 3, **more) -> DeployedStudy:
    given = {"pool": POOL, "batch_limit": SIZE, "quorum": 2, "sigma": 3.0, "sigma_threshold": 3.0, "threshold": 0.5}
    given |= {"confidentiality": level or Clear()} | more
    keys = () if isinstance(given["confidentiality"], Clear) else KEYS
    return deployed_study(hospitals, keys=keys, **given)


def _asked(**more) -> DeployedStudy:
    return askers.asked_study(batch_limit=SIZE, epsilon=18.0, **more)


def _summed() -> SecureSum:
    return SecureSum(units=64, colluders=0, seat_keys=seat_keys(KEYS))


@cache
def kinds() -> dict[str, Kind]:
    """All of them, by name. Budgets end most studies before their queries do."""
    made = [
        Kind("clear, settles", _teachers(epsilon=6.0)),
        Kind("clear, does not settle", _teachers(epsilon=6.0, hospitals=2, quorum=1), settles=False),
        Kind("clear, one draw", _teachers(epsilon=5.5, hospitals=2, quorum=1, **ONE_DRAW)),
        Kind("clear, exact composition", _teachers(epsilon=5.5, hospitals=2, quorum=1, **ONE_DRAW, **EXACT)),
        Kind("clear, records", _records(None)),
        Kind("secure_sum, plain", _teachers(_summed(), epsilon=5.5, **SUMMED)),
        Kind("secure_sum, one draw", _teachers(_summed(), epsilon=5.5, **(SUMMED | ONE_DRAW))),
        Kind("secure_sum, records", _records(_summed())),
        Kind("two_server, plain", _teachers(two_server(), epsilon=6.0, mechanism="gnmax", threshold=None)),
        Kind("two_server, one draw", _teachers(two_server(), epsilon=5.5, **ONE_DRAW)),
        Kind("two_server, exact composition", _teachers(two_server(), epsilon=5.5, **ONE_DRAW, **EXACT)),
        Kind("two_server, records", _records(replace(two_server(), seat_keys=seat_keys(KEYS)))),
        Kind("hidden_queries, plain", _asked()),
        Kind("hidden_queries, one draw", _asked(mechanism="thresholded_gnmax", threshold=0.5)),
    ]
    return {kind.name: kind for kind in made}


GUARDIANS_KEYS = {"sealing_key": SEALING_KEY, "signing_key": SIGNING_KEY}
