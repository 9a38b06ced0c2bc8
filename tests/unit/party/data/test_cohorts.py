"""OMOP and FHIR: the same people give the same records, checked against a computation by hand; nothing is written."""

import hashlib
import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from party.data import load_records
from party.data.cohort import FhirExport
from party.data.database import OmopDatabase
from party.data.quality import examine_rows
from party.data.records import DataSettings, deal_records
from protocols.errors import ConclaveError, DataCorrupt, DataUnavailable, InvalidInput
from protocols.study.terms import Feature
from tests.harness.omop import FEATURES, FHIR, OMOP, patients, write_fhir, write_omop
from tests.harness.refusals import refuses
from tests.harness.terms import terms_of

TERMS = terms_of(
    (
        Feature(column="age", kind="numeric", centre=0.0, scale=10.0),
        Feature(column="sex", kind="categorical", categories=("female", "male")),
        Feature(column="creatinine", kind="numeric", centre=0.0, scale=1.0, may_miss=True),
        Feature(column="diabetes", kind="categorical", categories=("no", "yes"), may_miss=True),
    ),
    label="died",
    classes=("no", "yes"),
    shape=(7,),
)
PEOPLE = patients(24)


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cohorts")
    (folder / "omop.toml").write_text(FEATURES.format(**OMOP))
    (folder / "fhir.toml").write_text(FEATURES.format(**FHIR))
    database = write_omop(folder / "omop.sqlite", PEOPLE)
    return {
        "omop": OmopDatabase(f"sqlite:///{database}", folder / "omop.toml"),
        "fhir": FhirExport(write_fhir(folder / "fhir", PEOPLE), folder / "fhir.toml"),
    }


def settings_of(loader, source):
    return DataSettings(name="d", loader=loader, source=source, patient="person")


def by_hand():
    """Inputs and labels of the cohort."""
    rows, labels = [], []
    for each in PEOPLE:
        if each["start"] is not None:
            birthday = (each["start"].month, each["start"].day) >= (each["born"].month, each["born"].day)
            age = each["start"].year - each["born"].year - (not birthday)
            sex, diabetic = each["sex"] == "male", each["diabetes"]
            rows.append([age / 10, not sex, sex, max(each["creatinine"]), 0, not diabetic, diabetic])
            labels.append(each["died"])
    return np.array(rows, np.float32), np.array(labels, np.int64)


@pytest.mark.parametrize("loader", ["omop", "fhir"])
def test_a_cohort_and_its_features_are_those_by_hand(sources, loader):
    settings = settings_of(loader, sources[loader])
    assert not examine_rows(settings, TERMS).problems
    records, (inputs, labels) = load_records(settings, TERMS), by_hand()
    np.testing.assert_allclose(records.inputs[records.usable], inputs, rtol=1e-6)
    np.testing.assert_array_equal(records.labels[records.usable], labels)
    assert records.patients == [str(each["number"]) for each in PEOPLE]


def test_whether_somebody_is_in_the_cohort_changes_nobody_elses_teacher(tmp_path, sources):
    people = [{**each, "start": None} if each["number"] == 5 else each for each in PEOPLE]
    other = OmopDatabase(f"sqlite:///{write_omop(tmp_path / 'b.sqlite', people)}", sources["omop"].features)
    with_, without = (load_records(settings_of("omop", each), TERMS) for each in (sources["omop"], other))
    np.testing.assert_array_equal(with_.usable != without.usable, np.arange(24) == 4)
    dealt = [deal_records(each.places, each.units, teachers=3, key=bytes(32)) for each in (with_, without)]
    np.testing.assert_array_equal(*dealt)


def test_nothing_is_written_to_a_database_and_only_a_select_is_sent(sources, tmp_path):
    from party.data.database import SqlData

    path = tmp_path / "a.sqlite"
    database = SqlData(f"sqlite:///{write_omop(path, PEOPLE[:4])}")
    before = hashlib.sha256(path.read_bytes()).digest()
    for statement in ("DELETE FROM person", "SELECT 1; DELETE FROM person", "", "PRAGMA user_version = 3"):
        with refuses(InvalidInput, "SELECT"):
            database.rows(statement)
    with pytest.raises(DataCorrupt):
        database.rows("WITH a AS (SELECT 1) INSERT INTO death SELECT 1, 2")
    assert database.rows("SELECT count(*) AS n FROM person;") == (["n"], [(4,)])
    assert hashlib.sha256(path.read_bytes()).digest() == before
    with pytest.raises(DataUnavailable):
        SqlData(f"sqlite:///{tmp_path / 'none.sqlite'}").rows("SELECT 1")
    assert not (tmp_path / "none.sqlite").exists()


def test_a_password_is_in_no_message_and_no_representation(tmp_path):
    from party.data.database import SqlData

    url = "postgresql+pg8000://reader:hidden-word@127.0.0.1:1/omop?password=hidden-word"
    database = SqlData(url)
    said = [repr(database), database.shown, repr(OmopDatabase(url, tmp_path / "f.toml"))]
    for unreachable in (url, url.replace("postgresql+pg8000", "nosuch")):
        with pytest.raises(ConclaveError) as error:
            SqlData(unreachable).rows("SELECT 1")
        said.append(str(error.value))
    (tmp_path / "password").write_text("hidden-word\n")
    kept = SqlData(url.replace(":hidden-word", "").partition("?")[0], tmp_path / "password")
    with pytest.raises(ConclaveError) as error:
        kept.rows("SELECT 1")
    assert not any("hidden-word" in each for each in (*said, str(error.value), repr(kept)))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("death = true", "condition = [1]\ndrug = [2]", ("label.; allowed: one of condition",)),
        ('person = "age"', 'person = "name"', ("person", "name")),
        ('take = "most"', 'take = "median"', ("take", "median")),
        ("window = [-30, 7]", "window = [7, -30]", ("[7, -30]", "[first, last]")),
        ('column = "sex"', 'column = "age"', ("allowed: each once",)),
        ("[cohort]", "[cohort]\nmore = 1", ("cohort.more",)),
        ("condition = [197320]", 'condition = ["kidney"]', ("OMOP",)),
    ],
)
def test_a_features_file_that_is_wrong_is_refused_with_its_key(sources, tmp_path, old, new, words):
    (tmp_path / "f.toml").write_text(FEATURES.format(**OMOP).replace(old, new, 1))
    with refuses(InvalidInput, *words):
        load_records(settings_of("omop", replace(sources["omop"], features=tmp_path / "f.toml")), TERMS)


def test_a_resource_that_was_entered_in_error_did_not_happen_and_a_broken_line_is_named(sources, tmp_path):
    folder = write_fhir(tmp_path / "fhir", PEOPLE[:3])
    source = replace(sources["fhir"], path=folder)
    assert load_records(settings_of("fhir", source), TERMS).usable.sum() == 3
    path = folder / "Condition.ndjson"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[0]["verificationStatus"] = {"coding": [{"code": "entered-in-error"}]}
    path.write_text("\n".join(map(json.dumps, lines)))
    assert load_records(settings_of("fhir", replace(source)), TERMS).usable.sum() == 2
    path.write_text('{"resourceType": "Condition"}\n[1]\n')
    with refuses(DataCorrupt, "Condition.ndjson", 2):
        load_records(settings_of("fhir", replace(source)), TERMS)
    for other in path.parent.glob("*.ndjson"):
        other.write_text('{"resourceType": "Patient", "id": 7}\n')
    with pytest.raises(DataCorrupt):
        load_records(settings_of("fhir", replace(source)), TERMS)


VALUES = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["coding", "code", "value"]), inner),
    max_leaves=4,
)
KEYS = ["id", "gender", "birthDate", "deceasedDateTime", "subject", "code", "onsetDateTime", "effectiveDateTime",
        "valueQuantity", "verificationStatus", "status", "resourceType"]  # fmt: skip


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.sampled_from(["Patient", "Condition", "Observation"]), st.sampled_from(KEYS), VALUES)
def test_a_resource_of_any_content_is_read_or_refused_with_an_error_of_ours(sources, tmp_path, name, key, value):
    folder = tmp_path / "fhir"
    if not folder.exists():
        write_fhir(folder, PEOPLE[:6])
    path = folder / f"{name}.ndjson"
    whole = path.read_text()
    first, _, rest = whole.partition("\n")
    path.write_text(json.dumps({**json.loads(first), key: value}) + "\n" + rest)
    try:
        records = load_records(settings_of("fhir", replace(sources["fhir"], path=folder)), TERMS)
    except ConclaveError:
        return
    finally:
        path.write_text(whole)
    assert np.isfinite(records.inputs).all()
