"""A person's own .npz file: cut by shares or in parts as it says, and refused with array and row where it is wrong."""

import numpy as np
import pytest

from protocols.errors import DataCorrupt, InvalidInput
from simulations import datasets
from simulations.datasets.dataset import DatasetRequest
from tests.harness.refusals import refuses


def _load(path, **options):
    return datasets.load(str(path), DatasetRequest(seed=0, **options))


def _npz(tmp_path, **arrays):
    np.savez(tmp_path / "own.npz", **arrays)
    return tmp_path / "own.npz"


def _images(count=60):
    rng = np.random.default_rng(1)
    return {"x": rng.integers(0, 256, (count, 9, 12), dtype=np.uint8), "y": np.arange(count) % 3}


def test_an_npz_of_images_or_of_rows_is_cut_by_shares(tmp_path):
    arrays = _images()
    dataset = _load(_npz(tmp_path, **arrays, classes=np.array(["a", "b", "c"])))
    assert (dataset.name, dataset.kind, dataset.class_names) == ("own", "image", ("a", "b", "c"))
    assert dataset.private_inputs.shape == (36, 9, 12)
    assert (dataset.private_inputs.max(), len(dataset.public_labels), len(dataset.test_labels)) == (1.0, 15, 9)
    colours = np.repeat(arrays["x"][..., None], 3, axis=3)
    colour = _load(_npz(tmp_path, x=colours, y=arrays["y"]))
    assert (colour.kind, colour.private_inputs.shape, colour.private_inputs.max()) == ("image", (36, 9, 12, 3), 1.0)
    rows = arrays["x"].reshape(60, -1).astype(np.float64)
    table = _load(_npz(tmp_path, x=rows, y=arrays["y"], site=np.arange(60) % 2), public_size=5, test_size=5)
    assert (table.kind, table.private_inputs.shape, table.site_names) == ("table", (50, 108), ("0", "1"))
    assert table.private_inputs.max() == 255


@pytest.mark.parametrize(
    ("y", "names"),
    [
        (np.arange(60) % 3 + 1, ("1", "2", "3")),
        (np.arange(60) % 3 * 10.0 - 10, ("-10", "0", "10")),
        (np.array(["b ", "a", "c"])[np.arange(60) % 3], ("a", "b", "c")),
        (np.arange(60)[:, None] % 3 == 2, ("False", "True")),
        (np.eye(4, dtype=np.float32)[np.arange(60) % 3], ("0", "1", "2", "3")),
    ],
)
def test_classes_are_the_different_labels_in_their_order(y, names, tmp_path):
    arrays = _images()
    dataset = _load(_npz(tmp_path, X=arrays["x"], labels=y))
    assert dataset.class_names == names
    known = {row.tobytes(): at for at, row in enumerate((arrays["x"] / np.float32(255)).astype(np.float32))}
    places = [known[row.tobytes()] for row in dataset.private_inputs]
    texts = [str(each).strip() for each in (y.argmax(axis=1) if y.ndim == 2 and y.shape[1] > 1 else y.ravel())]
    found = [names[label] for label in dataset.private_labels]
    assert found == [texts[at].removesuffix(".0") for at in places]


def test_images_with_colours_first_or_of_one_channel_are_read_as_the_usual_ones(tmp_path):
    arrays = _images()
    colour = np.random.default_rng(2).integers(0, 256, (60, 9, 12, 3))
    usual = _load(_npz(tmp_path, x=colour.astype(np.uint8), y=arrays["y"]))
    first = _load(_npz(tmp_path, x=np.moveaxis(colour, 3, 1), y=arrays["y"], class_names=["a", "b", "c"]))
    np.testing.assert_array_equal(usual.private_inputs, first.private_inputs)
    assert first.class_names == ("a", "b", "c")
    grey = _load(_npz(tmp_path, **arrays))
    for axis in (1, 3):
        one = _load(_npz(tmp_path, data=np.expand_dims(arrays["x"], axis), target=arrays["y"]))
        np.testing.assert_array_equal(one.test_inputs, grey.test_inputs)


def test_an_npz_in_parts_keeps_them(tmp_path):
    arrays = _images()
    parted = {
        f"{what}_{part}": arrays[what][rows]
        for what in "xy"
        for part, rows in (("private", slice(0, 30)), ("public", slice(30, 50)), ("test", slice(50, 60)))
    }
    sites = np.repeat(["b", "a"], 15)
    dataset = _load(_npz(tmp_path, **parted, site_private=sites))
    np.testing.assert_array_equal(dataset.public_labels, arrays["y"][30:50])
    np.testing.assert_array_equal(dataset.private_sites, np.repeat([1, 0], 15))
    assert dataset.site_names == ("a", "b")
    patients = {
        "patient_private": np.arange(30),
        "patient_public": np.arange(29, 49),
        "patient_test": np.arange(90, 100),
    }
    with refuses(DataCorrupt, "1 patients"):
        _load(_npz(tmp_path, **parted, **patients))
    del patients["patient_test"]
    with refuses(DataCorrupt, "patient_private", "patient_public", "patient_test"):
        _load(_npz(tmp_path, **parted, **patients))
    parted["x_test"] = parted["x_test"][:, :8]
    with refuses(DataCorrupt, "shapes"):
        _load(_npz(tmp_path, **parted))
    parted["x_test"], parted["y_test"] = arrays["x"][:0], arrays["y"][:0]
    with refuses(DataCorrupt, 20, 0):
        _load(_npz(tmp_path, **parted))


def _with(**changes):
    return lambda arrays: arrays | changes


def _at(index, value):
    def change(arrays):
        x = arrays["x"].astype(np.float32) / 255
        x[index] = value
        return arrays | {"x": x}

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_with(y=np.arange(60) % 3 - 1), (1, -1, 0)),
        (_with(y=np.arange(60)), (60, 2, 200)),
        (_with(classes=np.array(["a", "b"])), ("y, row 3: 2; allowed: 0 to 1",)),
        (_with(y=np.repeat(["a", "b", "c"], 20), classes=np.array(["a", "b"])), (41,)),
        (_with(y=np.arange(59) % 2), ("[59]", "[60]")),
        (_with(split=np.repeat("train", 60)), (1, "train")),
        (_with(z=np.zeros(60)), ("own.npz",)),
        (_with(x=np.zeros((60, 2, 2, 4))), ("[60, 2, 2, 4]",)),
        (_with(x=np.full((60, 2, 2), 300)), (1, 300, 0, 255)),
        (_at((7, 2, 3), np.nan), (8, "[2, 3]", "[0, 1]", 1)),
    ],
)
def test_an_npz_that_is_not_what_it_should_be_is_refused(change, message, tmp_path):
    with refuses(DataCorrupt, *message):
        _load(_npz(tmp_path, **change(_images())))


def test_infinite_features_of_rows_are_refused_and_a_schema_for_an_npz_too(tmp_path):
    x = np.zeros((60, 3))
    x[9, 1] = np.inf
    with refuses(DataCorrupt, 10, "[1]"):
        _load(_npz(tmp_path, x=x, y=np.arange(60) % 2))
    with refuses(InvalidInput, "only with tables"):
        _load(_npz(tmp_path, **_images()), schema=tmp_path / "a.toml")
    np.savez(tmp_path / "own.npz", x=np.array([None] * 4, dtype=object), y=np.arange(4) % 2)
    with refuses(DataCorrupt, "own.npz", "x"):
        _load(tmp_path / "own.npz")


def test_an_npz_with_the_names_of_keras_or_medmnist_is_read_as_it_is(tmp_path):
    arrays = _images(120)
    x, y = arrays["x"], arrays["y"]
    usual = {"x_train": x[:85], "y_train": y[:85], "x_test": x[85:], "y_test": y[85:]}
    dataset = _load(_npz(tmp_path, **usual))
    np.testing.assert_array_equal(dataset.test_labels, y[85:])
    assert (len(dataset.private_labels), len(dataset.public_labels)) == (60, 25)
    assert np.ptp(np.bincount(dataset.public_labels)) <= 1
    found = np.concatenate([dataset.private_inputs, dataset.public_inputs]).sum(axis=(1, 2))
    np.testing.assert_allclose(np.sort(found), np.sort(x[:85].sum(axis=(1, 2)) / 255), rtol=1e-5)
    parts = {"train": slice(0, 60), "val": slice(60, 85), "test": slice(85, 120)}
    medical = {f"{part}_images": x[rows][..., None] for part, rows in parts.items()}
    medical |= {f"{part}_labels": y[rows][:, None] for part, rows in parts.items()}
    dataset = _load(_npz(tmp_path, **medical))
    for part, name in zip(parts, ("private", "public", "test"), strict=True):
        np.testing.assert_array_equal(getattr(dataset, f"{name}_labels"), y[parts[part]])
    for wrong in ({"x_val": x}, {"site": y}, {"X_train": x}):
        with pytest.raises(DataCorrupt, match="allowed with such names: inputs and labels"):
            _load(_npz(tmp_path, **usual, **wrong))
    with refuses(DataCorrupt, 84, 85):
        _load(_npz(tmp_path, **{**usual, "x_train": x[:84]}))
