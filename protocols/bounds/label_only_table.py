"""The table of label-only suprema that `label_only` interpolates in, and the command that computes it.

    python -m protocols.bounds.label_only_table     (about eight minutes on one core)

writes label_only_table.npz beside this file. At a fixed order a supremum is convex in the shift and zero at
zero, so the chord between two nodes is an upper bound (docs/explanation/label-only-bound.md, section 7).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64
from numpy import ndarray

from protocols.array_files import read_arrays
from protocols.bounds.label_supremum import bit_supremum, label_supremum
from protocols.errors import DataCorrupt, DataUnavailable

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
        raise DataUnavailable(f"{path} is absent; run python -m protocols.bounds.label_only_table") from error
    except DataCorrupt as error:
        raise DataCorrupt(f"{path.name} is not a table of label-only bounds: {error}") from error
    table = Table(bit=arrays["bit"], label=arrays["label"])
    digest, grid_matches = str(arrays["sha256"]), _same_grid(arrays["shifts"], arrays["orders"])
    if not grid_matches:
        raise DataCorrupt(f"{path.name} was computed for another grid of orders and shifts; compute it again")
    if table.bit.shape != table.label.shape or digest != table.digest():
        raise DataCorrupt(f"{path.name} has checksum {table.digest()[:16]}; allowed: {digest[:16]}, as it states")
    return table


def save(table: Table, path: Path = TABLE_PATH) -> None:
    """Writes the table with its grid and checksum."""
    np.savez_compressed(
        path, shifts=SHIFTS, orders=ORDERS, bit=table.bit, label=table.label, sha256=np.array(table.digest())
    )


def _same_grid(shifts: Float64[ndarray, " s"], orders: Float64[ndarray, " o"]) -> bool:
    return np.array_equal(shifts, SHIFTS) and np.array_equal(orders, ORDERS)


if __name__ == "__main__":
    save(compute())
    print(f"{TABLE_PATH}: {len(SHIFTS)} shifts, {len(ORDERS)} orders, {TABLE_PATH.stat().st_size} bytes")
