"""Who may see a vote: the levels of confidentiality that a study chooses from, each with its own terms.

- Clear: the coordinator sees votes and adds the noise; it is trusted with both.
- SecureSum: the coordinator sees the noisy histogram only; each party adds its share of the noise (Bonawitz et al.
  2017). Semi-honest coordinator, fewer colluding parties than the terms say.
- TwoServer: votes are shared between the coordinator and a guardian, another organisation; each adds the full noise,
  and a garbled circuit gives the label; where records vote, both open the noisy sum. Both semi-honest, not colluding.
- HiddenQueries: a hospital outside the roster asks about records of its own, which nobody else sees. It is the first
  server, and models answer under the guardian's randomness (protocols/levels/hidden_queries/querier.py).

A level checks its study itself and describes itself to other code, which need not know which levels exist. What runs at
each level is in protocols/levels/table.py.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import ceil, sqrt
from types import MappingProxyType
from typing import ClassVar

from protocols.crypto.identity import check_name, keys_fingerprint
from protocols.errors import InvalidInput
from protocols.mechanisms import Lattice, Mechanism
from protocols.ranges import check
from protocols.study.any_study import AnyStudy
from protocols.study.chosen import GIVEN
from protocols.study.level_checks import (
    check_apart,
    check_one_histogram,
    check_querier_key,
    check_seat_keys,
    check_servers,
    check_sum,
    check_view_seen,
    check_weights,
    shared_queries,
)
from protocols.study.terms import Terms
from protocols.study.votes import teacher_votes
from protocols.votes import LATTICE

# The digest of the pool of a study whose queries are hidden.
NO_POOL = "0" * 64


_UNITS_OF_GRADED = 2**16
# Lattice units per vote of a simulation, if a level needs them and none are given.
SIMULATED_UNITS = 64


@dataclass(frozen=True)
class Simulated:
    """What a simulation makes up: public keys, in hexadecimal, of each seat, of a hospital that asks, and the
    guardian's two; and the largest absolute value in a hidden query.
    """

    seats: tuple[str, ...]
    querier: str
    sealing: str
    signing: str
    input_bound: float


class Level(ABC):
    """A level of confidentiality. Implementations are frozen dataclasses with keyword-only terms."""

    name: ClassVar[str]
    # Whether nobody sees a vote.
    conceals_votes: ClassVar[bool] = True
    # Whether parties sign steps, with keys that the level names.
    signs: ClassVar[bool] = False
    # The role in the certificate of whoever asks.
    asking_role: ClassVar[str] = "coordinator"
    # Keys of the study file that may be left out, by the key that names whose public key it is.
    named_keys: ClassVar[Mapping[str, str]] = MappingProxyType({})

    @classmethod
    def takes(cls, mechanism: type[Mechanism]) -> bool:
        """Whether studies of the level may have this mechanism, where their view and their noise allow it."""
        return True

    @classmethod
    def graded_units(cls, population: int) -> int | None:
        """The usual lattice units of a vote where entries are of any size, enough that rounding leaves them as they
        are; None for real-valued noise. population: the units that vote."""
        return _UNITS_OF_GRADED

    @classmethod
    @abstractmethod
    def simulated(cls, *, units: int | None, colluders: int | None, made: Simulated) -> Confidentiality:
        """The level in a simulation. Raises InvalidInput for terms that it does not have."""

    @abstractmethod
    def check(self, study: AnyStudy) -> None:
        """Raises InvalidInput unless the level can carry the study: view, noise, weights and arithmetic."""

    def check_terms(self, terms: Terms) -> None:  # noqa: B027  # most levels ask for nothing
        """Raises InvalidInput unless the level fits the terms that organisations fix."""

    def lattice(self, *, quorum: int, classes: int) -> Lattice | None:
        """Of integer noise; None for real-valued noise."""
        return None

    def usual_quorum(self, seats: int) -> int:
        """The default number of seats that a batch needs."""
        return 1

    def usual_batch(self, queries: int, *, voters: int, classes: int) -> int:
        """The default limit of a batch: as many of these queries as fit if all of so many teachers vote."""
        return queries

    def who_asks(self, coordinator: str) -> str:
        """The name of the organisation that asks the parties and gets the labels."""
        return self.asked_by or coordinator

    def sent(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """What is sent of a query of this shape."""
        return shape

    @property
    def asked_by(self) -> str:
        """The hospital that asks in the coordinator's place, whose queries nobody else sees; "" where there is none."""
        return ""

    @property
    def second_server(self) -> str:
        """The guardian's name; "" at a level without one."""
        return ""

    @property
    def colluding(self) -> int:
        """How many parties may collude with the coordinator without learning more."""
        return 0

    def noise_factor(self, *, quorum: int, voted: int) -> float:
        """The noise in a released sum over that which is accounted for, if so many seats voted: more where the
        accounting relies on a part of it."""
        return 1.0

    def noise_sources(self, voted: int) -> int:
        """How many add noise to a sum, if so many seats voted."""
        return 1


@dataclass(frozen=True, kw_only=True)
class Clear(Level):
    """The coordinator sees every vote.

    units: lattice units per vote, see SecureSum; None for real-valued noise, which only this level can have.
    """

    units: int | None = None
    name: ClassVar[str] = "clear"
    conceals_votes: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.units is not None:
            _check_units(self.units)

    @classmethod
    def graded_units(cls, population: int) -> int | None:
        return None

    @classmethod
    def simulated(cls, *, units: int | None, colluders: int | None, made: Simulated) -> Confidentiality:
        _check_no_colluders(cls.name, colluders)
        return Clear(units=units)

    def check(self, study: AnyStudy) -> None:
        if self.units is not None:
            check_weights(study, self.name, self.units)

    def lattice(self, *, quorum: int, classes: int) -> Lattice | None:
        return None if self.units is None else Lattice(units=self.units, shares=1, classes=classes)


@dataclass(frozen=True, kw_only=True)
class SecureSum(Level):
    """The coordinator sees the noisy histogram only.

    units: lattice units per vote, a power of two from 2 to 2**20: weights, threshold and noise are whole numbers of
    them; colluders: parties that may collude with the coordinator, >= 0, below the quorum; seat_keys: the public key
    that each seat signs with, in order of the roster: that of its party's certificate, a compressed point of P-256 in
    hexadecimal. Raises InvalidInput, with the value and the allowed range.
    """

    units: int
    colluders: int
    seat_keys: tuple[str, ...]
    name: ClassVar[str] = "secure_sum"
    signs: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check_units(self.units)
        check("study", "confidentiality.colluders", self.colluders)

    @classmethod
    def simulated(cls, *, units: int | None, colluders: int | None, made: Simulated) -> Confidentiality:
        return SecureSum(units=units or SIMULATED_UNITS, colluders=colluders or 0, seat_keys=made.seats)

    def check(self, study: AnyStudy) -> None:
        check_view_seen(study, self.name, "histogram")
        if self.colluders >= study.quorum:
            raise InvalidInput(
                f"confidentiality: colluders is {self.colluders}; allowed: below the quorum of {study.quorum}, as only "
                "the noise of the others protects anyone"
            )
        check_weights(study, self.name, self.units)
        check_seat_keys(study, self.name, self.seat_keys, distinct=True)
        check_sum(study, self.name, units=self.units, colluders=self.colluders)

    def lattice(self, *, quorum: int, classes: int) -> Lattice:
        """The noise is the sum of the shares of the honest parties of a quorum."""
        return Lattice(units=self.units, shares=max(1, quorum - self.colluders), classes=classes)

    @property
    def colluding(self) -> int:
        return self.colluders

    def noise_factor(self, *, quorum: int, voted: int) -> float:
        return sqrt(voted / max(1, quorum - self.colluders))

    def noise_sources(self, voted: int) -> int:
        return voted

    def usual_quorum(self, seats: int) -> int:
        """Nine seats of ten: the accounting does not rely on the noise of those that may be missing."""
        return ceil(0.9 * seats)


@dataclass(frozen=True, kw_only=True)
class GuardedLevel(Level):
    """The common part of the two levels at which a guardian, another organisation, is the second server.

    units: see SecureSum; guardian: the name in its certificate; sealing_key, signing_key: its public keys, X25519 and
    Ed25519, in hexadecimal; seat_keys: see SecureSum; the seats of one party may share one. Votes are signed with them,
    so that no server can make up or change a hospital's.
    """

    units: int
    guardian: str
    sealing_key: str
    signing_key: str
    seat_keys: tuple[str, ...]
    signs: ClassVar[bool] = True
    # Whether a label leaves the circuit under a mask that only the querier knows.
    masked: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _check_units(self.units)
        check_name(self.guardian)
        for what, key in (("sealing_key", self.sealing_key), ("signing_key", self.signing_key)):
            if not re.fullmatch("[0-9a-f]{64}", key):
                raise InvalidInput(f"confidentiality: {what} is {key[:80]!r}; allowed: 64 hexadecimal digits")

    @property
    def fingerprint(self) -> str:
        """Of the guardian's two keys, as its operator reads it out and each hospital types it."""
        return keys_fingerprint(bytes.fromhex(self.sealing_key), bytes.fromhex(self.signing_key))

    @property
    @abstractmethod
    def abstains(self) -> bool:
        """Whether a vote may be an abstention, which nobody then sees."""

    @classmethod
    def takes(cls, mechanism: type[Mechanism]) -> bool:
        return mechanism.decides_on_one_histogram()

    def check(self, study: AnyStudy) -> None:
        check_view_seen(study, self.name, study.votes.opened)
        check_one_histogram(study, self.name)
        check_weights(study, self.name, self.units)
        self._check_guardian(study.seats)
        check_seat_keys(study, self.name, self.seat_keys, distinct=False)
        check_servers(study, self.name, units=self.units, abstains=self.abstains, sealing_key=self.sealing_key)

    def check_terms(self, terms: Terms) -> None:
        self._check_guardian([terms.coordinator])

    def usual_batch(self, queries: int, *, voters: int, classes: int) -> int:
        return min(queries, shared_queries(voters, classes))

    def lattice(self, *, quorum: int, classes: int) -> Lattice:
        """The lattice of one server's noise, the only noise that is accounted for."""
        return Lattice(units=self.units, shares=1, classes=classes)

    @property
    def asked_by(self) -> str:
        """The hospital that asks in the coordinator's place, whose queries nobody else sees; "" where there is none."""
        return ""

    @property
    def second_server(self) -> str:
        return self.guardian

    def noise_factor(self, *, quorum: int, voted: int) -> float:
        return sqrt(2)

    def noise_sources(self, voted: int) -> int:
        return 2

    def _check_guardian(self, others: Iterable[str]) -> None:
        check_apart(
            f"guardian is {self.guardian!r}, the coordinator or a party of the study; allowed: another organisation, "
            "as both shares of a vote together are the vote",
            self.guardian,
            others,
        )


@dataclass(frozen=True, kw_only=True)
class TwoServer(GuardedLevel):
    """Nobody sees a vote: coordinator and guardian have a share each.

    abstention: whether a vote may be for no class; says nothing where records vote, as a hospital sends one sum.
    Raises InvalidInput, with the value and the allowed range.
    """

    abstention: bool
    name: ClassVar[str] = "two_server"

    @classmethod
    def graded_units(cls, population: int) -> int:
        """All of them together stay below 2^29, with room in the field for weights and noise."""
        return min(_UNITS_OF_GRADED, 1 << max(1, (2**29 // population).bit_length() - 1))

    @classmethod
    def simulated(cls, *, units: int | None, colluders: int | None, made: Simulated) -> Confidentiality:
        _check_no_colluders(cls.name, colluders)
        return TwoServer(
            units=units or SIMULATED_UNITS,
            abstention=True,
            guardian="guardian",
            sealing_key=made.sealing,
            signing_key=made.signing,
            seat_keys=made.seats,
        )

    @property
    def abstains(self) -> bool:
        return self.abstention


@dataclass(frozen=True, kw_only=True)
class HiddenQueries(GuardedLevel):
    """Nobody but the querier sees a query, and nobody sees a vote: querier and guardian have a share each.

    querier: the party that asks, which is not on the roster; input_bound: the largest absolute value in a query, above
    0, at most 2**20; querier_key: the public key of the querier's certificate, as in seat_keys: it signs with it to the
    seats, and they seal their answers to it. Raises InvalidInput, with the value and the allowed range.
    """

    querier: str
    querier_key: str
    input_bound: float
    name: ClassVar[str] = "hidden_queries"
    masked: ClassVar[bool] = True
    asking_role: ClassVar[str] = "party"
    named_keys: ClassVar[Mapping[str, str]] = MappingProxyType({"querier": "querier_key"})

    def __post_init__(self) -> None:
        super().__post_init__()
        check_name(self.querier)
        if not 0 < self.input_bound <= 2**20:
            raise InvalidInput(f"confidentiality: input_bound is {self.input_bound}; allowed: above 0, at most 2**20")

    @classmethod
    def simulated(cls, *, units: int | None, colluders: int | None, made: Simulated) -> Confidentiality:
        _check_no_colluders(cls.name, colluders)
        return HiddenQueries(
            units=units or SIMULATED_UNITS,
            guardian="guardian",
            sealing_key=made.sealing,
            signing_key=made.signing,
            seat_keys=made.seats,
            querier="querier",
            querier_key=made.querier,
            input_bound=made.input_bound,
        )

    @property
    def abstains(self) -> bool:
        return False

    @property
    def asked_by(self) -> str:
        return self.querier

    def usual_batch(self, queries: int, *, voters: int, classes: int) -> int:
        """Few: every model of the study answers a batch in one private inference."""
        return min(10, super().usual_batch(queries, voters=voters, classes=classes))

    def check(self, study: AnyStudy) -> None:
        votes = teacher_votes(study)
        super().check(study)
        for what, value, allowed in (
            ("teachers", votes.teachers, 1),
            ("participation_name", votes.participation_name, "all"),
            ("questions", votes.questions, GIVEN),
        ):
            if value != allowed:
                raise InvalidInput(f"{what} is {value!r}; allowed at level {self.name!r}: {allowed!r}")
        self._check_querier([*study.seats, self.guardian])
        check_querier_key(self.querier_key, self.name, self.seat_keys)

    def check_terms(self, terms: Terms) -> None:
        super().check_terms(terms)
        if terms.pool_sha256 != NO_POOL:
            raise InvalidInput(
                f"terms: pool_sha256 is {terms.pool_sha256!r}; allowed at level {self.name!r}: {NO_POOL!r}"
            )
        self._check_querier([terms.coordinator])

    def sent(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (0,)

    def _check_querier(self, others: Iterable[str]) -> None:
        check_apart(
            f"querier is {self.querier!r}, which is a party of the roster, the guardian or the coordinator; allowed: "
            "another organisation",
            self.querier,
            others,
        )


Confidentiality = Clear | SecureSum | TwoServer | HiddenQueries
LEVELS: dict[str, type[Confidentiality]] = {
    "clear": Clear,
    "secure_sum": SecureSum,
    "two_server": TwoServer,
    "hidden_queries": HiddenQueries,
}


def guarded(level: Level) -> GuardedLevel:
    """Returns the level if it has a guardian. Raises InvalidInput otherwise."""
    if not isinstance(level, GuardedLevel):
        raise InvalidInput(f"level is {level.name!r}; allowed: two_server, hidden_queries, which have a guardian")
    return level


def hidden(level: Level) -> HiddenQueries:
    """Returns the level if it hides queries. Raises InvalidInput otherwise."""
    if not isinstance(level, HiddenQueries):
        raise InvalidInput(f"level is {level.name!r}; allowed: hidden_queries, at which a querier asks")
    return level


def summed(level: Level) -> SecureSum:
    """Returns the level if votes are added under masks. Raises InvalidInput otherwise."""
    if not isinstance(level, SecureSum):
        raise InvalidInput(f"level is {level.name!r}; allowed: secure_sum")
    return level


def _check_no_colluders(level: str, colluders: int | None) -> None:
    if colluders is not None:
        raise InvalidInput(f"colluders is {colluders}; level {level!r} does not use it: leave it out")


def _check_units(units: int) -> None:
    if (check("study", "confidentiality.units", units) & (units - 1)) != 0:
        raise InvalidInput(f"confidentiality: units is {units}; allowed: a power of two from 2 to {LATTICE}")
