"""Columns of text at a hospital: the same from every kind of file, and refused by row, without showing a note."""

import json
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from party.data import load_records, of_file
from party.data.files import CsvFile
from party.data.mapping import DataMapping
from party.data.quality import examine_rows
from party.data.queries import own_records, read_queries
from party.data.records import DataSettings
from protocols.errors import ConclaveError, DataCorrupt
from protocols.features.texts import MOST_CHARACTERS, gram_vectors
from protocols.study.features import read_column
from protocols.study.terms import Feature
from runtime.tables import read_pool_file
from tests.harness.refusals import refuses
from tests.harness.terms import terms_of

NOTE = Feature(column="note", kind="text", vectors="grams:64")
AGE = Feature(column="age", kind="numeric", centre=50.0, scale=10.0)
TEXTS = ['Pt c/o "crushing" chest pain,\nSOB', "denies ° fever; 2× fall"]
TERMS = terms_of((NOTE, AGE), label="ill", classes=("no", "yes"), shape=(65,))


def quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def csv_of(folder: Path, *notes: str, name: str = "a.csv") -> DataSettings:
    rows = "".join(f"{quoted(note)},60,no\n" for note in notes)
    (folder / name).write_text(f"note,age,ill\n{rows}", encoding="utf-8", newline="")
    return DataSettings(name="d", loader="csv", source=CsvFile(folder / name))


def test_notes_of_every_kind_of_file_are_the_same_records(tmp_path):
    from_csv = load_records(csv_of(tmp_path, *TEXTS), TERMS)
    np.testing.assert_array_equal(from_csv.inputs[:, :64], gram_vectors(TEXTS, 64))
    np.testing.assert_array_equal(from_csv.inputs[:, 64], 1.0)
    rows = [{"note": text, "age": 60, "ill": "no"} for text in TEXTS]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    lines = "\ufeff" + "\n\n".join(json.dumps(row, ensure_ascii=row is rows[0]) for row in rows)
    (tmp_path / "a.jsonl").write_text(lines, encoding="utf-8")
    for name in ("a.parquet", "a.jsonl"):
        other = of_file(csv_of(tmp_path), tmp_path / name)
        assert load_records(other, TERMS).digest == from_csv.digest
        np.testing.assert_array_equal(read_queries(tmp_path / name, other, TERMS), from_csv.inputs)
        pool = read_pool_file(tmp_path / name, (NOTE, AGE), mapped=False)
        np.testing.assert_array_equal(pool, from_csv.inputs)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "missing"),
        ("NA", "missing"),
        (" -- ", "a text of 4 characters"),
        ("Mrs Smith \ufffd", "a text of 11 characters"),
        ("Mrs Smith \0", "a text of 11 characters"),
        ("\ufffd\ufffd", "a text of 2 characters"),
        # Letters that came after Unicode 3.2 are no words, and are not shown either.
        ("\u07ca\u07cb\u07cc", "a text of 3 characters"),
        ("Smith " * (MOST_CHARACTERS // 6 + 1), f"a text of {MOST_CHARACTERS + 2} characters"),
    ],
    ids=["empty", "missing", "no word", "not read", "zero", "no word and not read", "later letters", "long"],
)
def test_a_note_that_is_none_is_refused_by_its_row_and_not_shown(tmp_path, text, found):
    settings = csv_of(tmp_path, TEXTS[0], text, TEXTS[1])
    with pytest.raises(DataCorrupt) as error:
        load_records(settings, TERMS)
    for word in ("a.csv", "'note'", "row 2", found, f"at most {MOST_CHARACTERS} characters"):
        assert word in str(error.value)
    assert "Smith" not in str(error.value)
    quality = examine_rows(settings, TERMS)
    problems = {each.column: each for each in quality.problems if each.column}
    # A sign that people write where there is nothing is proposed as a missing value.
    assert set(problems) == {"note"}
    assert problems["note"].rows == (2,)
    assert problems["note"].values == ((text,) if found == "missing" else (found,))
    left_out = DataSettings(
        name="d", loader="csv", source=settings.source, mapping=DataMapping(unusable={"note": "leave out"})
    )
    assert load_records(left_out, TERMS).usable.tolist() == [True, False, True]


def test_a_note_without_a_word_is_all_0_where_the_study_allows_it(tmp_path):
    terms = terms_of(
        (Feature(column="note", kind="text", vectors="grams:64", may_miss=True),),
        label="ill", classes=("no", "yes"), shape=(64,),
    )  # fmt: skip
    settings = csv_of(tmp_path, "NA", ":-)", TEXTS[0])
    assert load_records(settings, terms).inputs.any(axis=1).tolist() == [False, False, True]
    assert examine_rows(settings, terms).columns[0].missing == 2
    for text in ("a\0", "\ufffd\ufffd"):
        with refuses(DataCorrupt, 1, "a text of 2 characters"):
            load_records(csv_of(tmp_path, text), terms)
    assert read_column(terms.features[0], ["a \ud800"], missing=()).wrong.all()


def test_other_bytes_than_the_encoding_has_are_refused_and_a_mapping_reads_them(tmp_path):
    (tmp_path / "a.csv").write_bytes("note,age,ill\nFièvre élevée,60,no\n".encode("cp1252"))
    settings = DataSettings(name="d", loader="csv", source=CsvFile(tmp_path / "a.csv"))
    with refuses(DataCorrupt, "CSV", "utf-8"):
        load_records(settings, TERMS)
    mapping = examine_rows(settings, TERMS).mapping
    read = load_records(DataSettings(name="d", loader="csv", source=settings.source, mapping=mapping), TERMS)
    np.testing.assert_array_equal(read.inputs[:, :64], gram_vectors(["fièvre élevée"], 64))


@settings(max_examples=40, deadline=None)
@given(st.sampled_from([".csv", ".jsonl"]), st.binary(max_size=80), st.booleans())
def test_any_bytes_as_a_note_are_read_or_refused(tmp_path_factory, suffix, content, quotes):
    path = tmp_path_factory.mktemp("notes") / f"a{suffix}"
    mark = b'"' if quotes else b""
    whole = b"note\n" + mark + content + mark + b"\n" if suffix == ".csv" else b'{"note": "' + content + b'"}\n'
    path.write_bytes(whole)
    terms = terms_of((NOTE,), label="ill", classes=("no", "yes"), shape=(64,))
    given_settings = DataSettings(name="d", loader="csv", source=CsvFile(path))
    try:
        inputs, labels, used = own_records(given_settings, path, terms)
    except ConclaveError:
        return
    assert labels is None
    assert used.all()
    assert np.isfinite(inputs).all()


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (b'{"note": "a b", "ill": ["no"]}\n', "row 1: 'ill' is list"),
        (b'{"note": "a b", "ill": "no"}\n[1]\n', "row 2 is no object"),
        (b'{"note": "a b"}\n', "column 'ill' occurs 0 times"),
        (b'{"note": "a \\ud800", "ill": "no"}\n', "row 1: a string holds half of a surrogate pair"),
        (b'{"note": "\xff", "ill": "no"}\n', "row 1 is not JSON"),
        (b"", "no rows"),
    ],
)
def test_json_lines_that_are_none_are_refused_by_row(tmp_path, lines, words):
    (tmp_path / "a.jsonl").write_bytes(lines)
    terms = terms_of((NOTE,), label="ill", classes=("no", "yes"), shape=(64,))
    with pytest.raises(DataCorrupt, match=words):
        load_records(of_file(csv_of(tmp_path), tmp_path / "a.jsonl"), terms)
