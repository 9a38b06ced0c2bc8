"""Partitions: disjoint, covering, patients whole, deterministic, for any number of parties."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.errors import InvalidInput
from simulations.datasets.columns import categorical, numeric
from simulations.datasets.dataset import Dataset
from simulations.setup.partition import (
    ByColumn,
    BySite,
    ClassSkew,
    Iid,
    LabelSkew,
    parse_partition,
    partition,
    teacher_shards,
)
from tests.harness.refusals import refuses

WITHOUT_SITES = (
    *("iid", "dirichlet:0.01", "dirichlet:1", "dirichlet:1000", "size-skew:0", "size-skew:2"),
    *("feature-skew:0", "feature-skew:3", "by-column:year"),
)
YEAR = (numeric("year", centre=0.0, scale=1.0), categorical("ward", ("east",)))


def _dataset(labels, classes=4, sites=None, patients=None):
    labels = np.asarray(labels, dtype=np.int64)
    one = np.zeros((1, 2), dtype=np.float32)
    return Dataset(
        name="toy",
        kind="table",
        class_names=tuple("abcdefghijkl"[:classes]),
        private_inputs=np.random.default_rng(0).standard_normal((len(labels), 2), np.float32),
        columns=YEAR,
        private_labels=labels,
        public_inputs=one,
        public_labels=np.zeros(1, dtype=np.int64),
        test_inputs=one,
        test_labels=np.zeros(1, dtype=np.int64),
        private_sites=None if sites is None else np.asarray(sites, dtype=np.int64),
        private_patients=None if patients is None else np.asarray(patients, dtype=np.int64),
    )


@st.composite
def _worlds(draw):
    count = draw(st.integers(1, 60))
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, draw(st.integers(1, 4)), count)
    patients = rng.integers(0, draw(st.integers(1, 30)), count) if draw(st.booleans()) else None
    sites = rng.integers(0, draw(st.integers(1, 8)), count)
    if patients is not None:  # a patient is at one site, as far as this law is concerned
        sites = (patients * 7) % 5
    return _dataset(labels, sites=sites, patients=patients), seed


def _check_laws(parts, dataset, parties):
    assert len(parts) == parties
    assert all(len(part) and part.dtype == np.int64 and (np.diff(part) > 0).all() for part in parts)
    together = np.concatenate(parts)
    assert len(np.unique(together)) == len(together)
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(len(dataset.private_labels)))
    if dataset.private_patients is not None:
        holders = [np.unique(dataset.private_patients[part]) for part in parts]
        assert sum(map(len, holders)) == len(np.unique(dataset.private_patients))


@settings(max_examples=150, deadline=None)
@given(world=_worlds(), text=st.sampled_from(WITHOUT_SITES), data=st.data())
def test_any_scheme_deals_every_record_once_with_patients_whole_and_no_party_empty(world, text, data):
    dataset, seed = world
    owners = np.arange(len(dataset.private_labels))
    units = owners if dataset.private_patients is None else dataset.private_patients
    most = len(np.unique(units))
    parties = data.draw(st.integers(1, most))
    scheme = parse_partition(text)
    parts = partition(dataset, parties=parties, scheme=scheme, seed=seed)
    _check_laws(parts, dataset, parties)
    again = partition(dataset, parties=parties, scheme=scheme, seed=seed)
    assert all(np.array_equal(one, other) for one, other in zip(parts, again, strict=True))
    with refuses(InvalidInput, 1, most):
        partition(dataset, parties=most + 1, scheme=scheme, seed=seed)


@settings(max_examples=80, deadline=None)
@given(world=_worlds(), data=st.data())
def test_by_site_keeps_sites_whole_for_any_number_of_parties_up_to_the_sites(world, data):
    dataset, seed = world
    sites = len(np.unique(dataset.private_sites))
    parties = data.draw(st.one_of(st.none(), st.integers(1, sites)))
    parts = partition(dataset, parties=parties, scheme=BySite(), seed=seed)
    _check_laws(parts, dataset, parties or sites)
    held = [np.unique(dataset.private_sites[part]) for part in parts]
    assert sum(map(len, held)) == sites
    with refuses(InvalidInput, 1, sites):
        partition(dataset, parties=sites + 1, scheme=BySite(), seed=seed)


@settings(max_examples=60, deadline=None)
@given(world=_worlds(), data=st.data())
def test_a_party_has_records_of_few_classes_and_classes_are_divided_evenly(world, data):
    dataset, seed = world
    patients = dataset.private_patients
    first = np.arange(len(dataset.private_labels)) if patients is None else np.unique(patients, return_index=True)[1]
    labels = dataset.private_labels[first]
    present = np.unique(labels)
    each = data.draw(st.integers(1, len(present)))
    least, most = -(-len(present) // each), len(labels)
    parties = data.draw(st.integers(least, most))
    parts = partition(dataset, parties=parties, scheme=ClassSkew(each), seed=seed)
    _check_laws(parts, dataset, parties)
    counts = np.array([np.bincount(labels[np.isin(first, part)], minlength=4) for part in parts])
    assert ((counts > 0).sum(axis=1) <= each).all()
    if parties * each <= min(np.bincount(labels)[present]):  # enough of each class for all that drew it
        for each_class in present:
            held = counts[:, each_class][counts[:, each_class] > 0]
            assert held.max() - held.min() <= 1
    if least > 1:
        with refuses(InvalidInput, least):
            partition(dataset, parties=least - 1, scheme=ClassSkew(each), seed=seed)
    with refuses(InvalidInput, 1, len(present)):
        partition(dataset, parties=most, scheme=ClassSkew(len(present) + 1), seed=seed)


def test_ranges_of_a_column_follow_each_other_and_another_column_is_refused():
    dataset = _dataset(np.zeros(101))
    year = dataset.private_inputs[:, 0]
    parts = partition(dataset, parties=4, scheme=ByColumn("year"), seed=0)
    assert sorted(map(len, parts)) == [25, 25, 25, 26]
    assert all(year[before].max() <= year[after].min() for before, after in pairwise(parts))
    for wrong in ("ward", "month"):
        with refuses(InvalidInput, "year"):
            partition(dataset, parties=4, scheme=ByColumn(wrong), seed=0)


def test_dirichlet_parties_are_of_nearly_equal_size_and_the_skew_falls_with_its_parameter():
    dataset = _dataset(np.arange(20_000) % 10, classes=10)
    dominance = []
    for concentration in (0.001, 0.5, 5.0, 1000.0):
        parts = partition(dataset, parties=100, scheme=LabelSkew(concentration), seed=3)
        sizes = np.array([len(part) for part in parts])
        assert sizes.min() > 180
        assert sizes.max() < 220
        shares = [np.bincount(dataset.private_labels[part]).max() / len(part) for part in parts]
        dominance.append(float(np.mean(shares)))
    assert dominance == sorted(dominance, reverse=True)
    assert dominance[0] > 0.85  # nearly one class per party
    assert dominance[-1] < 0.15  # nearly the pool's tenth of each class


@pytest.mark.parametrize(
    "text",
    ["", "random", "iid:1", "dirichlet", "dirichlet:", "dirichlet:x", "dirichlet:0", "dirichlet:-1"]
    + ["dirichlet:nan", "dirichlet:inf", "size-skew", "size-skew:-0.1", "size-skew:nan", "by-site:3"]
    + ["classes", "classes:0", "classes:1.5", "feature-skew", "feature-skew:-1", "feature-skew:nan", "by-column:"],
)
def test_an_unknown_scheme_or_parameter_is_refused_with_the_allowed_ones(text):
    with refuses(InvalidInput, "iid, dirichlet:A"):
        parse_partition(text)


def test_a_scheme_without_parties_and_a_data_set_without_sites_are_refused():
    dataset = _dataset([0, 1])
    with refuses(InvalidInput, 1, 2):
        partition(dataset, parties=None, scheme=Iid(), seed=0)
    with refuses(InvalidInput, "toy"):
        partition(dataset, parties=1, scheme=BySite(), seed=0)
    with refuses(InvalidInput, "parties", 0):
        partition(dataset, parties=0, scheme=Iid(), seed=0)


@settings(max_examples=80, deadline=None)
@given(world=_worlds(), data=st.data())
def test_teacher_shards_cover_a_partys_records_once_with_patients_whole(world, data):
    dataset, seed = world
    indices = np.flatnonzero(np.arange(len(dataset.private_labels)) % 3 != 1)
    patients = None if dataset.private_patients is None else dataset.private_patients[indices]
    most = len(indices) if patients is None else len(np.unique(patients))
    teachers = data.draw(st.integers(1, most))
    shards = teacher_shards(indices, patients, teachers, seed)
    assert len(shards) == teachers
    assert all(len(shard) for shard in shards)
    np.testing.assert_array_equal(np.sort(np.concatenate(shards)), indices)
    if patients is not None:
        held = [np.unique(dataset.private_patients[shard]) for shard in shards]
        assert sum(map(len, held)) == most
    for shard, again in zip(shards, teacher_shards(indices, patients, teachers, seed), strict=True):
        np.testing.assert_array_equal(shard, again)
    with refuses(InvalidInput, 1, most):
        teacher_shards(indices, patients, most + 1, seed)
