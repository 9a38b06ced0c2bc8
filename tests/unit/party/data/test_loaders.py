import io
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from party.data import LOADERS, load_records, source_kind
from party.data.mapping import DataMapping
from party.data.records import DataSettings
from protocols.errors import ConclaveError, DataCorrupt, DataUnavailable, InvalidInput
from protocols.study.terms import Feature
from tests.harness.distributions import install, refreshed
from tests.harness.refusals import refuses
from tests.harness.terms import terms_of

FEATURES = (
    Feature(column="age", kind="numeric", centre=50.0, scale=10.0),
    Feature(column="dose", kind="numeric", centre=0.0, scale=1.0, log=True, may_miss=True),
    Feature(column="ward", kind="categorical", categories=("A", "B"), may_miss=True),
)


def terms(features=FEATURES, shape=(5,), classes=("ill", "well")):
    return terms_of(features, label="state", classes=classes, shape=shape)


def source(path, loader="csv", **more):
    return DataSettings(name="d", loader=loader, source=source_kind(loader)(Path(path)), **more)


def csv_of(tmp_path, *rows, header="id,age,dose,ward,state"):
    path = tmp_path / "records.csv"
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def test_a_table_is_encoded_by_the_terms_alone(tmp_path):
    path = csv_of(tmp_path, "p1,60,,A,ill", "p1, 40 ,1.718281828459045,?,well", "p2,50,0,B,well")
    records = load_records(source(path, patient="id"), terms())
    np.testing.assert_allclose(records.inputs, [[1, 0, 1, 1, 0], [-1, 1, 0, 0, 0], [0, 0, 0, 0, 1]], atol=1e-6)
    np.testing.assert_array_equal(records.labels, [0, 1, 1])
    assert records.patients == ["p1", "p1", "p2"]


def test_a_parquet_table_holds_the_same_records_as_its_csv(tmp_path):
    path = csv_of(tmp_path, "p1,60,,A,ill", "p2,50,0.5,,well")
    table = pyarrow.table(
        {
            "id": ["p1", "p2"],
            "age": [60, 50],
            "dose": [float("nan"), 0.5],
            "ward": ["A", None],
            "state": ["ill", "well"],
        }
    )
    pyarrow.parquet.write_table(table, tmp_path / "records.parquet")
    one = load_records(source(path, patient="id"), terms())
    other = load_records(source(tmp_path / "records.parquet", "parquet", patient="id"), terms())
    assert one.digest == other.digest


def test_own_names_of_columns_and_classes_are_translated(tmp_path):
    path = csv_of(tmp_path, "60,1,A,krank", header="Alter,dose,ward,state")
    records = load_records(
        source(path, mapping=DataMapping(columns={"age": "Alter"}, values={"state": {"krank": "ill"}})), terms()
    )
    np.testing.assert_array_equal(records.labels, [0])


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (["p,old,1,A,ill"], ["'age'", "row 1", "3 characters", "a finite number"]),
        (["p,1,1,A,ill", "p,,1,A,ill"], ["'age'", "row 2", "missing", "a finite number"]),
        (["p,1e999,1,A,ill"], ["'age'", "row 1", "5 characters"]),
        (["p,1_0,1,A,ill"], ["'age'", "3 characters"]),
        (["p,1,-1,A,ill"], ["'dose'", "2 characters", "above -1 or missing"]),
        (["p,1,1,C,ill"], ["'ward'", "1 characters", "A, B or missing"]),
        (["p,1,1,A,dead"], ["'state'", "4 characters", "ill, well"]),
        (["p,1,1,A"], ["row 1", "4 fields", "allowed: 5"]),
        ([], ["no rows"]),
    ],
)
def test_a_wrong_value_is_named_with_file_column_row_and_what_is_allowed(tmp_path, rows, words):
    with pytest.raises(DataCorrupt) as error:
        load_records(source(csv_of(tmp_path, *rows)), terms())
    for word in ["records.csv", *words]:
        assert word in str(error.value)


def test_a_missing_file_column_and_loader_are_named(tmp_path):
    with refuses(DataUnavailable, "nowhere.csv"):
        load_records(source(tmp_path / "nowhere.csv"), terms())
    with refuses(DataCorrupt, "ward", 0):
        load_records(source(csv_of(tmp_path, "1,2,ill", header="age,dose,state")), terms())
    with refuses(DataCorrupt, "age", 2):
        load_records(source(csv_of(tmp_path, header="age,age,dose,ward,state")), terms())
    with refuses(InvalidInput, "csv, parquet, npz, images"):
        load_records(source(tmp_path, "pickle"), terms())


def arrays(tmp_path, **values):
    np.savez(tmp_path / "records.npz", **values)
    return source(tmp_path / "records.npz", "npz", patient="who" if "who" in values else "")


def test_arrays_are_read_with_ids_or_names_of_classes(tmp_path):
    plain = terms((), (2,))
    inputs = np.arange(6.0).reshape(3, 2)
    ids = load_records(arrays(tmp_path, inputs=inputs, labels=np.array([0, 1, 1])), plain)
    named = load_records(
        arrays(tmp_path, inputs=np.asfortranarray(inputs), labels=np.array(["ill", "well", "well"])), plain
    )
    assert ids.digest == named.digest
    assert load_records(
        arrays(tmp_path, inputs=inputs, labels=ids.labels, who=np.array(list("aab"))), plain
    ).patients == ["a", "a", "b"]


def test_findings_are_read_from_columns_and_arrays_and_what_is_empty_is_not_known(tmp_path):
    several = replace(terms(classes=("no", "yes")), label="", findings=("effusion", "oedema", "nodule"))
    path = csv_of(tmp_path, "60,,A,yes,1.0", "50,0,B,,-1.0", "50,0,B,no,x", header="age,dose,ward,effusion,Oed")
    words = {"oedema": {"1.0": "yes", "-1.0": ""}}
    mapping = DataMapping(columns={"oedema": "Oed", "nodule": ""}, values=words)
    with refuses(DataCorrupt, "Oed", 3):
        load_records(source(path, mapping=mapping), several)
    expected = [[1, 1, -1], [-1, -1, -1], [0, -1, -1]]
    read = load_records(source(path, mapping=replace(mapping, unusable={"oedema": "missing"})), several)
    np.testing.assert_array_equal(read.labels, expected)
    left = load_records(source(path, mapping=replace(mapping, unusable={"oedema": "leave out"})), several)
    assert left.usable.tolist() == [True, True, False]
    np.savez(tmp_path / "a.npz", inputs=read.inputs, labels=np.array(expected))
    arrays = load_records(source(tmp_path / "a.npz", "npz"), several)
    np.testing.assert_array_equal(arrays.labels, expected)
    assert arrays.of_finding(1).usable.tolist() == [True, False, False]
    for wrong in ([[2, 0, 0]] * 3, [[1, 0]] * 3, [1, 0, 1]):
        np.savez(tmp_path / "b.npz", inputs=read.inputs, labels=np.array(wrong))
        with refuses(DataCorrupt):
            load_records(source(tmp_path / "b.npz", "npz"), several)


def test_an_archive_with_a_pickle_or_a_lying_header_is_refused(tmp_path):
    plain = terms((), (2,))
    np.savez(tmp_path / "o.npz", inputs=np.array([{"a": 1}], dtype=object), labels=np.array([0]))
    with refuses(DataCorrupt, "numbers or strings"):
        load_records(source(tmp_path / "o.npz", "npz"), plain)
    content = io.BytesIO()
    np.lib.format.write_array_header_1_0(content, {"descr": "<f8", "fortran_order": False, "shape": (2**40, 2)})
    with zipfile.ZipFile(tmp_path / "big.npz", "w") as archive:
        archive.writestr("inputs.npy", content.getvalue())
        archive.writestr("labels.npy", content.getvalue())
    with refuses(DataCorrupt, "0 bytes"):
        load_records(source(tmp_path / "big.npz", "npz"), plain)
    for values, words in (
        ({"inputs": np.array([[1.0, np.nan]]), "labels": np.array([0])}, "NaN"),
        ({"inputs": np.array([[1.0, 2.0]]), "labels": np.array([2])}, "class 2; allowed: 0 to 1"),
        ({"inputs": np.array([[1.0, 2.0, 3.0]]), "labels": np.array([0])}, "shape"),
        ({"inputs": np.array([[1.0, 2.0]]), "labels": np.array([0, 1])}, "one each"),
        ({"inputs": np.array([[1.0, 2.0]]), "labels": np.array([2**64 - 1], np.uint64)}, "allowed: 0 to 1"),
        ({"inputs": np.array([[1e300, 2.0]]), "labels": np.array([0])}, "NaN or infinite"),
        ({"inputs": np.array([[1.0, 2.0]])}, "no array 'labels'"),
    ):
        with pytest.raises(DataCorrupt, match=words):
            load_records(arrays(tmp_path, **values), plain)


def test_images_lie_in_one_folder_a_class(tmp_path):
    for name, shade in (("ill/p1_a.png", 0), ("ill/p1_b.png", 255), ("well/p2_a.png", 51)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.new("L", (4, 3), shade).save(tmp_path / name)
    records = load_records(source(tmp_path, "images", patient="_"), terms((), (3, 4)))
    assert records.inputs.shape == (3, 3, 4)
    np.testing.assert_allclose(records.inputs[:, 0, 0], [0, 1, 0.2], atol=1e-6)
    assert records.patients == ["p1", "p1", "p2"]
    with refuses(DataCorrupt, 3, 4, 8):
        load_records(source(tmp_path, "images"), terms((), (8, 8)))
    (tmp_path / "well" / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\nno")
    with refuses(DataCorrupt, "broken.png"):
        load_records(source(tmp_path, "images"), terms((), (3, 4)))


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=400), st.sampled_from(["csv", "parquet", "npz"]))
def test_any_bytes_are_read_or_refused_with_an_error_of_ours(tmp_path, content, loader):
    path = tmp_path / "fuzz"
    path.write_bytes(content)
    with pytest.raises(ConclaveError):
        load_records(source(path, loader), terms())


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_damaged_file_is_read_or_refused_with_an_error_of_ours(tmp_path, data):
    np.savez(tmp_path / "a.npz", inputs=np.ones((3, 5), np.float32), labels=np.array([0, 1, 0]))
    pyarrow.parquet.write_table(
        pyarrow.table({"age": [1.0], "dose": [1.0], "ward": ["A"], "state": ["ill"]}), tmp_path / "a.parquet"
    )
    (tmp_path / "a.csv").write_text("age,dose,ward,state\n1,1,A,ill\n2,,B,well\n")
    loader = data.draw(st.sampled_from(["npz", "parquet", "csv"]))
    content = bytearray((tmp_path / f"a.{loader}").read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path / "damaged"
    path.write_bytes(bytes(content[: data.draw(st.integers(1, len(content)))]))
    try:
        records = load_records(source(path, loader), terms())
    except ConclaveError:
        return
    assert records.inputs.shape[1:] == (5,)
    assert np.isfinite(records.inputs).all()


@given(
    st.lists(
        st.tuples(st.text(max_size=6), st.text(max_size=6), st.sampled_from("AB?X"), st.sampled_from(["ill", "no"])),
        min_size=1,
        max_size=5,
    )
)
def test_any_table_of_texts_gives_finite_inputs_or_an_error_that_names_the_row(rows):
    from party.data.records import table_records

    columns = {name: [row[at] for row in rows] for at, name in enumerate(["age", "dose", "ward", "state"])}
    said = "row"
    try:
        assert np.isfinite(table_records(columns, source("f.csv"), terms()).inputs).all()
    except DataCorrupt as error:
        said = str(error)
    assert "row" in said


def test_an_installed_loader_is_found_by_its_name_and_held_to_the_terms(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    code = """
import numpy as np
from party.data.records import Records
from party.data.records import Source

class Stored(Source):
    shown = "the warehouse"

    def __init__(self, ward):
        self.ward = ward

    @classmethod
    def of(cls, table, base):
        return cls(table.text("ward"))

    def records(self, settings, terms):
        value = 1.0 if settings.patient else np.nan
        patients = ["a", "b"] if settings.patient == "x" else None
        return Records(np.full((2, *terms.input_shape), value, np.float32), np.array([0, 1]), patients)
"""
    install(tmp_path, name="stored", group="conclave.loaders", entries={"warehouse": "stored:Stored"}, source=code)
    monkeypatch.setattr("party.data.LOADERS", refreshed(LOADERS))
    assert len(load_records(source(tmp_path, "warehouse", patient="x"), terms()).labels) == 2
    with refuses(DataCorrupt, 1, "NaN"):
        load_records(source(tmp_path, "warehouse"), terms())
    with refuses(DataCorrupt, "warehouse", "data.patient", "y"):
        load_records(source(tmp_path, "warehouse", patient="y"), terms())
    with refuses(InvalidInput, "dicom, warehouse"):
        load_records(source(tmp_path, "lake"), terms())
