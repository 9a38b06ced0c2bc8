"""Worst-case cost of releasing only a label or only a threshold bit (the label view).

The bounds hold for every histogram: they are data-independent and may be charged to a budget and published.
They are strictly below the Gaussian mechanism's, because an observer of the label does not see the noisy
histogram. They must not be used for an observer who sees it (view = histogram). Adjacency is replace-one: one
unit of total vote weight s moves its votes, its soft votes and its abstentions in any way. Derivation, error
bounds and limits: docs/explanation/label-only-bound.md.

The table of suprema in which they interpolate is computed by

    python -m protocols.bounds.label_only     (about eight minutes on one core)

which writes label_only_table.npz beside this file. At a fixed order a supremum is convex in the shift and zero at
zero, so the chord between two nodes is an upper bound (docs/explanation/label-only-bound.md, section 7).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64
from numpy import ndarray

from protocols.array_files import read_arrays
from protocols.bounds.label_supremum import bit_supremum, label_supremum
from protocols.errors import DataCorrupt, DataUnavailable, InvalidInput

TABLE_PATH = Path(__file__).with_name("label_only_table.npz")
TOLERANCE = 5e-5


def _fixed_orders() -> Float64[ndarray, " orders"]:
    """1.05 to 1024: steps of 6 % in order - 1 between 2 and 513, of about 15 % outside.

    The best tabled order affords at most 0.09 % fewer answers than the best real order between 2 and 513: with
    R = a c the answers (epsilon - l/(a-1))/a fall by x^2 when a - 1 is off by a factor e^x, and |x| <= 0.03.
    """
    below = np.geomspace(0.05, 1.0, 21)[:-1]
    middle = np.geomspace(1.0, 512.0, 108)
    above = np.geomspace(512.0, 1023.0, 6)[1:]
    # Rounded, so that the grid is the same on every platform.
    return 1.0 + np.round(np.concatenate([below, middle, above]), 4)


ORDERS = _fixed_orders()
# From 1e-7, below which the Gaussian bound is returned (one vote under noise of ten million), in steps of 3 % to 1e-4
# and of 2.5 % from there. Rounded, so that the grid is the same on every platform.
SHIFTS: Float64[ndarray, " shifts"] = np.concatenate(
    [np.round(np.geomspace(1e-7, 1e-4, 236), 12)[:-1], np.round(np.geomspace(1e-4, 7.1, 448), 9)]
)


@dataclass(frozen=True)
class Table:
    """Upper bounds as shares of the Gaussian bound, in (0, 1], at SHIFTS x ORDERS."""

    bit: Float32[ndarray, "shifts orders"]
    label: Float32[ndarray, "shifts orders"]

    def digest(self) -> str:
        """SHA-256 of the grid and of both tables."""
        content = hashlib.sha256()
        for array in (SHIFTS, ORDERS, self.bit, self.label):
            content.update(np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")).tobytes())
        return content.hexdigest()


def covers(shifts: Float64[ndarray, " problems"], orders: Float64[ndarray, " problems"]) -> Bool[ndarray, " problems"]:
    """Whether the table covers a shift and an order, as `interpolate` needs."""
    position = np.minimum(np.searchsorted(ORDERS, orders), len(ORDERS) - 1)
    return (ORDERS[position] == orders) & (shifts >= SHIFTS[0]) & (shifts <= SHIFTS[-1])


def interpolate(
    shares: Float32[ndarray, "shifts orders"],
    shifts: Float64[ndarray, " problems"],
    orders: Float64[ndarray, " problems"],
) -> Float64[ndarray, " problems"]:
    """The bound divided by a and by the Gaussian bound's factor: the chord of share * shift^2 between two nodes.

    Shifts and orders must be covered. Multiply by a (label) or a/2 (bit) to get the bound.
    """
    column: Int64[ndarray, " problems"] = np.searchsorted(ORDERS, orders)
    right = np.clip(np.searchsorted(SHIFTS, shifts), 1, len(SHIFTS) - 1)
    left = right - 1
    low, high = SHIFTS[left], SHIFTS[right]
    at_low = shares[left, column].astype(np.float64) * low**2
    at_high = shares[right, column].astype(np.float64) * high**2
    chord = at_low + (at_high - at_low) * ((shifts - low) / (high - low))
    return np.minimum(chord, shifts**2)


def compute() -> Table:
    """The table at every node, rounded up. A supremum never falls as the order grows, so a higher order's bound is
    valid too."""
    shifts, orders = (grid.ravel() for grid in np.meshgrid(SHIFTS, ORDERS, indexing="ij"))
    tables = []
    for supremum, factor in ((bit_supremum, 0.5), (label_supremum, 1.0)):
        bound = supremum(shifts, orders, tolerance=TOLERANCE).reshape(len(SHIFTS), len(ORDERS))
        bound = np.minimum.accumulate(bound[:, ::-1], axis=1)[:, ::-1]
        share = (bound / (factor * ORDERS * SHIFTS[:, None] ** 2)).astype(np.float32)
        tables.append(np.minimum(np.nextafter(share, np.float32(2.0)), np.float32(1.0)))
    return Table(bit=tables[0], label=tables[1])


@cache
def load_bounds(path: Path = TABLE_PATH) -> Table:
    """The shipped table.

    Raises DataUnavailable if the file is absent, DataCorrupt if it is not the table of this grid.
    """
    try:
        arrays = read_arrays(path, ["bit", "label", "sha256", "shifts", "orders"])
    except DataUnavailable as error:
        raise DataUnavailable(f"{path} is absent; run python -m protocols.bounds.label_only") from error
    except DataCorrupt as error:
        raise DataCorrupt(f"{path.name} is not a table of label-only bounds: {error}") from error
    table = Table(bit=arrays["bit"], label=arrays["label"])
    digest = str(arrays["sha256"])
    if not (np.array_equal(arrays["shifts"], SHIFTS) and np.array_equal(arrays["orders"], ORDERS)):
        raise DataCorrupt(f"{path.name} was computed for another grid of orders and shifts; compute it again")
    if table.bit.shape != table.label.shape or digest != table.digest():
        raise DataCorrupt(f"{path.name} has checksum {table.digest()[:16]}; allowed: {digest[:16]}, as it states")
    return table


def save(table: Table, path: Path = TABLE_PATH) -> None:
    """Writes the table with its grid and checksum."""
    np.savez_compressed(
        path, shifts=SHIFTS, orders=ORDERS, bit=table.bit, label=table.label, sha256=np.array(table.digest())
    )


if __name__ == "__main__":
    save(compute())
    print(f"{TABLE_PATH}: {len(SHIFTS)} shifts, {len(ORDERS)} orders, {TABLE_PATH.stat().st_size} bytes")


__all__ = ["ORDERS", "label_rdp", "threshold_rdp"]

_TOLERANCE = 2e-5
# How many pairs of shift and order outside the table one call computes, and how many results are remembered.
_MOST_COMPUTED = 1000
_MOST_KNOWN = 200_000


def threshold_rdp(
    d: float | Float64[ndarray, "..."], orders: float | Float64[ndarray, "..."]
) -> Float64[ndarray, "..."]:
    """RDP of one noisy threshold test of which only the bit is seen: an upper bound for all histograms.

    d = s/sigma1 >= 0, finite: the unit's total vote weight over the threshold's noise; orders > 1, finite;
    both broadcast. Holds in both directions. Never above the Gaussian bound a d^2/2; 0 at d = 0. Fast for
    orders in ORDERS (a table), about a millisecond for each other pair; many pairs as in `label_rdp`. Raises
    InvalidInput.
    """
    shifts, wanted = _checked(d, orders)
    return _bit(shifts.ravel(), wanted.ravel()).reshape(shifts.shape)


def label_rdp(
    d: float | Float64[ndarray, "..."], orders: float | Float64[ndarray, "..."], *, classes: int
) -> Float64[ndarray, "..."]:
    """RDP of one GNMax release of which only the label is seen: an upper bound for all histograms.

    d = s/sigma2 >= 0, finite: the unit's total vote weight over the label's noise; orders > 1, finite; both broadcast;
    classes >= 2. Two classes are a threshold bit with shift sqrt(2) d; one bound serves any number of three or more.
    Holds in both directions. Never above the Gaussian bound a d^2; 0 at d = 0. Fast for orders in ORDERS (a table);
    every other pair takes some milliseconds, once. For 1,000 or more other pairs in one call, chords between orders of
    the table are used: at most 0.2 % higher for orders from 1.05 to 513, 0.5 % above, 8 % below. Raises InvalidInput.
    """
    if classes < 2:
        raise InvalidInput(f"classes = {classes}; allowed: 2 or more")
    shifts, wanted = _checked(d, orders)
    flat, flat_orders = shifts.ravel(), wanted.ravel()
    if classes == 2:
        # Rounding of sqrt(2) d must not raise it above the Gaussian bound.
        return np.minimum(_bit(np.sqrt(2.0) * flat, flat_orders), flat_orders * flat**2).reshape(shifts.shape)
    return _bound(_LABEL, flat, flat_orders).reshape(shifts.shape)


def _bit(shifts: Float64[ndarray, " problems"], orders: Float64[ndarray, " problems"]) -> Float64[ndarray, " problems"]:
    """The threshold bound, from the table if that has the order and the shift."""
    return _bound(_BIT, shifts, orders)


@dataclass(frozen=True)
class _Kind:
    """The label or the bit: its table, its supremum, and the factor of its Gaussian bound, factor * a * d^2."""

    shares: Callable[[Table], Float32[ndarray, "shifts orders"]]
    supremum: Callable[..., Float64[ndarray, " problems"]]
    factor: float
    # Suprema that were computed, by (shift, order).
    known: dict[tuple[float, float], float] = field(default_factory=dict)


_LABEL = _Kind(shares=lambda table: table.label, supremum=label_supremum, factor=1.0)
_BIT = _Kind(shares=lambda table: table.bit, supremum=bit_supremum, factor=0.5)


def _bound(
    kind: _Kind, shifts: Float64[ndarray, " problems"], orders: Float64[ndarray, " problems"]
) -> Float64[ndarray, " problems"]:
    """The bound from the table if it has the order and the shift; else between its orders, or computed if few are
    needed.
    """
    bound = np.empty_like(shifts)
    tabled = covers(shifts, orders)
    if tabled.any():
        bound[tabled] = _tabled(kind, shifts[tabled], orders[tabled])
    rest = ~tabled
    if rest.sum() > _MOST_COMPUTED:
        between = rest & (orders < ORDERS[-1]) & (shifts >= SHIFTS[0]) & (shifts <= SHIFTS[-1])
        bound[between] = _between_orders(kind, shifts[between], orders[between])
        rest &= ~between
    bound[rest] = _computed(kind, shifts[rest], orders[rest])
    return bound


def _tabled(
    kind: _Kind, shifts: Float64[ndarray, " problems"], orders: Float64[ndarray, " problems"]
) -> Float64[ndarray, " problems"]:
    return kind.factor * orders * interpolate(kind.shares(load_bounds()), shifts, orders)


def _between_orders(
    kind: _Kind, shifts: Float64[ndarray, " problems"], orders: Float64[ndarray, " problems"]
) -> Float64[ndarray, " problems"]:
    """Chord of (a - 1) D_a between two orders of the table: an upper bound.

    (a - 1) D_a is convex in a (van Erven & Harremoes 2014, Cor. 2), and so is its supremum over pairs; at a = 1 it is
    0.
    """
    right = np.searchsorted(ORDERS, orders)
    low, high = np.where(right > 0, ORDERS[right - 1], 1.0), ORDERS[right]
    at_low = (low - 1.0) * _tabled(kind, shifts, ORDERS[np.maximum(right - 1, 0)])
    at_high = (high - 1.0) * _tabled(kind, shifts, high)
    chord = at_low + (at_high - at_low) * ((orders - low) / (high - low))
    return np.minimum(chord / (orders - 1.0), kind.factor * orders * shifts**2)


def _computed(
    kind: _Kind, shifts: Float64[ndarray, " problems"], orders: Float64[ndarray, " problems"]
) -> Float64[ndarray, " problems"]:
    """The suprema themselves, each computed once per process."""
    pairs = list(zip(shifts.tolist(), orders.tolist(), strict=True))
    found = list(map(kind.known.get, pairs))
    if None in found:
        if len(kind.known) > _MOST_KNOWN:
            kind.known.clear()
        missing = [pair for pair in dict.fromkeys(pairs) if pair not in kind.known]
        new = np.array(missing).reshape(-1, 2)  # none, where another thread has found them meanwhile
        kind.known.update(zip(missing, kind.supremum(new[:, 0], new[:, 1], tolerance=_TOLERANCE).tolist(), strict=True))
        found = [kind.known[pair] for pair in pairs]
    return np.array(found, dtype=np.float64)


def _checked(
    d: float | Float64[ndarray, "..."], orders: float | Float64[ndarray, "..."]
) -> tuple[Float64[ndarray, "..."], Float64[ndarray, "..."]]:
    """Both arguments as float64 arrays of their common shape. Raises InvalidInput for values out of range."""
    shifts, wanted = np.asarray(d, dtype=np.float64), np.asarray(orders, dtype=np.float64)
    if not (np.isfinite(shifts) & (shifts >= 0.0)).all():
        raise InvalidInput(f"d spans [{shifts.min()}, {shifts.max()}]; allowed: finite, >= 0")
    if not (np.isfinite(wanted) & (wanted > 1.0)).all():
        raise InvalidInput(f"orders span [{wanted.min()}, {wanted.max()}]; allowed: finite, > 1")
    try:
        shifts, wanted = np.broadcast_arrays(shifts, wanted)
    except ValueError as error:
        raise InvalidInput(f"d of shape {shifts.shape} and orders of shape {wanted.shape} do not broadcast") from error
    return shifts, wanted
