import io
import zipfile
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.labelling.study_creation import check_pool, read_pool, stored_pool, write_pool
from protocols.errors import ConclaveError, DataCorrupt, DataUnavailable, InvalidInput
from protocols.study.terms import Feature
from tests.harness.refusals import refuses
from tests.harness.studies import deployed_study, pool_of

POOL = np.arange(12, dtype=np.float32).reshape(4, 3)


@pytest.mark.parametrize("kind", ["npy", "npz", "npz of several", "csv"])
def test_a_pool_is_the_same_from_every_kind_of_file(tmp_path, kind):
    file = tmp_path / f"pool.{kind[:3]}"
    if kind == "npy":
        np.save(file, POOL.astype(np.float64))
    elif kind == "npz":
        np.savez(file, whatever=POOL)
    elif kind == "npz of several":
        np.savez_compressed(file, pool=POOL, other=POOL[:2])
    else:
        file.write_text("a,b,c\n" + "\n".join(",".join(map(str, row)) for row in POOL) + "\n")
    found = read_pool(file)
    assert found.dtype == np.float32
    assert (found == POOL).all()


def test_columns_of_a_csv_become_features_as_the_study_says(tmp_path):
    features = (
        Feature(column="age", kind="numeric", centre=50.0, scale=10.0),
        Feature(column="crp", kind="numeric", centre=0.0, scale=1.0, log=True, may_miss=True),
        Feature(column="sex", kind="categorical", categories=("f", "m"), may_miss=True),
    )
    file = tmp_path / "pool.csv"
    file.write_text("sex,other,age,crp\nm,x,60,0\nf,y,45,\n,z,50,1\n")
    expected = [[1.0, 0.0, 0, 0, 1], [-0.5, 0, 1, 1, 0], [0.0, np.log(2), 0, 0, 0]]
    np.testing.assert_allclose(read_pool(file, features=features), expected, rtol=1e-6)
    with refuses(InvalidInput, "other"):  # it may be a hospital's records
        read_pool(file, features=features, labels=("sick", "other"))


@pytest.mark.parametrize(
    ("feature", "value"),
    [
        (Feature(column="a", kind="numeric", centre=0.0, scale=1.0), ""),
        (Feature(column="a", kind="numeric", centre=0.0, scale=1.0), "1_0"),
        (Feature(column="a", kind="numeric", centre=0.0, scale=1.0, may_miss=True), "many"),
        (Feature(column="a", kind="numeric", centre=0.0, scale=1.0, log=True), "-1"),
        (Feature(column="a", kind="numeric", centre=0.0, scale=1.0), "1e999"),
        (Feature(column="a", kind="categorical", categories=("x",)), "y"),
        (Feature(column="a", kind="categorical", categories=("x",)), ""),
    ],
)
def test_a_value_that_the_study_does_not_allow_is_refused(tmp_path, feature, value):
    file = tmp_path / "pool.csv"
    file.write_text(f"a,b\n{value},1\n")
    with refuses(DataCorrupt, "a", 1):
        read_pool(file, features=(feature,))


def test_a_missing_column_is_named(tmp_path):
    file = tmp_path / "pool.csv"
    file.write_text("a\n1\n")
    with refuses(DataCorrupt, "age", 0):
        read_pool(file, features=(Feature(column="age", kind="numeric", centre=0.0, scale=1.0),))


@pytest.mark.parametrize(
    ("array", "said"),
    [
        (np.array([[1.0, np.nan], [np.inf, 1.0]]), r"query 0 .*2 of 2"),
        (np.full((2, 2), 1e39), "beyond float32"),
        (np.zeros(3), "allowed: \\[queries, features"),
        (np.zeros((0, 3)), "allowed: \\[queries, features"),
        (np.array([["a", "b"]]), "allowed: numbers"),
        (np.ones((2, 2), dtype=np.complex128), "allowed: numbers"),
    ],
)
def test_an_array_that_cannot_be_asked_is_refused(tmp_path, array, said):
    np.save(tmp_path / "pool.npy", array)
    with pytest.raises(InvalidInput, match=said):
        read_pool(tmp_path / "pool.npy")


def test_no_pickle_is_read(tmp_path):
    np.save(tmp_path / "pool.npy", np.array([[object()]]), allow_pickle=True)
    np.savez(tmp_path / "pool.npz", np.array([[{}]], dtype=object))
    for name in ("pool.npy", "pool.npz"):
        with refuses(DataCorrupt, "numbers or strings"):
            read_pool(tmp_path / name)


def test_an_archive_that_unpacks_to_far_more_is_not_unpacked(tmp_path):
    np.savez_compressed(tmp_path / "pool.npz", np.zeros((4000, 4000), dtype=np.float32))
    with refuses(DataCorrupt, "hundredfold"):
        read_pool(tmp_path / "pool.npz")


def test_what_is_not_there_or_of_another_kind_is_said(tmp_path):
    with pytest.raises(DataUnavailable):
        read_pool(tmp_path / "pool.npy")
    (tmp_path / "pool.pkl").write_bytes(b"x")
    with refuses(InvalidInput, ".csv", ".jsonl", ".parquet", ".npy", ".npz"):
        read_pool(tmp_path / "pool.pkl")
    np.savez(tmp_path / "pool.npz", a=POOL, b=POOL)
    with refuses(InvalidInput, "pool"):
        read_pool(tmp_path / "pool.npz")


def zipped(content):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("pool.npy", content)
    return buffer.getvalue()


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\n1,2\n"])
def test_a_table_without_a_header_is_refused(tmp_path, content):
    file = tmp_path / "pool.csv"
    file.write_bytes(content)
    with refuses(DataCorrupt, "header"):
        read_pool(file)


@given(
    kind=st.sampled_from([".npy", ".npz", ".csv"]),
    content=st.one_of(
        st.binary(max_size=200),
        st.binary(max_size=80).map(
            lambda more: b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False" + more
        ),
        st.binary(max_size=80).map(zipped),
        st.text(alphabet='1,"\n.ae-', max_size=60).map(str.encode),
    ),
)
def test_any_file_is_read_or_refused(tmp_path_factory, kind, content):
    file = tmp_path_factory.getbasetemp() / f"any{kind}"
    file.write_bytes(content)
    try:
        pool = read_pool(file)
    except ConclaveError:
        return
    assert np.isfinite(pool).all()
    assert pool.ndim >= 2


def test_a_pool_is_that_of_the_terms_or_refused():
    study = deployed_study(2)
    pool = pool_of(60, 4)
    check_pool(pool, study)
    changed = pool.copy()
    changed[3, 1] += 1e-6
    for other, said in ((pool[:, :3], "shape"), (pool[:59], "59 queries"), (changed, "hash")):
        with pytest.raises(InvalidInput, match=said):
            check_pool(other, study)


def test_a_kept_pool_is_checked_when_it_is_read(tmp_path):
    study = deployed_study(2)
    write_pool(tmp_path / "pool.npy", pool_of(60, 4))
    assert (stored_pool(tmp_path / "pool.npy", study) == pool_of(60, 4)).all()
    other = replace(study, terms=replace(study.terms, pool_sha256="0" * 64))
    with refuses(InvalidInput, "hash"):
        stored_pool(tmp_path / "pool.npy", other)
    (tmp_path / "pool.npy").write_bytes(b"junk")
    with refuses(DataCorrupt, "array"):
        stored_pool(tmp_path / "pool.npy", study)
    with pytest.raises(DataUnavailable):
        stored_pool(tmp_path / "none.npy", study)
