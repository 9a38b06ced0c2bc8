"""What a mechanism is: noise that turns weighted histograms into labels, and its own worst-case cost.

A mechanism knows what one query costs one protected unit of sensitivity s (votes), as two parts: what is charged
for every query that is asked, and what is added when it is answered. Charging the answer only when it is given is
valid under a filter, because whether a query was answered is public (docs/explanation/mathematics.md, section 5.4).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import ClassVar, Final

import numpy as np
from jaxtyping import Float64, Int64
from numpy import ndarray

from protocols.bounds.label_pairs import LabelPairs
from protocols.errors import InvalidInput
from protocols.mechanisms.parameter import Number, Parameter, View
from protocols.noise import Noise, silent
from protocols.votes import ABSTAIN

# Delta^2 of a vote that moves from one class to another: one count falls by 1, another rises by 1.
ONE_VOTE: Final = 2


@dataclass(frozen=True)
class QueryCost:
    """Privacy cost of one query, in the units of an accountant (RDP at each order, or mu squared).

    ask: paid for every query asked; answer: added when it was answered. Shapes [units, orders].
    """

    ask: Float64[ndarray, "units orders"]
    answer: Float64[ndarray, "units orders"]


@dataclass(frozen=True)
class Sensitivity:
    """How much protected units move: their total vote weight, and how often it enters.

    votes: >= 0, in votes, one per unit; rate: in (0, 1], the probability with which the unit's vote enters a query by
    a coin that nobody but its node sees (1: it always enters; docs/explanation/mathematics.md, section 6);
    delta_squared: Delta^2 >= 1, the most by which one vote moves the counts, as a squared L2 distance.
    """

    votes: Float64[ndarray, " units"]
    rate: Float64[ndarray, " units"]
    delta_squared: int | float = field(kw_only=True)

    def __post_init__(self) -> None:
        if not (np.isfinite(self.votes).all() and (self.votes >= 0).all()):
            raise InvalidInput(f"units move {self.votes} votes; allowed: finite, >= 0")
        if not ((self.rate > 0).all() and (self.rate <= 1).all()):
            raise InvalidInput(f"rates are {self.rate}; allowed: in (0, 1]")

    @classmethod
    def always(cls, votes: Float64[ndarray, " units"], *, delta_squared: int | float) -> Sensitivity:
        """Units whose vote enters every query, or whose participation is public."""
        return cls(votes, np.ones_like(votes), delta_squared=delta_squared)

    @property
    def unsampled(self) -> Sensitivity:
        """The same units, if their votes always entered."""
        return Sensitivity.always(self.votes, delta_squared=self.delta_squared)

    @property
    def class_votes(self) -> Float64[ndarray, " units"]:
        """The votes, for a bound that is proved for votes that move from one class to another.

        Raises InvalidInput if they move the counts otherwise.
        """
        if self.delta_squared != ONE_VOTE:
            raise InvalidInput(
                f"Delta^2 is {self.delta_squared}; allowed: {ONE_VOTE}, as this bound is proved for a vote that moves "
                "from one class to another"
            )
        return self.votes

    @property
    def sampled(self) -> bool:
        """Whether some unit's vote enters by a secret coin."""
        return bool((self.rate < 1).any())


@dataclass(frozen=True)
class Lattice:
    """Integer noise, drawn exactly from discrete Gaussians, on votes that are whole multiples of 1/units.

    units: lattice units per vote, a power of two; shares: how many honest parties' independent shares make up the noise
    that is accounted for, 1 if one server draws all of it; classes: cells of a histogram.
    """

    units: int
    shares: int
    classes: int


class Mechanism(ABC):
    """A noisy argmax of weighted votes, with its cost, its words, and what an audit needs to attack it.

    Implementations are frozen dataclasses with keyword-only fields; those that `parameter` describes are agreed in a
    study, and are flags of the simulator.

    name: for files and flags; title: for people; noise_law: the law of the noise on each count, in a word; rdp_source:
    paper and theorem of `noise_rdp`; interactive: whether a second round compares the votes with a student's
    predictions; one_histogram: whether a query releases, under the view "label", the argmax of one noisy histogram,
    whose noise is independent for each class, where its maximum reaches `needed`, if that is a number;
    single_vote_bounds: accountants that hold only where a unit moves a single vote; names_sets: whether labels and
    votes are sets of findings, as numbers.

    What a class says of its release (one_histogram, and each bound: noise_rdp, gaussian_dp, label_only_rdp,
    label_pairs) holds for that release. A subclass that defines `release` anew, or what it is made of, says again what
    it has proved (`holding`).
    """

    name: ClassVar[str]
    title: ClassVar[str]
    noise_law: ClassVar[str]
    rdp_source: ClassVar[str]
    interactive: ClassVar[bool] = False
    one_histogram: ClassVar[bool] = False
    names_sets: ClassVar[bool] = False
    single_vote_bounds: ClassVar[tuple[str, ...]] = ()
    # Queries of the first round; a parameter of an interactive mechanism.
    round_one: int | None = None
    # The lattice of integer noise; None for real-valued noise. The level of confidentiality determines it.
    lattice: Lattice | None = None

    @property
    def coarse(self) -> bool:
        """Whether its noise is integer and too small, in lattice units, to be nearly Gaussian."""
        return False

    @classmethod
    def parameters(cls, *, view: View | None = None) -> dict[str, Parameter]:
        """Its parameters by name; view: only those that are needed under it."""
        told = {
            field.name: field.metadata["parameter"]
            for field in fields(cls)  # type: ignore[arg-type]  # every mechanism is a dataclass
            if "parameter" in field.metadata
        }
        return {name: each for name, each in told.items() if view is None or view in each.views}

    @classmethod
    def build(cls, *, view: View, given: Mapping[str, Number | None], lattice: Lattice | None = None) -> Mechanism:
        """The mechanism with these parameters; lattice: None for real-valued noise.

        Raises InvalidInput for a parameter that is missing, unknown or out of range, or has no use under the view.
        """
        known = cls.parameters()
        for name, value in given.items():
            if name not in known and value is not None:
                raise InvalidInput(f"{name} is {value!r}, which {cls.name} does not use; allowed: {', '.join(known)}")
        for name in cls.parameters(view=view):
            _check_given(cls, name, given.get(name), view)
        made = cls(**{name: each.number(name, given.get(name)) for name, each in known.items()})
        made.check_view(view)
        return made.on_lattice(lattice)

    @property
    def values(self) -> dict[str, Number]:
        """Its parameters with their values, without those not used under its view."""
        held = {name: each.number(name, getattr(self, name)) for name, each in self.parameters().items()}
        return {name: value for name, value in held.items() if value is not None}

    def check_view(self, view: View) -> None:
        """Raises InvalidInput unless it has the parameters that the view needs, and no others."""
        for name, each in self.parameters().items():
            value = getattr(self, name)
            if view in each.views:
                _check_given(type(self), name, value, view)
            elif value is not None:
                raise InvalidInput(
                    f"{name} is {value:g}, which {self.name} does not use under the view {view!r}: leave it out"
                )

    def on_lattice(self, lattice: Lattice | None) -> Mechanism:
        """The same mechanism with integer noise, or with real-valued noise for None. Raises InvalidInput if it has
        none.
        """
        if lattice is not None:
            raise InvalidInput(f"{self.name} has no integer noise; allowed: a mechanism with Gaussian noise")
        return self

    def needed(self, *, second_round: bool) -> float | None:
        """The votes that the (noisy) maximum must reach in a round; None if every query is answered."""
        return None

    @property
    def threshold_noise(self) -> float | None:
        """The standard deviation of Gaussian noise that a threshold test draws for itself; None where none is drawn.

        What a threshold does to a query's outcome is told by `outcome_log_law`.
        """
        return None

    @property
    def tested_scale(self) -> float | None:
        """The scale of the noise on what is held against a threshold, in votes, view "label"; None without one."""
        return None

    def offsets(
        self, predictions: Float64[ndarray, "queries classes"], total_weight: float
    ) -> Float64[ndarray, "queries classes"]:
        """What an interactive mechanism's second round takes off each count, in votes: public, from a student's
        probabilities.
        """
        raise NotImplementedError(f"{self.name} has no second round")

    def reinforced(
        self, labels: Int64[ndarray, " queries"], predictions: Float64[ndarray, "queries classes"]
    ) -> Int64[ndarray, " queries"]:
        """The student's own labels for queries that a second round did not answer; ABSTAIN elsewhere."""
        return np.full(len(labels), ABSTAIN, dtype=np.int64)

    @property
    def noise_scale(self) -> float:
        """The scale of the noise on each count, in votes, from its first noise parameter."""
        name, each = self._label_noise
        return each.noise_scale(getattr(self, name))

    def squared_move(self, classes: int) -> int | float:
        """Delta^2 of one vote of weight 1, of so many counts."""
        return ONE_VOTE

    @property
    @abstractmethod
    def label_sigma(self) -> float:
        """The standard deviation of the noise on each count, in votes."""

    @classmethod
    @abstractmethod
    def accountants(cls, *, view: View, on_lattice: bool, secret_coins: bool) -> tuple[str, ...]:
        """The accountants whose bounds are valid, the tightest first; empty if there is none.

        view: what is seen; on_lattice: whether noise is integer; secret_coins: whether votes enter by coins that nobody
        else sees.
        """

    def labels(
        self,
        counts: Float64[ndarray, "queries classes"],
        noise: Noise,
        *,
        view: View,
        predictions: Float64[ndarray, "queries classes"] | None = None,
        total_weight: float | None = None,
    ) -> Int64[ndarray, " queries"]:
        """What a study releases: `release`, which gets noisy counts and no noise where only those are charged."""
        if self._released_of_noisy():
            counts, noise = self.noisy(counts, noise, view=view), silent(noise)
        return self.release(counts, noise, view=view, predictions=predictions, total_weight=total_weight)

    def noisy(
        self, counts: Float64[ndarray, "queries classes"], noise: Noise, *, view: View
    ) -> Float64[ndarray, "queries classes"]:
        """The noisy counts whose argmax a plain mechanism releases, as they are seen under the view "histogram"."""
        raise NotImplementedError(f"{self.name} is not a plain noisy argmax")

    def release(
        self,
        counts: Float64[ndarray, "queries classes"],
        noise: Noise,
        *,
        view: View,
        predictions: Float64[ndarray, "queries classes"] | None = None,
        total_weight: float | None = None,
    ) -> Int64[ndarray, " queries"]:
        """One label or ABSTAIN per query; draws all its noise from `noise`.

        predictions: for an interactive mechanism's second round, the student's probabilities (public), with the
        nominal public total_weight in votes; None in all other cases.
        """
        return self.noisy(counts, noise, view=view).argmax(axis=1)

    @abstractmethod
    def noise_rdp(self, sensitivity: Sensitivity, orders: Float64[ndarray, " orders"], *, view: View) -> QueryCost:
        """Worst-case RDP of what the view shows; shapes [units, orders]."""

    def label_only_rdp(
        self, sensitivity: Sensitivity, orders: Float64[ndarray, " orders"], *, classes: int
    ) -> QueryCost:
        """Worst-case RDP of the label view, at most the bound of its noise; shapes [units, orders]. It is for the
        accountant "label_only", for a mechanism that proves it.
        """
        raise NotImplementedError(f"{self.name} proves no label-only bound")

    def label_pairs(self, sensitivity: Sensitivity, *, classes: int) -> LabelPairs:
        """What one query reveals in the label view of a unit's single vote, at one price, answered or not; for the
        accountant "exact_composition", for a mechanism that proves it.
        """
        raise NotImplementedError(f"{self.name} has no single price per query that exact composition could count")

    @classmethod
    def holding(cls, *, view: View, on_lattice: bool, secret_coins: bool) -> tuple[str, ...]:
        """Those of `accountants` whose bounds are proved for what it releases, the tightest first."""
        named = cls.accountants(view=view, on_lattice=on_lattice, secret_coins=secret_coins)
        charged = cls.charged_view(view)
        seen = cls.accountants(view=charged, on_lattice=on_lattice, secret_coins=secret_coins)
        return tuple(name for name in named if cls._proves(name, in_view=name in seen))

    @classmethod
    def charged_view(cls, view: View) -> View:
        """The view whose noise is charged: "histogram" where `labels` hands a release nothing but noisy counts."""
        return "histogram" if cls._released_of_noisy() else view

    @classmethod
    def _proves(cls, accountant: str, *, in_view: bool) -> bool:
        """Whether an accountant's bound was stated for what is released. in_view: whether for the charged view, too."""
        if accountant in _PROOFS:
            bound, others = _PROOFS[accountant]
            return _unchanged_since(cls, bound, (*_RELEASE, *others))
        bound = "gaussian_dp" if accountant == "gaussian_dp" else "noise_rdp"
        changing = ("labels", "noisy", "noise_rdp") if cls._released_of_noisy() else (*_RELEASE, "noise_rdp")
        return in_view and _unchanged_since(cls, bound, changing)

    @classmethod
    def _released_of_noisy(cls) -> bool:
        """Whether `release` is newer than the cost of the noise, so that it may see noisy counts alone."""
        changed = not _unchanged_since(cls, "noise_rdp", ("release", "release_where"))
        return changed and cls.noisy is not Mechanism.noisy

    @classmethod
    def decides_on_one_histogram(cls) -> bool:
        """Whether `one_histogram` was said of what it releases: no subclass of the class that says it changes that.

        Two servers compute only such an outcome: whoever shifts the counts in it still sees no more than the noisy
        histogram would show.
        """
        return cls.one_histogram and not cls.interactive and _unchanged_since(cls, "one_histogram", _RELEASE)

    def gaussian_dp(self, sensitivity: Sensitivity, *, view: View) -> QueryCost:
        """mu squared of Gaussian differential privacy (Dong, Roth, Su 2022), shapes [units, 1]; for the accountant
        "gaussian_dp", for a mechanism that proves it. A mixture over secret coins is not Gaussian DP.
        """
        raise NotImplementedError(f"{self.name} proves no Gaussian differential privacy")

    @abstractmethod
    def noise_distance(self, *, classes: int, total_weight: float) -> float:
        """Total variation distance per query between the noise that is drawn and ideal noise, label view."""

    @abstractmethod
    def outcome_log_law(
        self,
        counts: Float64[ndarray, "*pairs levels"],
        multiplicity: Int64[ndarray, " levels"],
        *,
        offsets: Float64[ndarray, "*pairs levels"] | None = None,
    ) -> Float64[ndarray, "*pairs outcomes"]:
        """The exact law of one query's outcome, view "label": ln P[a class of this level is released], and in a last
        column, of a mechanism that may give no answer, ln P[no answer].

        multiplicity: classes that have each count; offsets: for the second round of an interactive mechanism, what is
        taken off each count before the test, votes. An audit uses it to find the votes that reveal most, to compute
        exact epsilons, and to hold what it saw against.
        """

    def noise_log_density(self, z: Float64[ndarray, "..."]) -> Float64[ndarray, "..."]:
        """ln of the density of the noise at z noise scales, up to a constant; for an audit of the view "histogram"."""
        raise NotImplementedError(f"{self.name} has no audit of noisy histograms")

    @abstractmethod
    def released_words(self, *, total_weight: float) -> str:
        """How a label is released, in one sentence without a full stop; total_weight: of all votes, nominal."""

    @property
    def noise_words(self) -> str:
        """The noise on each count in a few words: `sigma 4.8 votes`, `gamma 0.295 per vote`."""
        name, each = self._label_noise
        return f"{name} {getattr(self, name):.4g} {each.unit}"

    @property
    def more_noise_words(self) -> str:
        """What to change for more noise: "a larger sigma", or "a smaller gamma", an inverse scale."""
        name, each = self._label_noise
        return f"a {'smaller' if each.unit == 'per vote' else 'larger'} {name}"

    @property
    def _label_noise(self) -> tuple[str, Parameter]:
        return next((name, each) for name, each in self.parameters().items() if each.role == "noise")


# What decides a release; and the bounds that are proved for it alone, with what they are never above.
_RELEASE: Final = ("labels", "release", "release_where", "noisy", "offsets", "_confident")
_PROOFS: Final = {
    "label_only": ("label_only_rdp", ("noise_rdp",)),
    "exact_composition": ("label_pairs", ("noise_rdp", "label_only_rdp")),
}


def _unchanged_since(kind: type[Mechanism], said: str, changing: tuple[str, ...]) -> bool:
    """Whether each of `changing` is for `kind` what it is for the class that defines `said`: also where a second parent
    defines it."""
    states = next(each for each in kind.__mro__ if said in vars(each))
    return all(_defined(kind, name) is _defined(states, name) for name in changing)


def _defined(kind: type[Mechanism], name: str) -> object:
    """What a class or a parent of it defines under a name, as it is written there; None for nothing."""
    return next((vars(each)[name] for each in kind.__mro__ if name in vars(each)), None)


def _check_given(kind: type[Mechanism], name: str, value: Number | None, view: View) -> None:
    if value is None:
        meaning = kind.parameters()[name].meaning
        raise InvalidInput(f"{name} is missing; {kind.name} needs it under the view {view!r}: {meaning}")
