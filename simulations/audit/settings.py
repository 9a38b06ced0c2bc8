"""How hard an audit looks, and what of: a kind of votes, as the entry of one loop (audit.py).

An entry gives lines. A line is a claim and pairs of neighbouring worlds; of each pair it knows the exact epsilon and
how to release either world, many times, as a statistic. How the statistic becomes a bound and a verdict is the loop's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from protocols.crypto.randomness import simulation_rng
from protocols.errors import InvalidInput

if TYPE_CHECKING:
    from protocols.mechanisms import Mechanism, View
    from simulations.audit.as_run import AuditedRun
    from simulations.audit.bounds import Samples
    from simulations.audit.breaks import RunBreak
    from simulations.audit.laws import Agreement

NOISES = ("seeded", "system", "fast")
# With more, the tests of laws would take most of an audit whose bounds need millions.
_MOST_LAW_TRIALS = 200_000
# progress(trials done).
Advance = Callable[[int], None]


@dataclass(frozen=True)
class UnitClaim:
    """What is claimed of one unit: epsilon at delta, and mu for Gaussian DP (else None).

    order: the Renyi order of the filter (NaN for Gaussian DP).
    """

    epsilon: float
    delta: float
    order: float
    mu: float | None


@dataclass(frozen=True)
class Pair:
    """Two neighbouring worlds.

    exact: the epsilon that the honest release has on them; observed: statistics of the settings' trials in either
    world, large where "before" is likelier; moves: the squared move of the sums as a share of what a weight allows, and
    too_far: whether it is above it by a lattice unit or more.
    """

    name: str
    exact: float
    observed: Callable[[Advance], list[Samples]]
    moves: float | None = None
    too_far: bool = False


@dataclass(frozen=True)
class Prepared:
    """A line that is worked out: law(alpha): what is released, held against its law; power(alpha, families): with which
    probability a share of the noise would have been found, empty if nobody knows.
    """

    claim: UnitClaim
    pairs: Sequence[Pair]
    law: Callable[[float], Agreement]
    power: Callable[[float, int], dict[float, float]] = lambda alpha, families: {}


@dataclass(frozen=True)
class Line:
    """One line of an audit. title: for the figure; labels: what it is of, by the columns of a table; facts: as JSON;
    trials: in all of its worlds; gaussian_dp: whether mu is claimed; prepared: works it out.
    """

    title: str
    labels: dict[str, str]
    facts: dict[str, object]
    trials: int
    gaussian_dp: bool
    prepared: Callable[[], Prepared]


class Kind(ABC):
    """A kind of votes that is audited, with its own terms."""

    votes_by: ClassVar[str]

    @property
    @abstractmethod
    def breaks(self) -> Sequence[str]:
        """The names of what can be broken on purpose."""

    @abstractmethod
    def check(self, settings: AuditSettings) -> None:
        """Raises InvalidInput for a term out of range, or a break that would break nothing."""

    @abstractmethod
    def lines(self, settings: AuditSettings) -> list[Line]:
        """What is audited; of a break, what it can change. Raises InvalidInput."""

    @property
    @abstractmethod
    def subject(self) -> str:
        """Of what epsilons are, in words."""

    @property
    @abstractmethod
    def terms(self) -> dict[str, object]:
        """Its terms as JSON values."""

    @abstractmethod
    def words(self, settings: AuditSettings, *, as_run: Sequence[str], ended: Sequence[str]) -> list[str]:
        """What else the findings rest on, and what was not tested, in sentences.

        as_run, ended: the mechanisms of studies as they run, and of studies that a budget ends.
        """

    def broken_code(self, settings: AuditSettings) -> RunBreak | None:
        """What of the levels' code is broken while studies run."""
        return None

    def runs(self, settings: AuditSettings) -> list[tuple[AuditedRun, type[Mechanism]]]:
        """The studies that are audited as they run."""
        return []

    def budget_views(self, settings: AuditSettings) -> tuple[View, ...]:
        """The views under which studies that their budgets end are audited."""
        return ()


@dataclass(frozen=True, kw_only=True)
class AuditSettings:
    """What is audited and how hard. Raises InvalidInput for a value out of range.

    of: the kind of votes; trials: in each world; confidence: with which all bounds and laws of the audit hold together;
    noise: "seeded" (the node's sampler with a seeded stream), "system" (with the operating system's generator), "fast"
    (NumPy's normals); broken: the name of a break of the kind, or None; law_trials: the trials of the tests of laws,
    None for as many, but at most 200,000.
    """

    of: Kind
    trials: int
    delta: float
    confidence: float
    noise: str
    seed: int
    broken: str | None = None
    law_trials: int | None = None

    def __post_init__(self) -> None:
        check_between("trials", self.trials, 1000, 20_000_000)
        check_between("law_trials", self.trials_of_laws, 1000, 20_000_000)
        check_between("seed", self.seed, 0, 2**63 - 1)
        for name in ("delta", "confidence"):
            if not 0 < getattr(self, name) < 1:
                raise InvalidInput(f"{name} is {getattr(self, name)}; allowed: in (0, 1)")
        if self.noise not in NOISES:
            raise InvalidInput(f"noise is {self.noise!r}; allowed: {', '.join(NOISES)}")
        if self.broken is not None and self.broken not in self.of.breaks:
            raise InvalidInput(
                f"break is {self.broken!r}; allowed with --votes-by {self.of.votes_by}: "
                f"{', '.join(self.of.breaks) or 'none, as no distribution with breaks is installed'}"
            )
        self.of.check(self)

    @property
    def trials_of_laws(self) -> int:
        """In how many trials what is released is held against its law: a few times ten queries in each."""
        return min(self.trials, _MOST_LAW_TRIALS) if self.law_trials is None else self.law_trials

    def stream(self, *key: int) -> np.random.Generator:
        """The generator of one world of one line, where noise is not the operating system's."""
        return simulation_rng(self.seed, "audit noise", *key)


def check_between(name: str, value: float, least: float, most: float) -> None:
    """Raises InvalidInput unless the value is finite and in [least, most]."""
    if not (np.isfinite(value) and least <= value <= most):
        raise InvalidInput(f"{name} is {value}; allowed: {least:g} to {most:g}")
