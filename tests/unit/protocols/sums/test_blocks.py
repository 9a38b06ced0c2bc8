"""phi in whole numbers: never longer than it may be, the same in any company, and read from anybody's bytes."""

import dataclasses
import io
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from protocols.errors import DataCorrupt, InvalidInput
from protocols.features.feature_map import FeatureMap
from protocols.sums.blocks import (
    KERNEL_STEPS,
    NORM_STEPS,
    TARGET_STEPS,
    Blocks,
    Constant,
    Kernel,
    Linear,
    Nearest,
    Signs,
    simplex,
)

WIDTH = 4


def made(seed: int) -> Blocks:
    """Blocks of every kind, of random figures."""
    rng = np.random.default_rng(seed)

    def some():
        columns = rng.permutation(WIDTH)[: rng.integers(1, WIDTH + 1)]
        return {
            "share": int(rng.integers(1, 100)),
            "columns": columns,
            "scales": 2.0 ** rng.integers(-60, 60, len(columns)) if rng.random() < 0.3 else np.ones(len(columns)),
        }

    def whole(*shape, reach=2000):
        return rng.integers(-reach, reach + 1, shape)

    linear, signs, bare, kernel, cells = (some() for _ in range(5))
    centres = np.unique(whole(6, len(cells["columns"])), axis=0)
    return Blocks(
        FeatureMap((WIDTH,)),
        (
            Constant(share=3),
            Linear(**linear, centre=whole(len(linear["columns"])), matrix=whole(5, len(linear["columns"]))),
            Linear(**bare, centre=whole(len(bare["columns"])), matrix=np.zeros((0, len(bare["columns"])), np.int64)),
            Signs(**signs, centre=whole(len(signs["columns"]))),
            Kernel(
                **kernel,
                centres=whole(7, len(kernel["columns"])),
                width=int(rng.integers(1, 2**26)),
                means=rng.integers(0, KERNEL_STEPS, 7),
                matrix=whole(3, 7),
            ),
            Nearest(**cells, centres=centres, nearest=int(rng.integers(1, len(centres) + 1))),
        ),
    )


VALUES = st.one_of(
    st.floats(width=32), st.sampled_from([0.0, -0.0, np.nan, np.inf, -np.inf, 1e-45, 3.4e38, -3.4e38, 1.0, 2.0**-10])
)
RECORDS = st.lists(st.lists(VALUES, min_size=WIDTH, max_size=WIDTH), min_size=1, max_size=6)


def norms(phi):
    return (phi.astype(object) ** 2).sum(axis=1)


@given(seed=st.integers(0, 2**32), records=RECORDS)
def test_no_record_is_longer_than_one_whatever_it_holds(seed, records) -> None:
    blocks, values = made(seed), np.array(records, dtype=np.float32)
    phi = blocks.phi(values)
    assert max(norms(phi)) <= NORM_STEPS**2
    before = 0
    total = sum(each.share for each in blocks.blocks)
    for block in blocks.blocks:
        part = phi[:, before : before + block.rows]
        assert max(norms(part)) * total <= NORM_STEPS**2 * block.share
        assert block.signed or part.min() >= 0
        before += block.rows
    assert not phi[~np.isfinite(values).all(axis=1)].any()
    assert np.array_equal(phi, blocks.of_records(values))


@given(seed=st.integers(0, 2**32), records=RECORDS)
def test_a_record_gives_the_same_integers_in_any_company(seed, records) -> None:
    blocks, values = made(seed), np.array(records, dtype=np.float32)
    alone = np.concatenate([blocks.phi(row[None]) for row in values])
    assert np.array_equal(blocks.phi(values), alone)
    assert np.array_equal(blocks.phi(values[::-1]), alone[::-1])


def test_a_thousand_wide_records_are_the_same_in_any_company() -> None:
    rng, width = np.random.default_rng(3), 300
    blocks = Blocks(
        FeatureMap((width,)),
        (
            Linear(
                share=1,
                columns=np.arange(width),
                scales=np.ones(width),
                centre=rng.integers(-3000, 3000, width),
                matrix=rng.integers(-(2**20), 2**20, (60, width)),
            ),
        ),
    )
    records = rng.normal(size=(1000, width)).astype(np.float32)
    whole = blocks.phi(records)
    assert np.array_equal(np.delete(whole, 17, axis=0), blocks.phi(np.delete(records, 17, axis=0)))
    assert min(norms(whole)) > 0.999 * NORM_STEPS**2  # rounding loses next to nothing


def slow_phi(block, length, record):
    """The direction of a block in float64, of this length."""
    steps = np.clip(np.rint(record[block.columns].astype(np.float64) * block.scales * 1024), -(2**17), 2**17)
    if isinstance(block, Linear):
        values = steps - block.centre
        values = block.matrix @ values if len(block.matrix) else values
    elif isinstance(block, Signs):
        values = np.where(steps > block.centre, 1.0, -1.0)
    elif isinstance(block, Kernel):
        squares = ((steps - block.centres) ** 2).sum(axis=1)
        near = [Fraction(max(0, block.width - int(each)), int(block.width)) for each in squares]
        kernel = np.array([int(each * KERNEL_STEPS) ** 4 // KERNEL_STEPS**3 for each in near])
        # Rounded down before the fourth power and after it. Where k is near the means, that turns the direction.
        assert np.abs(kernel - [float(each) ** 4 * KERNEL_STEPS for each in near]).max() < 5
        values = block.matrix @ (kernel - block.means)
    else:
        order = np.argsort(((steps - block.centres) ** 2).sum(axis=1), kind="stable")[: block.nearest]
        values = np.zeros(block.rows)
        values[order] = 1
    norm = np.linalg.norm(values)
    return values * length / norm if norm else values


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32))
@example(seed=4096)
def test_each_block_points_where_its_definition_says(seed) -> None:
    blocks = made(seed)
    record = np.random.default_rng(seed).normal(size=WIDTH).astype(np.float32)
    phi, before = blocks.phi(record[None])[0], 0
    for block, length in zip(blocks.blocks, blocks.lengths, strict=True):
        part = phi[before : before + block.rows]
        before += block.rows
        if isinstance(block, Constant):
            assert part.tolist() == [length]
        else:
            assert np.abs(part - slow_phi(block, length, record)).max() < 8


@pytest.mark.parametrize("classes", [2, 3, 10, 57])
def test_targets_are_a_simplex_of_length_one(classes) -> None:
    found = simplex(classes)
    assert (found**2).sum(axis=1).max() <= TARGET_STEPS**2
    inner = (found @ found.T) / TARGET_STEPS**2
    expected = np.full((classes, classes), -1 / (classes - 1))
    np.fill_diagonal(expected, 1)
    assert np.abs(inner - expected).max() < 2e-3


def test_targets_have_no_entry_below_zero_where_features_have_none() -> None:
    cells = Nearest.of(np.eye(3, dtype=np.float32), columns=np.arange(3))
    blocks = Blocks(FeatureMap((3,)), (cells, Constant(share=1)))
    assert not blocks.signed
    assert np.array_equal(blocks.targets(3), TARGET_STEPS * np.eye(3))
    assert made(1).signed


@given(seed=st.integers(0, 2**32))
def test_a_file_of_blocks_gives_the_same_blocks(seed) -> None:
    blocks = made(seed)
    again = Blocks.from_bytes(blocks.to_bytes())
    assert again.digest == blocks.digest
    records = np.random.default_rng(seed).normal(size=(3, WIDTH)).astype(np.float32)
    assert np.array_equal(again.phi(records), blocks.phi(records))


def test_the_digest_names_all_that_decides_what_a_record_says() -> None:
    blocks = made(7)
    digests = {blocks.digest, Blocks(blocks.features, blocks.blocks[::-1]).digest}
    digests.add(Blocks(FeatureMap((WIDTH + 1,)), blocks.blocks).digest)
    changed = 0
    for place, block in enumerate(blocks.blocks):
        for name, (_, rank) in block.layout.items():
            old = getattr(block, name)
            if name == "nearest":
                new = old - 1 or 2
            elif name == "columns":
                new = (old + 1) % WIDTH
            elif name == "means":
                new = (old + 1) % KERNEL_STEPS
            else:
                new = old + 1
            if rank and not old.size:
                continue
            other = dataclasses.replace(block, **{name: new})
            digests.add(Blocks(blocks.features, (*blocks.blocks[:place], other, *blocks.blocks[place + 1 :])).digest)
            changed += 1
    assert len(digests) == changed + 3


@given(seed=st.integers(0, 2**32), place=st.floats(0, 1), byte=st.integers(0, 255), kept=st.floats(0, 1))
def test_no_bytes_do_more_than_be_refused(seed, place, byte, kept) -> None:
    content = bytearray(made(seed % 5).to_bytes())
    content[int(place * (len(content) - 1))] = byte
    for each in (bytes(content), bytes(content[: int(kept * len(content))])):
        try:
            found = Blocks.from_bytes(each)
        except (DataCorrupt, InvalidInput):
            continue
        assert max(norms(found.phi(np.ones((2, found.features.width), np.float32)))) <= NORM_STEPS**2


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("kinds", np.array([9])),
        ("kinds", np.zeros(0, np.int64)),
        ("kinds", np.array([1.0])),
        ("0.share", np.array(0)),
        ("0.share", np.array(2**62)),
        ("1.columns", np.array([0, 0, 1])),
        ("1.columns", np.array([WIDTH + 3])),
        ("1.scales", np.array([np.nan])),
        ("1.matrix", np.full((1, 1), 2**62)),
        ("1.matrix", np.full((1, 1), -(2**63))),
        ("1.centre", np.array([-(2**63)])),
        ("4.width", np.array(0)),
        ("4.means", np.full(7, -1)),
        ("4.means", np.zeros(6, np.int64)),
        ("4.centres", np.full((7, 1), 2**60)),
        ("5.nearest", np.array(0)),
        ("5.centres", np.zeros((1, 1), np.int64)),
    ],
)
def test_figures_out_of_range_are_refused(name, array) -> None:
    with np.load(io.BytesIO(made(2).to_bytes())) as file:
        arrays = {each: file[each] for each in file.files}
    prefix = name.split(".")[0]
    if array.ndim and prefix.isdigit():
        # A block of one feature, so that the array has the right width.
        width = len(array) if name.endswith(("columns", "scales")) else 1
        for other, value in (("columns", np.arange(width)), ("scales", np.ones(width))):
            arrays[f"{prefix}.{other}"] = value
        for other in ("centre", "matrix", "centres"):
            if f"{prefix}.{other}" in arrays:
                old = arrays[f"{prefix}.{other}"]
                arrays[f"{prefix}.{other}"] = np.zeros(
                    (width,) if old.ndim == 1 else old.shape if prefix == "4" and other == "matrix" else (7, width),
                    np.int64,
                )
    content = io.BytesIO()
    np.savez(content, **arrays | {name: array})
    with pytest.raises((DataCorrupt, InvalidInput)):
        Blocks.from_bytes(content.getvalue())
