"""The shipped table holds what direct computation gives, and a damaged one is refused."""

import numpy as np
import pytest

from protocols.bounds.label_only import ORDERS, SHIFTS, Table, covers, interpolate, load_bounds, save
from protocols.bounds.label_supremum import bit_supremum, label_supremum
from protocols.errors import DataCorrupt
from tests.harness.refusals import refuses


@pytest.mark.parametrize(("name", "supremum", "factor"), [("bit", bit_supremum, 0.5), ("label", label_supremum, 1.0)])
def test_nodes_are_upper_bounds_and_tight(name, supremum, factor) -> None:
    rng = np.random.default_rng(1)
    row, column = rng.integers(len(SHIFTS), size=60), rng.integers(len(ORDERS), size=60)
    shifts, orders = SHIFTS[row], ORDERS[column]
    stored = getattr(load_bounds(), name)[row, column] * factor * orders * shifts**2
    direct = supremum(shifts, orders, tolerance=1e-5)
    assert (stored >= direct * (1 - 1e-5)).all()
    # 5e-5 of the computation, 2e-7 of rounding, and the step from a computed node to a Gaussian one.
    assert (stored <= direct * (1 + 6e-5)).all()


@pytest.mark.parametrize(("name", "supremum", "factor"), [("bit", bit_supremum, 0.5), ("label", label_supremum, 1.0)])
def test_chords_are_upper_bounds_and_tight(name, supremum, factor) -> None:
    rng = np.random.default_rng(1)
    shifts = np.exp(rng.uniform(np.log(SHIFTS[0]), np.log(SHIFTS[-1]), size=60))
    orders = rng.choice(ORDERS, size=60)
    assert covers(shifts, orders).all()
    chord = factor * orders * interpolate(getattr(load_bounds(), name), shifts, orders)
    direct = supremum(shifts, orders, tolerance=1e-5)
    # Where the search gives up, it returns the Gaussian bound, which is above the supremum and may be above a chord.
    gaussian = factor * orders * shifts**2
    found = direct < gaussian * (1 - 1e-9)
    assert (chord[found] >= direct[found] * (1 - 1e-5)).all()
    assert (chord <= gaussian * (1 + 1e-6)).all()
    log_growth = orders * (orders - 1) * shifts**2
    usual = (log_growth < 400) & (shifts < 4.9)  # beyond, one end of a chord may be the Gaussian bound
    assert (chord[usual] <= direct[usual] * (1 + 5e-4)).all()


def test_a_table_with_an_altered_node_is_refused(tmp_path) -> None:
    path = tmp_path / "table.npz"
    save(load_bounds(), path)
    with np.load(path) as arrays:
        content = dict(arrays)
    content["label"][100, 50] *= np.float32(0.5)
    np.savez_compressed(path, **content)
    with refuses(DataCorrupt, "checksum"):
        load_bounds(path)


def test_a_table_of_another_grid_is_refused(tmp_path) -> None:
    path = tmp_path / "table.npz"
    table = load_bounds()
    np.savez_compressed(
        path, shifts=SHIFTS, orders=ORDERS + 0.1, bit=table.bit, label=table.label, sha256=np.array(table.digest())
    )
    with refuses(DataCorrupt, "grid"):
        load_bounds(path)


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x03\x04 cut off"])
def test_a_file_that_is_no_table_is_refused(tmp_path, content) -> None:
    path = tmp_path / "table.npz"
    path.write_bytes(content)
    with pytest.raises(DataCorrupt):
        load_bounds(path)


def test_the_digest_covers_every_node() -> None:
    table = load_bounds()
    bit = table.bit.copy()
    bit[0, 0] = np.nextafter(bit[0, 0], np.float32(2))
    assert Table(bit=bit, label=table.label).digest() != table.digest()
