"""A query of a database is a table as a file is; DICOM images are scaled by their bits."""

import sqlite3

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydicom.dataset import FileDataset, FileMetaDataset
from pydicom.uid import ExplicitVRLittleEndian, SecondaryCaptureImageStorage, generate_uid

from party.data import load_records
from party.data.database import SqlQuery
from party.data.dicom import DicomFolder
from party.data.mapping import DataMapping
from party.data.records import DataSettings
from party.settings import read_settings
from protocols.errors import ConclaveError, DataCorrupt
from tests.harness.refusals import refuses
from tests.unit.party.data.test_loaders import source, terms
from tests.unit.party.test_settings import GOOD


def test_a_query_gives_the_records_of_the_same_table_as_a_file(tmp_path):
    with sqlite3.connect(tmp_path / "ward.sqlite") as connection:
        connection.execute("CREATE TABLE ward (id TEXT, age REAL, dose REAL, ward TEXT, state TEXT)")
        rows = [("p1", 60, None, "A", "krank"), ("p2", 50.5, 0.5, None, "well")]
        connection.executemany("INSERT INTO ward VALUES (?, ?, ?, ?, ?)", rows)
    connection.close()
    (tmp_path / "q.sql").write_text("SELECT * FROM ward ORDER BY id")
    mapping = DataMapping(values={"state": {"krank": "ill"}})
    query = SqlQuery(f"sqlite:///{tmp_path / 'ward.sqlite'}", tmp_path / "q.sql")
    found = load_records(DataSettings(name="d", loader="sql", source=query, patient="id", mapping=mapping), terms())
    (tmp_path / "a.csv").write_text("id,age,dose,ward,state\np1,60,,A,ill\np2,50.5,0.5,,well\n")
    assert found.digest == load_records(source(tmp_path / "a.csv", patient="id"), terms()).digest
    text = GOOD.replace(
        'path = "records.csv"\nloader = "csv"', 'url = "sqlite:///ward.sqlite"\nquery = "q.sql"\nloader = "sql"'
    )
    (tmp_path / "node.toml").write_text(text)
    assert read_settings(tmp_path / "node.toml").data.source == query


def image(path, pixels, *, bits=12, photometric="MONOCHROME2"):
    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID = SecondaryCaptureImageStorage, generate_uid()
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    found = FileDataset(str(path), {}, file_meta=meta, preamble=bytes(128))
    found.Rows, found.Columns = pixels.shape[:2]
    found.SamplesPerPixel = 1 if pixels.ndim == 2 else 3
    found.PhotometricInterpretation = photometric if pixels.ndim == 2 else "RGB"
    found.BitsAllocated, found.BitsStored, found.HighBit = (16, bits, bits - 1) if pixels.ndim == 2 else (8, 8, 7)
    found.PixelRepresentation = 0
    if pixels.ndim == 3:
        found.PlanarConfiguration = 0
    found.PixelData = pixels.astype("<u2" if pixels.ndim == 2 else "u1").tobytes()
    found.save_as(path, enforce_file_format=True)


def dicom(tmp_path, **more):
    return DataSettings(name="d", loader="dicom", source=DicomFolder(tmp_path, tmp_path / "l.csv"), **more)


def test_dicom_images_are_scaled_by_their_bits_and_labelled_by_a_table(tmp_path):
    image(tmp_path / "a.dcm", np.array([[0, 4095], [2047, 0]]))
    image(tmp_path / "b.dcm", np.array([[0, 4095], [2047, 0]]), photometric="MONOCHROME1")
    (tmp_path / "l.csv").write_text("file,who,state\na.dcm,p1,ill\nb.dcm,p1,well\n")
    records = load_records(dicom(tmp_path, patient="who"), terms((), (2, 2)))
    np.testing.assert_allclose(records.inputs[0], [[0, 1], [2047 / 4095, 0]])
    np.testing.assert_allclose(records.inputs[1], 1 - records.inputs[0], atol=1e-6)
    assert records.labels.tolist() == [0, 1]
    assert records.patients == ["p1", "p1"]


def test_colour_images_have_three_channels(tmp_path):
    image(tmp_path / "a.dcm", np.full((2, 2, 3), [255, 0, 51]))
    (tmp_path / "l.csv").write_text("file,state\na.dcm,ill\n")
    records = load_records(dicom(tmp_path), terms((), (2, 2, 3)))
    np.testing.assert_allclose(records.inputs[0, 0, 0], [1, 0, 0.2])
    with refuses(DataCorrupt, 1, 2, 3, 8):
        load_records(dicom(tmp_path), terms((), (2, 2)))


@pytest.mark.parametrize("content", [b"", b"DICM", bytes(128) + b"DICM" + bytes(range(200))])
def test_what_is_no_dicom_image_is_refused_with_its_row(tmp_path, content):
    (tmp_path / "a.dcm").write_bytes(content)
    (tmp_path / "l.csv").write_text("file,state\na.dcm,ill\n")
    with refuses(DataCorrupt, "row 1"):
        load_records(dicom(tmp_path), terms((), (2, 2)))
    (tmp_path / "l.csv").write_text("file,state\n../a.dcm,ill\n")
    with refuses(DataCorrupt, "a name in it"):
        load_records(dicom(tmp_path), terms((), (2, 2)))


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.tuples(st.integers(128, 700), st.integers(0, 255)), min_size=1, max_size=5), st.integers(0, 900))
def test_a_damaged_dicom_image_is_read_or_refused_with_an_error_of_ours(tmp_path, changes, end):
    image(tmp_path / "a.dcm", np.array([[0, 4095], [2047, 0]]))
    content = bytearray((tmp_path / "a.dcm").read_bytes())
    for place, value in changes:
        content[place % len(content)] = value
    (tmp_path / "a.dcm").write_bytes(bytes(content[: end if end > 600 else None]))
    (tmp_path / "l.csv").write_text("file,state\na.dcm,ill\n")
    try:
        records = load_records(dicom(tmp_path), terms((), (2, 2)))
    except ConclaveError:
        return
    assert ((records.inputs >= 0) & (records.inputs <= 1)).all()
