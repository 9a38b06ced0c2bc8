"""Exports as hospitals have them: all that keeps one from being read is found at once, and settled by a mapping."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from party.data import load_records
from party.data.files import CsvFile
from party.data.mapping import DataMapping, mapping_toml, read_mapping
from party.data.quality import Quality, examine_rows
from party.data.records import DataSettings
from protocols.errors import DataCorrupt, InvalidInput
from protocols.study.terms import Feature
from tests.harness.refusals import refuses
from tests.harness.terms import terms_of

FEATURES = (
    Feature(column="age", kind="numeric", centre=54.0, scale=9.0, least=18, most=110),
    Feature(column="chol", kind="numeric", centre=230.0, scale=60.0, may_miss=True),
    Feature(column="sex", kind="categorical", categories=("female", "male")),
)
TERMS = terms_of(FEATURES, label="ill", classes=("no", "yes"), shape=(5,))
PLAIN = "age,chol,sex,ill\n63,233,male,yes\n41,,female,no\n"


def settings_of(folder: Path, content: str | bytes, *, name: str = "a.csv", **more: str) -> DataSettings:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return DataSettings(name="d", loader="csv", source=CsvFile(path), **more)


def settled(settings: DataSettings) -> DataSettings:
    """With what is proposed, which leaves nothing open."""
    quality = examine_rows(settings, TERMS)
    assert not quality.problems
    again = replace(settings, mapping=quality.mapping)
    assert not examine_rows(again, TERMS).proposals
    return again


def proposed(quality: Quality) -> set[tuple[str, str, str]]:
    return {(each.column, each.own, each.study) for each in quality.proposals}


@pytest.mark.parametrize(
    "content",
    [
        "age;chol;sex;ill\r\n63;233,0;m;ja\r\n41;-;w;nein\r\n".encode("cp1252"),
        b"\xef\xbb\xbf" + '"age";chol;sex;ill\n63;233,0;männlich;ja\n41;-;w;nein\n'.encode("latin-1"),
        "\ufeffAge\tChol\tSex\tIll\n63\t233\tMale\tYES\n41\t.\tFemale\tNo\n".encode(),
        'age;chol;sex;ill;"Übung"\r\n"63";233;"m";y;1\r\n41;n/a;f;n;2\r\n'.encode("cp1252"),
        "age\tchol\tsex\till\r\n63.0\t2.33e2\tM\tyes\r\n41\tNULL\tF\tno\r\n".encode("utf-16"),
        b"age|chol|sex|ill\n63,0|233,00|male|yes\n 41|k.A.|female|no\n",
    ],
    ids=["german", "joined with a mark", "capitals", "other columns", "utf-16", "bars"],
)
def test_a_messy_export_gives_the_records_of_a_plain_one_once_its_mapping_is_agreed(
    tmp_path: Path, content: bytes
) -> None:
    messy = settings_of(tmp_path, content)
    with pytest.raises(DataCorrupt):
        load_records(messy, TERMS)
    plain = load_records(settings_of(tmp_path, PLAIN, name="plain.csv"), TERMS)
    assert load_records(settled(messy), TERMS).digest == plain.digest


def test_a_plain_export_needs_no_mapping(tmp_path: Path) -> None:
    quality = examine_rows(settings_of(tmp_path, PLAIN), TERMS)
    assert quality.rows == 2
    assert not quality.problems
    assert not quality.proposals
    assert [each.missing for each in quality.columns] == [0, 1, 0]


def test_all_problems_are_named_at_once_with_their_rows(tmp_path: Path) -> None:
    rows = "age,chol,sex,ill,who\n4400,1,male,yes,a\n,99999,male,no,b\n50,<5,1,maybe,\n1980-01-02,5,male,no,c\n"
    quality = examine_rows(settings_of(tmp_path, rows, patient="who"), TERMS)
    found = {(each.column or each.own, each.rows): (each.found, each.values) for each in quality.problems}
    assert {key for key in found} == {
        ("age", (1,)), ("age", (2,)), ("age", (4,)), ("chol", (3,)), ("chol", (2,)), ("sex", (3,)), ("ill", (3,)),
        ("who", (3,)),
    }  # fmt: skip
    assert found["age", (1,)] == ("cannot be used; allowed: a finite number from 18 up to 110", ("4400",))
    assert found["chol", (2,)][0].startswith("allowed: -370 to 830, as others are too far")
    assert "a date" in found["age", (4,)][0]
    assert "4400" not in repr(quality), "a record's value is not in what may be logged"
    assert not quality.proposals, "a code is never guessed"


def test_columns_that_are_absent_are_named_together_with_what_else_is_wrong(tmp_path: Path) -> None:
    quality = examine_rows(settings_of(tmp_path, "Alter;Cholesterin;SEX;ill\n63;233;x;yes\n41;2;m;no\n"), TERMS)
    assert {each.column for each in quality.problems} == {"age", "chol", "sex", ""}
    assert ("sex", "SEX", "sex") in proposed(quality)
    assert any("perhaps Cholesterin" in each.found for each in quality.problems)


def test_a_file_of_which_no_column_is_known_is_not_said_to_have_no_rows(tmp_path: Path) -> None:
    quality = examine_rows(settings_of(tmp_path, "Alter;Befund\n63;ja\n"), TERMS)
    assert not any("no rows" in each.found for each in quality.problems)
    (without,) = examine_rows(settings_of(tmp_path, "age,chol,sex,ill\n"), TERMS).problems
    assert without.found == "there are no rows"


def test_words_that_the_study_lacks_are_first_to_be_translated_and_only_then_left_out(tmp_path: Path) -> None:
    rows = "age,chol,sex,ill\n63,233,a b,yes\n41,2,b,perhaps\n"
    for each in examine_rows(settings_of(tmp_path, rows), TERMS).problems:
        assert each.todo.startswith(f'conclave-party data map STUDY --value "{each.column}:YOURS=THE-STUDYS" for each')


def test_a_number_that_may_be_two_is_left_to_a_person(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, "age;chol;sex;ill\n63;1,234;male;yes\n41;2,345;female;no\n")
    (problem,) = examine_rows(settings, TERMS).problems
    assert (problem.column, problem.rows) == ("chol", (1, 2))
    form = replace(settings.mapping.form, decimal=",")
    said = replace(settings, mapping=DataMapping(form=form))
    assert not examine_rows(said, TERMS).problems


def test_a_minus_beside_a_plus_is_a_result_and_not_a_missing_value(tmp_path: Path) -> None:
    test = Feature(column="sex", kind="categorical", categories=("pos", "neg"), may_miss=True)
    terms = replace(TERMS, features=(*FEATURES[:2], test))
    quality = examine_rows(settings_of(tmp_path, "age,chol,sex,ill\n63,1,+,yes\n41,2,-,no\n"), terms)
    assert proposed(quality) == {("sex", "+", "pos"), ("sex", "-", "neg")}


def test_a_record_that_is_left_out_keeps_its_place(tmp_path: Path) -> None:
    rows = "age,chol,sex,ill\n63,233,male,yes\n4400,1,male,no\n41,,female,no\n"
    remedy = DataMapping(unusable={"age": "leave out", "ill": "leave out"})
    records = load_records(replace(settings_of(tmp_path, rows), mapping=remedy), TERMS)
    np.testing.assert_array_equal(records.usable, [True, False, True])
    assert not records.inputs[1].any()
    without = load_records(settings_of(tmp_path, PLAIN, name="plain.csv"), TERMS)
    np.testing.assert_array_equal(records.inputs[records.usable], without.inputs)


def test_a_remedy_is_used_where_it_can_be(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, "age,chol,sex,ill\n63,99999,male,yes\n")
    missing = load_records(replace(settings, mapping=DataMapping(unusable={"chol": "missing"})), TERMS)
    clipped = load_records(replace(settings, mapping=DataMapping(unusable={"chol": "clip"})), TERMS)
    np.testing.assert_array_equal(missing.inputs[0], [1, 0, 1, 0, 1])
    np.testing.assert_array_equal(clipped.inputs[0], [1, 10, 0, 0, 1])
    with refuses(DataCorrupt, 1, "a text of 5 characters", -370, 830):
        load_records(settings, TERMS)
    old = settings_of(tmp_path, "age,chol,sex,ill\n7,1,male,yes\n")
    with refuses(InvalidInput, "unusable.age", "missing", "leave out"):
        load_records(replace(old, mapping=DataMapping(unusable={"age": "missing"})), TERMS)
    with refuses(DataCorrupt, "record"):
        load_records(replace(old, mapping=DataMapping(unusable={"age": "leave out"})), TERMS)


def test_columns_are_proposed_by_what_they_hold_and_a_patient_s_is_never_a_feature(tmp_path: Path) -> None:
    terms = terms_of(
        (
            Feature(column="max_rate", kind="numeric", centre=150.0, scale=23.0),
            Feature(column="st_depression", kind="numeric", centre=1.0, scale=1.0),
            Feature(column="sex", kind="categorical", categories=("female", "male")),
            Feature(column="chol", kind="numeric", centre=245.0, scale=55.0),
        ),
        label="ill", classes=("no", "yes"), shape=(5,),
    )  # fmt: skip
    rows = ["person;Alter;Geschlecht;Chol_mmol;Puls;ST-Senkung;Cholesterin;KHK"]
    for n in range(9):
        rows.append(f"{7000 + n};{50 + n};{'mw'[n % 2]};x;{140 + n};{n / 10};{5 + n / 10};{['ja', 'nein'][n % 2]}")
    settings = settings_of(tmp_path, "\n".join(rows) + "\n", patient="person")
    found = {each.column: each.column_is for each in examine_rows(settings, terms).problems if each.column_is}
    assert found == {
        "max_rate": '"max_rate=Puls"', "st_depression": '"st_depression=ST-Senkung"', "sex": '"sex=Geschlecht"',
        "chol": '"chol=Cholesterin"', "ill": '"ill=KHK"',
    }  # fmt: skip
    # Where nothing fits, nothing is proposed: not an age for a rate, and not a patient's number.
    content = "person;Alter;personen\n7000;50;7000\n7001;61;7001\n"
    without = settings_of(tmp_path, content, name="b.csv", patient="person")
    found = {each.column: each.column_is for each in examine_rows(without, terms).problems if each.column_is}
    assert found == {column: f'"{column}=YOURS"' for column in ("max_rate", "st_depression", "sex", "chol", "ill")}


@pytest.mark.parametrize(("value", "todo"), [(5.5, '--times "chol=38.67"'), (0, "--unusable")])
def test_numbers_that_the_study_refuses_may_be_in_another_unit(tmp_path: Path, value: float, todo: str) -> None:
    features = (FEATURES[0], replace(FEATURES[1], least=50.0, most=700.0), FEATURES[2])
    terms = terms_of(features, label="ill", classes=("no", "yes"), shape=(5,))
    rows = "".join(f"63,{value},male,{'no' if row else 'yes'}\n" for row in range(6))
    settings = settings_of(tmp_path, "age,Chol [mmol/l],sex,ill\n" + rows)
    named = [each.column_is for each in examine_rows(settings, terms).problems if each.column_is]
    assert named == ['"chol=Chol [mmol/l]"' if value else '"chol=YOURS"']
    mapped = replace(settings, mapping=DataMapping(columns={"chol": "Chol [mmol/l]"}))
    (problem,) = examine_rows(mapped, terms).problems
    assert todo in problem.todo


@pytest.mark.parametrize(
    ("values", "factor"), [((5.2, 6.1, 7.0, 5.9, 6.0), "38.67"), ((2450, 2600, 2300, 1900, 2500), "FACTOR")]
)
def test_numbers_in_another_unit_are_asked_about_and_a_factor_settles_it(
    tmp_path: Path, values: tuple[float, ...], factor: str
) -> None:
    features = (FEATURES[0], replace(FEATURES[1], scale=600.0) if factor == "FACTOR" else FEATURES[1], FEATURES[2])
    terms = terms_of(features, label="ill", classes=("no", "yes"), shape=(5,))
    rows = "".join(f"63,{value},male,{'yes' if value == values[0] else 'no'}\n" for value in values)
    settings = settings_of(tmp_path, "age,chol,sex,ill\n" + rows)
    problems = examine_rows(settings, terms).problems
    assert [(each.column, f'--times "chol={factor}"' in each.todo) for each in problems] == [("chol", True)]
    assert "median" in problems[0].values[0]
    assert "6" not in repr(problems).replace("38.67", "")
    for times in (1.0, 0.1):
        said = replace(settings, mapping=replace(settings.mapping, times={"chol": times}))
        assert not examine_rows(said, terms).problems
        read = load_records(said, terms).inputs[:, 1]
        np.testing.assert_allclose(read, (np.array(values) * times - 230) / features[1].scale, rtol=1e-5)
    path = tmp_path / "mapping.toml"
    path.write_text(mapping_toml(DataMapping(times={"chol": 38.67})))
    assert read_mapping(path).times == {"chol": 38.67}
    path.write_text("[times]\nchol = -1\n")
    with refuses(InvalidInput, "times.chol", "-1.0"):
        read_mapping(path)
