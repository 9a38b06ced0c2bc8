"""A small OMOP database in SQLite, and the same patients as a FHIR export: who is ill has a higher creatinine."""

import datetime
import json
import random
import sqlite3
from pathlib import Path

FEATURES = """
[cohort]
condition = [{cohort}]

[label]
column = "died"
death = true
window = [0, 365]

[[feature]]
column = "age"
person = "age"

[[feature]]
column = "sex"
person = "sex"

[[feature]]
column = "creatinine"
measurement = [{creatinine}]
window = [-30, 7]
take = "most"

[[feature]]
column = "diabetes"
condition = [{diabetes}]
window = [-3650, 0]
"""
OMOP = {"cohort": 197320, "creatinine": 3016723, "diabetes": 201820}
FHIR = {"cohort": '"http://snomed.info/sct|14669001"', "creatinine": '"2160-0"', "diabetes": '"73211009"'}
# A kind of diabetes, below the concept that the file names.
DIABETES_2 = 201826
_DAY = datetime.date(2020, 1, 10)
_SCHEMA = """
CREATE TABLE person (person_id INTEGER PRIMARY KEY, gender_concept_id INTEGER, year_of_birth INTEGER,
  month_of_birth INTEGER, day_of_birth INTEGER);
CREATE TABLE death (person_id INTEGER, death_date DATE);
CREATE TABLE condition_occurrence (person_id INTEGER, condition_concept_id INTEGER, condition_start_date DATE);
CREATE TABLE measurement (person_id INTEGER, measurement_concept_id INTEGER, measurement_date DATE,
  value_as_number REAL);
CREATE TABLE concept_ancestor (ancestor_concept_id INTEGER, descendant_concept_id INTEGER);
"""


def patients(count: int, *, seed: int = 1) -> list[dict]:
    """People: every fourth has no kidney failure, and is in no cohort."""
    rng = random.Random(seed)
    made = []
    for number in range(1, count + 1):
        ill = rng.random() < 0.5
        made.append(
            {
                "number": number,
                "sex": rng.choice(["male", "female"]),
                "born": datetime.date(1930 + rng.randrange(50), 1 + rng.randrange(12), 1 + rng.randrange(28)),
                "start": None if number % 4 == 0 else _DAY + datetime.timedelta(days=number),
                "creatinine": [round(rng.gauss(4.0 if ill else 1.0, 0.5), 1) for _ in range(2)],
                "diabetes": number % 3 == 0,
                "died": ill,
            }
        )
    return made


def write_omop(path: Path, people: list[dict]) -> Path:
    """The database."""
    connection = sqlite3.connect(path)
    connection.executescript(_SCHEMA)
    connection.execute("INSERT INTO concept_ancestor VALUES (?, ?)", (OMOP["diabetes"], DIABETES_2))
    for each in people:
        born, who, start = each["born"], each["number"], each["start"] or _DAY
        sex = {"male": 8507, "female": 8532}[each["sex"]]
        connection.execute("INSERT INTO person VALUES (?, ?, ?, ?, ?)", (who, sex, born.year, born.month, born.day))
        if each["start"] is not None:
            connection.execute("INSERT INTO condition_occurrence VALUES (?, ?, ?)", (who, OMOP["cohort"], str(start)))
        if each["diabetes"]:
            before = str(start - datetime.timedelta(days=400))
            connection.execute("INSERT INTO condition_occurrence VALUES (?, ?, ?)", (who, DIABETES_2, before))
        for days, value in zip((-2, 3), each["creatinine"], strict=True):
            when = str(start + datetime.timedelta(days=days))
            connection.execute("INSERT INTO measurement VALUES (?, ?, ?, ?)", (who, OMOP["creatinine"], when, value))
        if each["died"]:
            connection.execute("INSERT INTO death VALUES (?, ?)", (who, str(start + datetime.timedelta(days=90))))
    connection.commit()
    connection.close()
    return path


def write_fhir(folder: Path, people: list[dict]) -> Path:
    """The export."""
    folder.mkdir()
    lines: dict[str, list[dict]] = {"Patient": [], "Condition": [], "Observation": []}
    for each in people:
        who, start = {"reference": f"Patient/{each['number']}"}, each["start"] or _DAY
        died = {"deceasedDateTime": f"{start + datetime.timedelta(days=90)}T08:00:00Z"} if each["died"] else {}
        lines["Patient"].append(
            {"id": str(each["number"]), "gender": each["sex"], "birthDate": str(each["born"]), **died}
        )
        found = [("14669001", start)] if each["start"] is not None else []
        found += [("73211009", start - datetime.timedelta(days=400))] if each["diabetes"] else []
        for code, day in found:
            coding = {"system": "http://snomed.info/sct", "code": code}
            lines["Condition"].append({"subject": who, "code": {"coding": [coding]}, "onsetDateTime": str(day)})
        for days, value in zip((-2, 3), each["creatinine"], strict=True):
            coding = {"system": "http://loinc.org", "code": "2160-0"}
            day = str(start + datetime.timedelta(days=days))
            amount = {"value": value, "unit": "mg/dL"}
            lines["Observation"].append(
                {"subject": who, "code": {"coding": [coding]}, "effectiveDateTime": day, "valueQuantity": amount}
            )
    for resource, values in lines.items():
        text = "\n".join(json.dumps({"resourceType": resource, **value}) for value in values)
        (folder / f"{resource}.ndjson").write_text(text + "\n", encoding="utf-8")
    return folder
