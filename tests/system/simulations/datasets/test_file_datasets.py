"""The data sets themselves: published sizes, disjoint parts, and accuracy near what their sources report."""

import gzip
import os
from functools import cache, partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from protocols.errors import DataCorrupt, DataUnavailable, InvalidInput
from runtime.shipped import heart_disease
from simulations import datasets
from simulations.datasets import DATASETS, published_tables
from simulations.datasets.dataset import DatasetRequest, as_published
from simulations.datasets.sources import published
from simulations.setup.partition import parse_partition, partition
from tests.harness.refusals import refuses

needs_files = pytest.mark.skipif(
    "CONCLAVE_DATA" not in os.environ, reason="CONCLAVE_DATA is not set: no folder with data sets"
)
WITHOUT_FILES = ("glyphs", "clear_glyphs", "glyph_sets", "digits", "breast_cancer", "heart_disease")
# Tested on small files of their formats: test_published_images.py of tests/unit.
ELSEWHERE = ("fashion_mnist", "svhn", "cifar10")
ALL = [
    name if name in WITHOUT_FILES else pytest.param(name, marks=needs_files)
    for name in DATASETS
    if name not in ELSEWHERE
]


@pytest.fixture(autouse=True, scope="module")
def encounters_read_once():
    """Those of diabetes130 take seconds."""
    read = cache(partial(published_tables.encounters, published("diabetes130")))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(published_tables, "encounters", lambda about, folder: read(folder))
        yield


@cache
def _load(name, **options):
    drawn = name in datasets.RENDERED
    sizes = {"private_size": 2000, "public_size": 500, "test_size": 200} if drawn else {}
    return datasets.load(name, DatasetRequest(**({"seed": 0} | sizes | options)))


def _logistic(dataset, rows=20_000):
    inputs = [part.reshape(len(part), -1) for part in (dataset.private_inputs, dataset.test_inputs)]
    model = LogisticRegression(max_iter=200, tol=1e-3).fit(inputs[0][:rows], dataset.private_labels[:rows])
    return model.score(inputs[1], dataset.test_labels)


@pytest.mark.parametrize("name", ALL)
def test_every_data_set_loads_with_its_name_and_says_how_it_is_split(name):
    dataset = _load(name)
    assert dataset.name == name
    assert dataset.about
    assert min(len(dataset.private_labels), len(dataset.public_labels), len(dataset.test_labels)) >= 60
    assert (np.unique(dataset.private_labels) >= 0).sum() == dataset.classes
    for inputs in (dataset.private_inputs, dataset.public_inputs, dataset.test_inputs):
        assert inputs.dtype == np.float32
        low, high = (0, 1) if dataset.kind == "image" else (-10, 10)
        assert inputs.min() >= low
        assert inputs.max() <= high
        assert inputs.ndim == (2 if dataset.kind == "table" else 3)


@pytest.mark.parametrize("name", ["digits", "breast_cancer", "heart_disease"])
def test_classes_other_than_the_data_sets_own_and_options_of_glyphs_are_refused(name):
    classes = _load(name).classes
    with refuses(InvalidInput, classes + 1, classes):
        datasets.load(name, DatasetRequest(seed=0, classes=classes + 1))
    with refuses(InvalidInput, "any data set but glyphs"):
        datasets.load(name, DatasetRequest(seed=0, mislabelled=0.1))


@pytest.mark.parametrize("name", ALL)
def test_the_same_seed_gives_the_same_parts_of_the_sizes_asked_for(name):
    sizes = {"private_size": 90, "public_size": 40, "test_size": 30}
    first = datasets.load(name, DatasetRequest(seed=5, **sizes))
    again = datasets.load(name, DatasetRequest(seed=5, **sizes))
    alone = name in (*datasets.RENDERED, "diabetes130")  # they have a test of their own, or take seconds to load
    other = None if alone else datasets.load(name, DatasetRequest(seed=6, **sizes))
    for part, size in (("private", 90), ("public", 40), ("test", 30)):
        inputs = getattr(first, f"{part}_inputs")
        assert len(inputs) == size
        np.testing.assert_array_equal(inputs, getattr(again, f"{part}_inputs"))
        np.testing.assert_array_equal(getattr(first, f"{part}_labels"), getattr(again, f"{part}_labels"))
        assert other is None or not np.array_equal(inputs, getattr(other, f"{part}_inputs"))


@pytest.mark.parametrize("name", [name for name in ALL if name not in (*datasets.RENDERED, "glyph_sets", "digits")][:3])
def test_more_private_records_than_there_are_is_refused(name):
    with refuses(InvalidInput, 1000000):
        datasets.load(name, DatasetRequest(seed=0, private_size=1_000_000))


@needs_files
def test_mnist_has_the_papers_split_and_the_stored_votes_of_its_public_part_agree_with_its_labels():
    dataset = DATASETS["mnist"](DatasetRequest(seed=0), as_published)
    assert dataset.private_inputs.shape == (60_000, 28, 28)
    assert (len(dataset.public_inputs), len(dataset.test_inputs)) == (9_000, 1_000)
    assert np.bincount(dataset.private_labels).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    votes = Path(os.environ["CONCLAVE_DATA"], "pate_votes", "pate2018", "mnist_250_teachers.npy")
    if not votes.is_file():
        pytest.skip("the votes of Papernot et al. 2018 are not there")
    plurality = np.load(votes).argmax(axis=1)
    assert (plurality == dataset.public_labels).mean() == pytest.approx(0.9437, abs=1e-4)


@needs_files
def test_adult_keeps_row_order_for_stored_votes_and_a_logistic_regression_is_right_84_percent():
    dataset = DATASETS["adult"](DatasetRequest(seed=0, public_size=15_281), as_published)
    labels = dataset.private_labels, dataset.public_labels, dataset.test_labels
    assert [len(each) for each in labels] == [32_561, 15_281, 1_000]
    votes = Path(os.environ["CONCLAVE_DATA"], "pate_votes", "pate2018", "adult_250_teachers.npy")
    if votes.is_file():
        assert (np.load(votes).argmax(axis=1) == np.concatenate(labels[1:])).mean() == pytest.approx(0.8440, abs=1e-4)
    model = LogisticRegression(max_iter=300).fit(dataset.private_inputs, dataset.private_labels)
    assert model.score(dataset.public_inputs, dataset.public_labels) >= 0.84


@needs_files
def test_diabetes_patients_are_in_one_part_and_a_long_stay_can_be_told():
    dataset = _load("diabetes130")
    table = pd.read_csv(
        gzip.open(Path(os.environ["CONCLAVE_DATA"], "diabetes130", "diabetic_data.csv.gz"), "rt"),
        usecols=["patient_nbr", "time_in_hospital"],
    )
    assert (table["time_in_hospital"] >= 5).mean() == pytest.approx(dataset.private_labels.mean(), abs=0.01)
    assert dataset.private_patients is not None
    patients, private = table["patient_nbr"].nunique(), len(np.unique(dataset.private_patients))
    # 20,000 public and test records of patients with 1.4 records each; none of them is a private patient.
    assert patients - private == pytest.approx(20_000 / len(table) * patients, rel=0.03)
    assert len(dataset.private_labels) <= len(table) - 20_000
    largest = np.unique(dataset.private_patients, return_counts=True)[1].max()
    assert largest == table["patient_nbr"].value_counts().max() or largest > 20
    assert 0.7 <= _logistic(dataset) <= 0.8


def test_heart_disease_has_four_unlike_hospitals_in_every_part_and_about_80_percent_accuracy():
    dataset = _load("heart_disease")
    assert dataset.site_names == ("cleveland", "hungarian", "switzerland", "va")
    assert len(dataset.private_labels) + len(dataset.public_labels) + len(dataset.test_labels) == 920
    ill = [dataset.private_labels[dataset.private_sites == site].mean() for site in range(4)]
    np.testing.assert_allclose(ill, [0.459, 0.361, 0.935, 0.745], atol=0.03)
    assert len(partition(dataset, parties=None, scheme=parse_partition("by-site"), seed=0)) == 4
    scores = [_logistic(_load("heart_disease", seed=seed)) for seed in range(5)]
    assert 0.77 <= np.mean(scores) <= 0.88


@needs_files
def test_eicu_has_174_hospitals_with_private_stays_and_features_that_do_not_give_the_outcome_away():
    dataset = _load("eicu_demo")
    assert len(dataset.site_names) == 174
    assert len(np.unique(dataset.private_sites)) == 174
    parts = partition(dataset, parties=None, scheme=parse_partition("by-site"), seed=0)
    one_class = sum(len(np.unique(dataset.private_labels[part])) == 1 for part in parts)
    assert min(map(len, parts)) >= 1
    assert one_class > 50
    inputs = np.concatenate([dataset.private_inputs, dataset.public_inputs, dataset.test_inputs])
    labels = np.concatenate([dataset.private_labels, dataset.public_labels, dataset.test_labels])
    assert 1800 <= len(labels) <= 1838
    # APACHE IVa's own prediction reaches 0.862; a single feature that came near 1 would be the outcome
    # itself.
    single = [roc_auc_score(labels, inputs[:, column]) for column in range(inputs.shape[1])]
    assert max(max(single), 1 - min(single)) < 0.8
    model = LogisticRegression(max_iter=500).fit(dataset.private_inputs, dataset.private_labels)
    auc = roc_auc_score(dataset.public_labels, model.predict_proba(dataset.public_inputs)[:, 1])
    assert 0.7 <= auc <= 0.9


@needs_files
@pytest.mark.parametrize(
    ("name", "test", "pool", "positive"), [("pneumoniamnist", 624, 5232, 390), ("breastmnist", 156, 624, 114)]
)
def test_medmnist_keeps_the_official_test_part(name, test, pool, positive):
    dataset = _load(name)
    assert len(dataset.test_labels) == test
    assert dataset.test_labels.sum() == positive
    together = len(dataset.private_labels) + len(dataset.public_labels)
    assert pool - 5 <= together <= pool  # copies of test images, and copies cut by a part's end, are left out
    share = np.concatenate([dataset.private_labels, dataset.public_labels]).mean()
    assert dataset.public_labels.mean() == pytest.approx(share, abs=0.01)


@pytest.fixture
def breast(tmp_path):
    """Writes a changed copy of breastmnist; returns the folder."""
    with np.load(Path(os.environ["CONCLAVE_DATA"], "breastmnist", "breastmnist.npz"), allow_pickle=False) as archive:
        arrays = dict(archive)

    def write(change):
        change(arrays)
        (tmp_path / "breastmnist").mkdir()
        np.savez(tmp_path / "breastmnist" / "breastmnist.npz", **arrays)
        return datasets.load("breastmnist", DatasetRequest(seed=0, data_dir=tmp_path))

    return write


def _one_pixel(arrays):
    arrays["val_images"][3, 14, 14] ^= 1


def _one_label(arrays):
    arrays["test_labels"][0] ^= 1


def _missing_row(arrays):
    arrays["train_images"], arrays["train_labels"] = arrays["train_images"][1:], arrays["train_labels"][1:]


def _from_test_to_training(arrays):
    for what in ("images", "labels"):
        arrays[f"train_{what}"] = np.concatenate([arrays[f"train_{what}"], arrays[f"test_{what}"][:1]])
        arrays[f"test_{what}"] = arrays[f"test_{what}"][1:]


def _flat_labels(arrays):
    arrays["train_labels"] = arrays["train_labels"][:, 0]


@needs_files
@pytest.mark.parametrize("change", [_one_pixel, _one_label, _missing_row, _from_test_to_training, _flat_labels])
def test_a_changed_medmnist_file_is_refused(change, breast):
    with pytest.raises(DataCorrupt, match=r"breastmnist\.npz.*(expected [0-9a-f]{64}|allowed: uint8)"):
        breast(change)


def test_heart_disease_comes_with_the_package_and_a_copy_goes_first_whose_rows_must_be_the_published_ones(
    tmp_path, monkeypatch
):
    monkeypatch.delenv("CONCLAVE_DATA", raising=False)
    shipped = datasets.load("heart_disease", DatasetRequest(seed=0))
    folder = tmp_path / "heart_disease"
    folder.mkdir()
    for name, lines in heart_disease.hospital_lines(None).items():
        (folder / f"processed.{name}.data.gz").write_bytes(gzip.compress("\r\n".join(reversed(lines)).encode()))
    request = DatasetRequest(seed=0, data_dir=tmp_path)
    np.testing.assert_array_equal(datasets.load("heart_disease", request).private_inputs, shipped.private_inputs)
    content = "\n".join(heart_disease.hospital_lines(None)["va"])
    victim = folder / "processed.va.data"
    for wrong in (content.split("\n", 1)[1], content.replace("63,1,4,140", "64,1,4,140", 1)):
        assert wrong != content
        victim.write_text(wrong)
        with refuses(DataCorrupt, "processed.va.data"):
            datasets.load("heart_disease", request)
    victim.unlink()
    (folder / "processed.va.data.gz").unlink()
    with refuses(DataUnavailable, "processed.va.data"):
        datasets.load("heart_disease", request)


def test_an_unknown_data_set_is_refused_with_the_known_names():
    with refuses(InvalidInput, "dataset", "cifar"):
        datasets.load("cifar", DatasetRequest(seed=0))
    with pytest.raises(InvalidInput, match="only with a file of your own"):
        datasets.load("glyphs", DatasetRequest(seed=0, schema=Path("a.toml")))
