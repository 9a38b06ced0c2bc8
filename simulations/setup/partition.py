"""Who holds which private record: splitting a data set over parties, and a party's records over its teachers.

Patients are never split: if a data set names patients, whole patients are assigned, with the class and site of their
first record. Kinds of skew are those of Li et al. 2022, "Federated Learning on Non-IID Data Silos", section 3.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, get_args

import numpy as np
from jaxtyping import Float32, Float64, Int64
from numpy import ndarray

from protocols.errors import InvalidInput
from simulations.datasets.dataset import Dataset, largest_remainder


def deal_classes(
    labels: Int64[ndarray, " units"], each: int, parties: int, rng: np.random.Generator
) -> Int64[ndarray, " units"]:
    """Units of at most `each` classes for each party; a class is divided evenly among the parties that drew it.

    A party draws successive classes of a random order, so classes have equally many parties, up to one. A party may be
    empty if there are more parties than units of its classes. Raises InvalidInput for more classes than there are, and
    for fewer parties than hold all classes.
    """
    present, label = np.unique(labels, return_inverse=True)
    if each > len(present):
        raise InvalidInput(f"partition classes has the parameter {each}; allowed: 1 to {len(present)}, the classes")
    if parties * each < len(present):
        raise InvalidInput(
            f"parties is {parties}, of {each} classes each; allowed: at least {-(-len(present) // each)}, "
            f"so that each of {len(present)} classes has a party"
        )
    drawn = rng.permutation(len(present))[np.arange(parties * each) % len(present)]
    holders = rng.permutation(parties).repeat(each)
    party = np.empty(len(labels), np.int64)
    for number in range(len(present)):
        units = rng.permutation(np.flatnonzero(label == number))
        party[units] = np.resize(rng.permutation(holders[drawn == number]), len(units))
    return party


def deal_in_order(key: Float64[ndarray, " units"], parties: int) -> Int64[ndarray, " units"]:
    """Successive ranges of the key, of equal size up to one unit, to successive parties; ties by position."""
    party = np.empty(len(key), np.int64)
    party[np.argsort(key, kind="stable")] = np.arange(len(key)) * parties // len(key)
    return party


def shifted_key(
    inputs: Float32[ndarray, "units ..."], strength: float, rng: np.random.Generator
) -> Float64[ndarray, " units"]:
    """strength x a random projection of the features, standardised, + N(0, 1): the larger, the more do the features of
    parties differ; 0 is a random order."""
    flat = inputs.reshape(len(inputs), -1)
    projected = flat @ rng.standard_normal(flat.shape[1])
    spread = projected.std()
    standard = (projected - projected.mean()) / spread if spread > 0 else np.zeros(len(flat))
    return np.asarray(strength * standard + rng.standard_normal(len(flat)))


def column_key(dataset: Dataset, column: str, units: Int64[ndarray, " units"]) -> Float64[ndarray, " units"]:
    """The values of a numeric column, as features. Raises InvalidInput for any other column."""
    start = 0
    for feature in dataset.columns:
        if feature.column == column and feature.kind == "numeric":
            return dataset.private_inputs[units, start].astype(np.float64)
        start += feature.width
    numeric = ", ".join(feature.column for feature in dataset.columns if feature.kind == "numeric")
    raise InvalidInput(
        f"partition by-column has the column {column!r}; allowed with {dataset.name}: {numeric or 'no column'}"
    )


def time_key(dataset: Dataset, column: str, unit: Int64[ndarray, " records"]) -> Float64[ndarray, " units"]:
    """When each unit was first seen: the earliest of its records. unit: of each private record. Raises InvalidInput for
    data without a column of time.
    """
    if dataset.private_times is None:
        raise InvalidInput(f"partition by-time has the column {column!r}; allowed: with a table of your own")
    first = np.full(int(unit.max()) + 1, np.inf)
    np.minimum.at(first, unit, dataset.private_times)
    return first


_ALLOWED = (
    "iid, dirichlet:A (A from 0.001 to 1000000), classes:K (K from 1), size-skew:S (S from 0 to 10), "
    "feature-skew:S (S from 0 to 1000), by-site, by-column:NAME, by-time:NAME"
)
# How the one parameter of a partition is read, by the name of its type.
_READ: dict[Any, Callable[[str], Any]] = {"float": float, "int": int, "str": str}  # Any: of the field's type
_SCALING_ROUNDS = 200
_FLOOR = 1e-9


@dataclass(frozen=True)
class Iid:
    """Patients (or records) in random order, dealt in turn."""

    name: ClassVar[str] = "iid"


@dataclass(frozen=True)
class LabelSkew:
    """Class proportions of each party drawn from a Dirichlet distribution; concentration: from 0.001 to 1e6.

    Raises InvalidInput.
    """

    name: ClassVar[str] = "dirichlet"
    concentration: float

    def __post_init__(self) -> None:
        _check(self.name, self.concentration, 1e-3, 1e6)


@dataclass(frozen=True)
class SizeSkew:
    """Sizes of parties log-normal; log_deviation: the standard deviation of their logarithm, from 0 to 10.

    Raises InvalidInput.
    """

    name: ClassVar[str] = "size-skew"
    log_deviation: float

    def __post_init__(self) -> None:
        _check(self.name, self.log_deviation, 0.0, 10.0)


@dataclass(frozen=True)
class ClassSkew:
    """Each party has units of a few classes; classes: at least 1. Raises InvalidInput."""

    name: ClassVar[str] = "classes"
    classes: int

    def __post_init__(self) -> None:
        _check(self.name, self.classes, 1, math.inf)


@dataclass(frozen=True)
class FeatureSkew:
    """Parties differ in a random direction of their features; strength: from 0 to 1000. Raises InvalidInput."""

    name: ClassVar[str] = "feature-skew"
    strength: float

    def __post_init__(self) -> None:
        _check(self.name, self.strength, 0.0, 1000.0)


@dataclass(frozen=True)
class ByColumn:
    """Successive ranges of a numeric feature."""

    name: ClassVar[str] = "by-column"
    column: str


@dataclass(frozen=True)
class ByTime:
    """Successive periods of a column of time, which need not be a feature."""

    name: ClassVar[str] = "by-time"
    column: str


@dataclass(frozen=True)
class BySite:
    """A party is a site, or some sites together."""

    name: ClassVar[str] = "by-site"


# A way to split private records over parties.
Partition = Iid | LabelSkew | ClassSkew | SizeSkew | FeatureSkew | BySite | ByColumn | ByTime


def parse_partition(text: str) -> Partition:
    """The partition that a command line names, see partition. Raises InvalidInput."""
    name, colon, parameter = text.partition(":")
    kind = next((each for each in get_args(Partition) if each.name == name), None)
    wanted = [] if kind is None else [_READ[each.type] for each in fields(kind)]
    if kind is not None and bool(wanted) == bool(parameter) == bool(colon):
        try:
            values = [read(parameter) for read in wanted]
        except ValueError:
            pass
        else:
            made: Partition = kind(*values)
            return made
    raise InvalidInput(f"partition is {text!r}; allowed: {_ALLOWED}")


def _check(name: str, parameter: float, low: float, high: float) -> None:
    if not low <= parameter <= high:
        raise InvalidInput(f"partition {name} has the parameter {parameter}; allowed: {_ALLOWED}")


def partition(
    dataset: Dataset, *, parties: int | None, scheme: Partition, seed: int
) -> list[Int64[ndarray, " records"]]:
    """The private record indices of each party, ascending: disjoint, none empty, all records used.

    - `iid`: patients (or records) in random order, dealt in turn.
    - `dirichlet` A: label skew. A party's class proportions are drawn from Dirichlet(A * class shares) (Hsu,
      Qi, Brown 2019, "Measuring the Effects of Non-Identical Data Distribution", section 3), then scaled so
      that parties are of nearly equal size and every record is used (iterative proportional fitting).
    - `size-skew` S: sizes in proportion to exp(S * N(0, 1)), log-normal as the synthetic data of Li et al. 2020,
      "Federated Optimization in Heterogeneous Networks" (FedProx); S = 0 means equal sizes.
    - `classes` K, `feature-skew` S, `by-column` NAME, `by-time` NAME: see ClassSkew, FeatureSkew, ByColumn, ByTime.
    - `by-site`: a party is a site, or, when there are fewer parties, whole sites together, the largest first to the
      smallest party. `parties` None means one party per site; the other schemes need a number.

    Raises InvalidInput when there are more parties than patients (or records, or sites), or no sites.
    """
    units, unit = _units(len(dataset.private_labels), dataset.private_patients)
    rng = np.random.default_rng([seed, *f"partition {scheme.name}".encode()])
    if isinstance(scheme, BySite):
        party, parties = _by_site(dataset, units, parties, rng)
    else:
        if parties is None:
            raise InvalidInput(f"partition {scheme.name} was given no number of parties; allowed: 1 to {len(units)}")
        what = "records" if dataset.private_patients is None else "patients"
        if not 1 <= parties <= len(units):
            raise InvalidInput(
                f"parties is {parties}; allowed: 1 to {len(units)}, the private {what} of {dataset.name}, "
                f"so that no party is empty"
            )
        if isinstance(scheme, ByColumn):
            party = deal_in_order(column_key(dataset, scheme.column, units), parties)
        elif isinstance(scheme, ByTime):
            party = deal_in_order(time_key(dataset, scheme.column, unit), parties)
        elif isinstance(scheme, FeatureSkew):
            party = deal_in_order(shifted_key(dataset.private_inputs[units], scheme.strength, rng), parties)
        elif isinstance(scheme, ClassSkew):
            dealt = deal_classes(dataset.strata[0][units], scheme.classes, parties, rng)
            party = _fill_empty(dealt, parties)
        else:
            labels, kinds = dataset.strata
            party = _deal(scheme, labels[units], kinds, parties, rng)
    return _groups(party[unit], parties)


def teacher_shards(
    indices: Int64[ndarray, " records"],
    patients: Int64[ndarray, " records"] | None,
    teachers: int,
    seed: int | Sequence[int],
) -> list[Int64[ndarray, " shard"]]:
    """One party's records in `teachers` disjoint shards, each ascending and none empty; patients are kept whole.

    `patients[i]` is the patient of record indices[i]; None where each record is a patient of its own.
    Raises InvalidInput when there are more teachers than patients (or records).
    """
    units, unit = _units(len(indices), patients)
    if not 1 <= teachers <= len(units):
        raise InvalidInput(
            f"teachers per party is {teachers}; allowed: 1 to {len(units)}, the "
            f"{'records' if patients is None else 'patients'} of a party, so that no shard is empty"
        )
    if teachers == 1:
        return [np.sort(indices)]
    rng = np.random.default_rng(seed)
    shard = np.empty(len(units), dtype=np.int64)
    shard[rng.permutation(len(units))] = np.arange(len(units)) % teachers
    return [np.sort(indices[places]) for places in _groups(shard[unit], teachers)]


def _units(
    count: int, patients: Int64[ndarray, " records"] | None
) -> tuple[Int64[ndarray, " units"], Int64[ndarray, " records"]]:
    """The units that may not be split: the first record of each, and each record's unit."""
    if patients is None:
        return np.arange(count), np.arange(count)
    _, first, unit = np.unique(patients, return_index=True, return_inverse=True)
    return first, unit


def _groups(group: Int64[ndarray, " records"], groups: int) -> list[Int64[ndarray, " members"]]:
    """The positions of each group's members, ascending."""
    order = np.argsort(group, kind="stable")
    return np.split(order, np.cumsum(np.bincount(group, minlength=groups))[:-1])


def _deal(
    scheme: Iid | LabelSkew | SizeSkew,
    labels: Int64[ndarray, " units"],
    classes: int,
    parties: int,
    rng: np.random.Generator,
) -> Int64[ndarray, " units"]:
    """Each unit's party; no party is empty (parties <= units)."""
    party = np.empty(len(labels), dtype=np.int64)
    if isinstance(scheme, Iid):
        party[rng.permutation(len(labels))] = np.arange(len(labels)) % parties
        return party
    if isinstance(scheme, SizeSkew):
        log_shares = scheme.log_deviation * rng.standard_normal(parties)
        shares = np.exp(log_shares - log_shares.max())
        exact = 1 + (len(labels) - parties) * shares / shares.sum()
        party[rng.permutation(len(labels))] = np.repeat(np.arange(parties), largest_remainder(exact, len(labels)))
        return party
    counts = np.bincount(labels, minlength=classes)
    wanted = _label_skew(scheme.concentration, counts, parties, rng)
    shuffled = rng.permutation(len(labels))
    by_class = shuffled[np.argsort(labels[shuffled], kind="stable")]
    # Along each class, party p takes the places between the cumulative sums before and after it.
    ends = np.rint(np.cumsum(wanted, axis=0)).astype(np.int64)
    ends[-1] = counts
    taken = np.diff(ends, axis=0, prepend=0)
    party[by_class] = np.tile(np.arange(parties), classes).repeat(taken.T.reshape(-1))
    return _fill_empty(party, parties)


def _label_skew(
    concentration: float, counts: Int64[ndarray, " classes"], parties: int, rng: np.random.Generator
) -> Float64[ndarray, "parties classes"]:
    """Expected units per party and class: Dirichlet rows, scaled in turn to equal party sizes and the class
    counts.

    The last scaling is that to the class counts, which therefore hold exactly.
    """
    total = counts.sum()
    present = counts > 0
    # In logarithms, as a Gamma draw of a tiny shape underflows: if G ~ Gamma(shape + 1) and U is uniform,
    # G * U ** (1 / shape) ~ Gamma(shape). The floor keeps every class placeable with every party.
    shape = concentration * counts[present] / total
    size = (parties, int(present.sum()))
    log_draws = np.log(rng.standard_gamma(shape + 1, size=size)) + np.log1p(-rng.random(size)) / shape
    table = np.maximum(np.exp(log_draws - log_draws.max(axis=1, keepdims=True)), _FLOOR)
    for _ in range(_SCALING_ROUNDS):
        table *= (total / parties) / table.sum(axis=1, keepdims=True)
        table *= counts[present] / table.sum(axis=0)
    wanted = np.zeros((parties, len(counts)))
    wanted[:, present] = table
    return wanted


def _fill_empty(party: Int64[ndarray, " units"], parties: int) -> Int64[ndarray, " units"]:
    """Gives every empty party one unit of the largest parties."""
    counts = np.bincount(party, minlength=parties)
    empty = np.flatnonzero(counts == 0)
    if len(empty) == 0:
        return party
    order = np.argsort(party, kind="stable")
    rank = np.arange(len(party)) - np.repeat(np.cumsum(counts) - counts, counts)
    # A unit's rank in its party: the highest ranks are in the largest parties, and rank 0 is never taken.
    spare = order[np.argsort(-rank, kind="stable")[: len(empty)]]
    filled = party.copy()
    filled[spare] = empty
    return filled


def _by_site(
    dataset: Dataset, units: Int64[ndarray, " units"], parties: int | None, rng: np.random.Generator
) -> tuple[Int64[ndarray, " units"], int]:
    if dataset.private_sites is None:
        raise InvalidInput(f"{dataset.name} has no sites; allowed with it: every other partition")
    present, site, sizes = np.unique(dataset.private_sites[units], return_inverse=True, return_counts=True)
    if parties is None or parties == len(present):
        return site, len(present)
    if not 1 <= parties <= len(present):
        raise InvalidInput(
            f"parties is {parties}; allowed: 1 to {len(present)}, the sites of {dataset.name} with private records"
        )
    holder = np.empty(len(present), dtype=np.int64)
    loads = [(0, party) for party in range(parties)]
    shuffled = rng.permutation(len(present))
    for number in shuffled[np.argsort(-sizes[shuffled], kind="stable")]:  # sites, not records
        load, smallest = heapq.heappop(loads)
        holder[number] = smallest
        heapq.heappush(loads, (load + int(sizes[number]), smallest))
    return holder[site], parties
