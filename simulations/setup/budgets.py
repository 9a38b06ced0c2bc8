"""Per-party budgets from the command line: one value, shares, a distribution, or a CSV file."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float64, Int64
from numpy import ndarray

from protocols.bounds.rdp import check_budget
from protocols.crypto.randomness import simulation_rng
from protocols.errors import DataCorrupt, DataUnavailable, InvalidInput
from protocols.reading import read_text

FORMS = (
    "1.0 | 1:0.34,2:0.43,3:0.23 (epsilon:share) | lognormal:MEDIAN,SIGMA | uniform:LOW,HIGH | "
    "FILE.csv with columns party, epsilon, delta"
)
# Epsilons drawn from a distribution are rounded down to multiples of this, so that a budget is exactly as printed.
_DECIMALS = 4
_FILE_BYTES = 2**24


@dataclass(frozen=True, eq=False)
class Budgets:
    """One (epsilon, delta) per party, and the parties' names."""

    names: tuple[str, ...]
    epsilon: Float64[ndarray, " parties"]
    delta: Float64[ndarray, " parties"]


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


def largest_remainder(shares: Float64[ndarray, " groups"], total: int) -> Int64[ndarray, " groups"]:
    """`total` items distributed over groups by share: integers that add up to it, each off by less than one."""
    exact = shares * total
    sizes = np.floor(exact).astype(np.int64)
    extra = np.argsort(-(exact - sizes), kind="stable")[: total - sizes.sum()]
    sizes[extra] += 1
    return sizes


def _drawn(text: str, parties: int, rng: np.random.Generator) -> Float64[ndarray, " parties"]:
    kind, _, arguments = text.partition(":")
    values = [_number(part, text) for part in arguments.split(",")]
    if len(values) != 2 or not np.isfinite(values).all():
        raise InvalidInput(f"budgets are {text!r}; allowed: {kind} with two finite numbers ({FORMS})")
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
    sizes = largest_remainder(shares, parties)
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
        raise InvalidInput(f"{text!r} in budgets {whole!r} is not a number; allowed: {FORMS}") from None
