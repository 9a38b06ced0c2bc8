"""Per-party budgets from the command line: one value, shares, a distribution, or a CSV file; and budgets of records.

Privacy groups lie inside parties. With upsampling, a record is learned by u teachers (Individualized PATE: Boenisch et
al. 2023, section 4): records with larger budgets are duplicated into more teachers, so a record moves u votes, which is
its sensitivity. The duplicates must be assigned to teachers across all data, which nobody holds in a federation:
simulation only.
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float64, Int64
from numpy import ndarray

from protocols.bounds.rdp import check_budget
from protocols.budgets.planned import Budgets
from protocols.crypto.randomness import simulation_rng
from protocols.errors import DataCorrupt, DataUnavailable, InvalidInput
from protocols.reading import read_text
from protocols.study.teacher_study import Pooled
from simulations.datasets.dataset import largest_remainder

_FORMS = (
    "1.0 | 1:0.34,2:0.43,3:0.23 (epsilon:share) | lognormal:MEDIAN,SIGMA | uniform:LOW,HIGH | "
    "FILE.csv with columns party, epsilon, delta"
)
# Epsilons drawn from a distribution are rounded down to multiples of this, so that a budget is exactly as printed.
_DECIMALS = 4
_FILE_BYTES = 2**24


def parse_budgets(text: str, *, parties: int, delta: float, seed: int, names: tuple[str, ...] | None = None) -> Budgets:
    """The budgets that `text` describes (FORMS), for `parties` parties.

    Shares become numbers of parties by largest remainder and are spread over the parties in an order drawn from
    the seed. names: of the parties, if they are real sites; a file must then name exactly these, in any order. Raises
    InvalidInput naming the part that cannot be read, or a value out of range.
    """
    if parties < 1:
        raise InvalidInput(f"parties is {parties}; allowed: at least 1")
    text = text.strip()
    called = names or tuple(f"party-{i:0{len(str(parties - 1))}d}" for i in range(parties))
    if text.lower().endswith(".csv"):
        return _from_csv(Path(text), parties=parties, wanted=names)
    rng = simulation_rng(seed, "budgets")
    if text.startswith(("lognormal:", "uniform:")):
        epsilon = _drawn(text, parties, rng)
    elif ":" in text:
        epsilon = rng.permutation(_by_share(text, parties))
    else:
        epsilon = np.full(parties, _number(text, text))
    budgets = Budgets(called, epsilon, np.full(parties, delta))
    check_budget(budgets.epsilon, budgets.delta)
    return budgets


def record_groups(text: str) -> tuple[Float64[ndarray, " groups"], Float64[ndarray, " groups"]]:
    """Budgets of records: the distinct epsilons of "1.0" or "1:0.34,2:0.43,3:0.23", ascending, and their shares.

    Raises InvalidInput for the other forms, which give a budget to a party.
    """
    text = text.strip()
    if text.lower().endswith(".csv") or text.startswith(("lognormal:", "uniform:")):
        raise InvalidInput(
            f"budgets are {text!r}; allowed for budgets of records: 1.0, or epsilon:share as 1:0.5,2:0.5"
        )
    if ":" not in text:
        epsilon, shares = np.array([_number(text, text)]), np.ones(1)
    else:
        epsilon, shares = _shares(text)
    check_budget(epsilon, np.full(len(epsilon), 0.5))
    if len(np.unique(epsilon)) < len(epsilon):
        raise InvalidInput(f"budgets are {text!r}; allowed for budgets of records: each epsilon once")
    order = np.argsort(epsilon)
    return epsilon[order], shares[order]


def _drawn(text: str, parties: int, rng: np.random.Generator) -> Float64[ndarray, " parties"]:
    kind, _, arguments = text.partition(":")
    values = [_number(part, text) for part in arguments.split(",")]
    if len(values) != 2 or not np.isfinite(values).all():
        raise InvalidInput(f"budgets are {text!r}; allowed: {kind} with two finite numbers ({_FORMS})")
    first, second = values
    if kind == "uniform":
        if not 0 < first < second:
            raise InvalidInput(f"budgets are {text!r}; allowed: uniform:LOW,HIGH with 0 < LOW < HIGH")
        drawn = rng.uniform(first, second, parties)
    else:
        if not (first > 0 and second > 0):
            raise InvalidInput(f"budgets are {text!r}; allowed: lognormal:MEDIAN,SIGMA, both > 0")
        drawn = first * np.exp(second * rng.standard_normal(parties))
    scale = 10.0**_DECIMALS
    return np.maximum(np.floor(drawn * scale), 1.0) / scale


def _by_share(text: str, parties: int) -> Float64[ndarray, " parties"]:
    """The epsilon of each party, in the order of the list."""
    epsilon, shares = _shares(text)
    sizes = largest_remainder(shares * parties, parties)
    if (sizes == 0).any():
        raise InvalidInput(f"shares of {text!r} leave a budget without any of {parties} parties; allowed: at least one")
    return np.repeat(epsilon, sizes)


def _shares(text: str) -> tuple[Float64[ndarray, " groups"], Float64[ndarray, " groups"]]:
    """The epsilons and shares of "epsilon:share,..."; shares must add up to 1."""
    pairs = [part.partition(":") for part in text.split(",")]
    epsilon = np.array([_number(value, text) for value, _, _ in pairs])
    shares = np.array([_number(share, text) for _, _, share in pairs])
    if not (shares > 0).all() or not abs(shares.sum() - 1) <= 1e-6:
        raise InvalidInput(f"shares of {text!r} are {shares.tolist()}; allowed: each > 0, adding up to 1")
    return epsilon, shares


def _from_csv(path: Path, *, parties: int, wanted: tuple[str, ...] | None) -> Budgets:
    try:
        text = read_text(path, most=_FILE_BYTES).removeprefix("\ufeff")
        rows = list(csv.DictReader(io.StringIO(text, newline="")))
    except DataUnavailable:
        raise InvalidInput(f"budgets file {path} does not exist") from None
    except (DataCorrupt, ValueError, csv.Error) as error:
        raise InvalidInput(f"budgets file {path} is not CSV: {error}") from None
    if not rows or not {"party", "epsilon", "delta"} <= set(rows[0]):
        raise InvalidInput(f"budgets file {path}: allowed: rows with the columns party, epsilon, delta")
    if len(rows) != parties:
        raise InvalidInput(f"budgets file {path} has {len(rows)} parties; --parties is {parties}")
    names = tuple(row["party"] for row in rows)
    if not all(names) or len(set(names)) < len(names):
        raise InvalidInput(f"budgets file {path} names a party twice or not at all; allowed: once")
    if wanted is not None:
        if set(names) != set(wanted):
            missing = sorted(set(wanted) - set(names))
            raise InvalidInput(f"budgets file {path} does not name {missing[0]!r}; allowed: {', '.join(wanted)}")
        rows.sort(key=lambda row: wanted.index(row["party"]))
        names = wanted
    budgets = Budgets(
        names,
        np.array([_number(row["epsilon"], f"{path}, party {row['party']}") for row in rows]),
        np.array([_number(row["delta"], f"{path}, party {row['party']}") for row in rows]),
    )
    check_budget(budgets.epsilon, budgets.delta)
    return budgets


def _number(text: str, whole: str) -> float:
    try:
        return float(text)
    except (ValueError, TypeError):
        raise InvalidInput(f"{text!r} in budgets {whole!r} is not a number; allowed: {_FORMS}") from None


# The default for how many teachers may learn one record.
_LARGEST = 12


def duplicates(epsilon: Float64[ndarray, " groups"]) -> Int64[ndarray, " groups"]:
    """How many teachers learn each record of each group: whole numbers in the ratios of the budgets.

    The smallest whole numbers up to 12 whose ratios come closest to the budgets' (least largest relative
    error; at least 1). Raises InvalidInput for a budget out of range, or budgets further apart.
    """
    check_budget(epsilon, np.full(len(epsilon), 0.5))
    ratio = epsilon / epsilon.min()
    if ratio.max() > _LARGEST:
        raise InvalidInput(
            f"budgets span a ratio of {ratio.max():g}; allowed: at most {_LARGEST}, the teachers that learn one record"
        )
    bases = np.arange(1, int(_LARGEST / ratio.max()) + 1)
    tried = np.rint(bases[:, None] * ratio)
    error = np.abs(tried / (bases[:, None] * ratio) - 1).max(axis=1)
    # Rounded, so that 1e-16 does not decide for a large multiple.
    return tried[int(np.round(error, 9).argmin())].astype(np.int64)


def relative_size(copies: Int64[ndarray, " groups"], shares: Float64[ndarray, " groups"]) -> float:
    """The factor by which upsampling enlarges the data, and so teachers, threshold and noise. shares: of the
    records.
    """
    return float((copies * shares).sum() / shares.sum())


def deal_budgets(
    copies: Int64[ndarray, " records"], *, teachers: int, rng: np.random.Generator
) -> list[Int64[ndarray, " shard"]]:
    """Shards of equal size (within one), record r in copies[r] different ones.

    The copies of a record are consecutive and dealt in turn, so no teacher gets two. Raises InvalidInput when
    a record has more copies than there are teachers, or a teacher would get none.
    """
    if copies.min() < 1 or copies.max() > teachers:
        raise InvalidInput(f"copies span [{copies.min()}, {copies.max()}]; allowed: from 1 to the {teachers} teachers")
    if copies.sum() < teachers:
        raise InvalidInput(f"{copies.sum()} copies of records for {teachers} teachers; allowed: at least one each")
    order = rng.permutation(len(copies))
    dealt = np.repeat(order, copies[order])
    return [np.sort(dealt[teacher::teachers]) for teacher in range(teachers)]


def group_budgets(text: str, *, parties: int, delta: float, names: tuple[str, ...] | None) -> Budgets:
    """One seat PARTY/EPSILON for every party and every distinct budget of its records, party by party."""
    epsilon, _ = record_groups(text)
    called = parse_budgets("1.0", parties=parties, delta=delta, seed=0, names=names).names
    seats = tuple(f"{party}/{value:g}" for party in called for value in epsilon)
    return Budgets(seats, np.tile(epsilon, parties), np.full(len(seats), delta))


def split_by_group(
    holdings: list[Int64[ndarray, " records"]],
    patients: Int64[ndarray, " private"] | None,
    text: str,
    *,
    teachers: int,
    seed: int,
) -> list[Int64[ndarray, " records"]]:
    """Every party's records split by their budgets: one array per seat, in the order of `group_budgets`.

    Who has which budget is drawn from the seed, by the shares in `text`, party by party (all records of a patient
    have the same one). Raises InvalidInput for a party with fewer records or patients than its groups need.
    """
    _, shares = record_groups(text)
    seats = []
    for party, records in enumerate(holdings):
        keys = records if patients is None else patients[records]
        units = np.unique(keys)
        sizes = largest_remainder(shares * len(units), len(units))
        if (sizes < teachers).any():
            raise InvalidInput(
                f"party {party} has {len(units)} records or patients for {len(shares)} privacy groups of {teachers} "
                f"teachers; allowed: at least {teachers} in each group"
            )
        shuffled = simulation_rng(seed, "groups", party).permutation(units)
        for chosen in np.split(shuffled, np.cumsum(sizes)[:-1]):
            seats.append(records[np.isin(keys, chosen)])
    return seats


@dataclass(frozen=True, eq=False)
class Upsampling:
    """An ensemble on pooled data: groups of records by budget, how many teachers learn a record of each, and the number
    of teachers.

    scale: the number of teachers divided by that before upsampling.
    """

    epsilon: Float64[ndarray, " groups"]
    shares: Float64[ndarray, " groups"]
    copies: Int64[ndarray, " groups"]
    pooled_teachers: int
    scale: float

    @property
    def pooled(self) -> Pooled:
        """What a study knows of it."""
        return Pooled(copies=self.copies.astype(float), teachers=self.pooled_teachers, scale=self.scale)

    def budgets(self, delta: float) -> Budgets:
        """One seat per group of records."""
        names = tuple(f"records-at-{value:g}" for value in self.epsilon)
        return Budgets(names, self.epsilon, np.full(len(names), delta))

    def groups(self, records: int, *, seed: int) -> Int64[ndarray, " records"]:
        """The group of each record, drawn from the seed by the shares."""
        sizes = largest_remainder(self.shares * records, records)
        if (sizes == 0).any():
            raise InvalidInput(f"{records} records leave a budget without any; allowed: at least one per budget")
        return simulation_rng(seed, "groups").permutation(np.repeat(np.arange(len(sizes)), sizes))

    def shards(self, records: int, *, seed: int) -> list[Int64[ndarray, " shard"]]:
        """The records of each teacher: each record in as many shards as its group has copies."""
        copies = self.copies[self.groups(records, seed=seed)]
        return deal_budgets(copies, teachers=self.pooled_teachers, rng=simulation_rng(seed, "deal"))


def upsampling(text: str, *, teachers: int) -> Upsampling:
    """The ensemble for budgets of records and `teachers` before upsampling (Boenisch et al. 2023, section 4)."""
    epsilon, shares = record_groups(text)
    copies = duplicates(epsilon)
    scale = relative_size(copies, shares)
    pooled = max(int(copies.max()), round(teachers * scale))
    return Upsampling(epsilon, shares, copies, pooled, pooled / teachers)
