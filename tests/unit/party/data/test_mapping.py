"""A mapping file says what it was given to say, and a number is read in the form that it states or not at all."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from party.data.mapping import DataMapping, Form, mapping_toml, plain_number, read_mapping, reads
from party.data.quality import meant, number_forms
from protocols.errors import InvalidInput
from protocols.study.features import read_numbers
from tests.harness.refusals import refuses

NAMES = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=5)
WORDS = st.dictionaries(NAMES, NAMES, max_size=3)
MAPPINGS = st.builds(
    DataMapping,
    form=st.builds(
        Form,
        delimiter=st.sampled_from([None, ";", "\t"]),
        encoding=st.sampled_from([None, "cp1252"]),
        decimal=st.sampled_from([None, ","]),
        thousands=st.sampled_from([None, "", " ", "'"]),
        missing=st.lists(NAMES, min_size=1, max_size=3).map(tuple),
    ),
    columns=WORDS,
    values=st.dictionaries(NAMES, WORDS.filter(bool), max_size=2),
    unusable=st.dictionaries(NAMES, st.sampled_from(["missing", "leave out", "clip"]), max_size=2),
)


@given(MAPPINGS)
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, mapping: DataMapping) -> None:
    path = tmp_path_factory.getbasetemp() / "mapping.toml"
    path.write_text(mapping_toml(mapping, notes={"age": ["row 3"]}), encoding="utf-8")
    assert read_mapping(path) == mapping


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('delimiter = "-"', ("delimiter", "-")),
        ('encoding = "utf-7"', ("encoding", "utf-7")),
        ('decimal = ","\nthousands = ","', (",",)),
        ('thousands = "."', (".",)),
        ('[unusable]\nage = "guess"', ("age", "unusable.age", "guess")),
        ("[values]\nsex = 3", ("sex", "values.sex", 3)),
        ("more = 1", ("more",)),
    ],
)
def test_a_key_that_is_wrong_is_named(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "mapping.toml").write_text(text)
    with refuses(InvalidInput, *words):
        read_mapping(tmp_path / "mapping.toml")


@given(
    st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**12), max_value=10**12, places=3),
    st.sampled_from([(",", ""), (",", "."), (".", ","), (",", " "), (".", "'"), (".", " ")]),
)
def test_a_number_written_in_a_form_is_read_in_it(value, pair: tuple[str, str]) -> None:
    decimal, thousands = pair
    written = f"{value:,f}" if thousands else f"{value:f}"
    written = written.translate(str.maketrans({",": thousands or ",", ".": decimal}))
    form = Form(decimal=decimal, thousands=thousands)
    assert reads(written, form)
    np.testing.assert_equal(read_numbers([plain_number(written, form)])[0], float(value))


@pytest.mark.parametrize("text", ["1.5", "1.234", "1,2,3", "140 mmHg", "<5", "12/13", "1 23", ",", "", "1.234,5"])
def test_what_is_no_number_in_a_form_is_refused_and_never_read_another_way(text: str) -> None:
    form = Form(decimal=",")
    assert not reads(text, form)
    assert np.isnan(read_numbers([plain_number(text, form)])[0])


@pytest.mark.parametrize(
    ("texts", "forms"),
    [
        (["63", "2,3"], [(",", "")]),
        (["1.234,5", "7"], [(",", ".")]),
        (["1,234.5", "7"], [(".", ",")]),
        (["1 234,5"], [(",", " ")]),
        (["1’234.5"], [(".", "'")]),
        (["1.5", "2"], []),
        (["63", "1,234"], [(",", ""), (".", ",")]),
    ],
)
def test_the_form_of_numbers_is_proposed_where_they_decide_it(texts: list[str], forms: list[tuple[str, str]]) -> None:
    assert number_forms(texts) == forms


@pytest.mark.parametrize(
    ("text", "names", "name"),
    [
        ("Male", ("female", "male"), "male"),
        ("m", ("female", "male"), "male"),
        ("w", ("female", "male"), "female"),
        (" F ", ("female", "male"), "female"),
        ("1.0", ("0", "1"), "1"),
        ("Ja", ("no", "yes"), "yes"),
        ("1", ("female", "male"), None),
        ("x", ("female", "male"), None),
        ("m", ("male", "Mann"), None),
    ],
)
def test_a_word_is_proposed_where_one_name_alone_can_be_meant(
    text: str, names: tuple[str, ...], name: str | None
) -> None:
    assert meant(text, names) == name
