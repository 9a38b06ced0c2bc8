"""The pool that a hospital was sent: it must be the study's, and nothing else may then be asked."""

from dataclasses import replace

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.labelling.study_creation import read_pool as read_pool_as_operator
from party.data.queries import check_batch, keep_pool, read_pool_queries
from protocols.errors import DataUnavailable, InvalidInput
from protocols.study.queries import QueryBatch, pool_digest
from protocols.study.terms import Feature
from tests.harness.refusals import refused_for, refuses
from tests.harness.studies import deployed_study, pool_of

TERMS = deployed_study(3, pool=20, features=4).terms
POOL = pool_of(20, 4)


def test_the_studys_pool_is_kept_and_read_back(tmp_path):
    np.save(tmp_path / "given.npy", POOL.astype(np.float64))
    keep_pool(tmp_path / "given.npy", tmp_path / "pool.npy", TERMS)
    np.testing.assert_array_equal(read_pool_queries(tmp_path / "pool.npy", TERMS), POOL)


@pytest.mark.parametrize(
    "other", [POOL[:19], POOL[::-1], POOL.astype(np.float16), POOL + 1e-3, np.array(["text"]), POOL.T]
)
def test_another_pool_is_refused_and_nothing_is_kept(tmp_path, other):
    np.save(tmp_path / "given.npy", other)
    with refuses(InvalidInput, "allowed"):
        keep_pool(tmp_path / "given.npy", tmp_path / "pool.npy", TERMS)
    assert not (tmp_path / "pool.npy").exists()


def test_a_pool_that_is_not_finite_is_refused_though_the_study_names_it(tmp_path):
    pool = POOL.copy()
    pool[3, 1] = np.nan
    np.save(tmp_path / "given.npy", pool)
    with refuses(InvalidInput, "NaN"):
        keep_pool(tmp_path / "given.npy", tmp_path / "pool.npy", replace(TERMS, pool_sha256=pool_digest(pool)))


def test_a_table_of_the_pool_is_read_by_the_studys_terms_and_kept_as_what_is_asked(tmp_path):
    values = [["0.5", "yes"], ["", "no"], ["2", "yes"]]
    features = (
        Feature(column="a", kind="numeric", centre=0.0, scale=2.0, may_miss=True),
        Feature(column="b", kind="categorical", categories=("no", "yes")),
    )
    (tmp_path / "pool.csv").write_text("b,a\n" + "\n".join(f"{b},{a}" for a, b in values) + "\n")
    columns = {"b": [b for _, b in values], "a": [float(a or "nan") for a, _ in values]}
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "pool.parquet")
    pool = read_pool_as_operator(tmp_path / "pool.csv", features=features)
    terms = replace(TERMS, features=features, input_shape=pool.shape[1:], pool_size=3, pool_sha256=pool_digest(pool))
    np.testing.assert_array_equal(read_pool_as_operator(tmp_path / "pool.parquet", features=features), pool)
    np.savez(tmp_path / "pool.npz", pool)
    for kind in ("csv", "parquet", "npz"):
        np.testing.assert_array_equal(read_pool_queries(tmp_path / f"pool.{kind}", terms), pool)
        keep_pool(tmp_path / f"pool.{kind}", tmp_path / "pool.npy", terms)
        np.testing.assert_array_equal(np.load(tmp_path / "pool.npy"), pool)
    (tmp_path / "pool.csv").write_text("b,a\nyes,0.5\nno,1\nyes,2\n")
    with refuses(InvalidInput, "pool"):
        read_pool_queries(tmp_path / "pool.csv", terms)


@pytest.mark.parametrize("name", ["pool", "pool.CSV.gz"])
def test_a_pool_of_another_kind_is_refused_with_those_that_there_are(tmp_path, name):
    (tmp_path / name).write_bytes(b"x")
    with refuses(InvalidInput, ".csv", ".jsonl", ".parquet", ".npy", ".npz"):
        read_pool_queries(tmp_path / name, TERMS)


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_as_a_pool(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("pool") / "pool.npy"
    path.write_bytes(b"\x93NUMPY\x01\x00" + data)
    with refuses(InvalidInput, "allowed"):
        read_pool_queries(path, TERMS)


def test_a_pool_that_is_absent_is_named(tmp_path):
    with pytest.raises(DataUnavailable):
        read_pool_queries(tmp_path / "none.npy", TERMS)


def test_a_query_that_is_not_the_pools_at_its_position_is_refused():
    ids = np.array([2, 5])
    check_batch(QueryBatch(0, ids, POOL[ids]), POOL)
    altered = POOL[ids].copy()
    altered[1, 3] += 1e-6
    for batch in (QueryBatch(0, ids, altered), QueryBatch(0, ids, POOL[[5, 2]]), QueryBatch(0, ids + 15, POOL[ids])):
        with refused_for("other_pool"):
            check_batch(batch, POOL)
