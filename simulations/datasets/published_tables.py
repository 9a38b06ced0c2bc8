"""The tables that others published: adult, heart_disease, eicu_demo and diabetes130.

published.json says where each comes from, what its files must hold, and how each column becomes features; here stands
what is particular to a table: how its files are read, cleaned, labelled and divided. All loaders raise DataUnavailable,
DataCorrupt if the content is not the published one, and InvalidInput for sizes.
"""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import Int64
from numpy import ndarray

from protocols.study.findings import NOT_KNOWN
from runtime.checked_files import check_content, line_digests, read_lines
from runtime.shipped import heart_disease as hospitals
from simulations.datasets.columns import encode_published
from simulations.datasets.dataset import Dataset, DatasetRequest, Order, Split, cut_as_asked, drawn, held_out, subset
from simulations.datasets.sources import Published, data_folder, find, published

ADULT_TEST_SIZE = 1_000  # the rest of adult.test is public
LONG_STAY_DAYS = 5
_STAY = "patientunitstayid"


def _lines(about: Published, name: str, data_dir: Path | None) -> list[str]:
    """The lines of a file, which is looked for as it is and packed, and must hold the published ones."""
    path = find(about.source, data_dir, [name, f"{name}.gz"])
    lines = read_lines(path)
    check_content(path, line_digests(lines), about.checksums[name.removesuffix(".csv")], ordered=False)
    return lines


def _made(
    table: pd.DataFrame,
    labels: Int64[ndarray, "rows *findings"],
    parts: Split,
    about: Published,
    *,
    sites: Int64[ndarray, " rows"] | None = None,
    site_names: tuple[str, ...] = (),
    patients: Int64[ndarray, " rows"] | None = None,
    findings: tuple[str, ...] = (),
) -> Dataset:
    """The rows of a cleaned table, features f32 [N, features]."""
    return Dataset.of(
        encode_published(table, about.columns, where=about.source.folder),
        labels,
        parts,
        name=about.name,
        kind="table",
        class_names=about.classes,
        sites=sites,
        site_names=site_names,
        patients=patients,
        columns=about.columns,
        findings=findings,
        about=about.about,
    )


def adult(request: DatasetRequest, order: Order = drawn) -> Dataset:
    """48,842 people of the 1994 US census: label 1 for more than $50,000 a year. Private: adult.data; public and test:
    the first and the last rows of adult.test in the order.
    """
    about = published("adult")
    train = _adult(about, "adult.data", request.data_dir, ordered=False)
    others = _adult(about, "adult.test", request.data_dir, ordered=True)
    rng = np.random.default_rng([request.seed, *b"adult private"])
    private = subset(len(train), request.private_size, "adult", rng)
    public, test = held_out(len(others), order, request, (len(others), ADULT_TEST_SIZE), "adult")
    table = pd.concat([train, others], ignore_index=True)
    labels = table["income"].str.startswith(">50K").to_numpy(dtype=np.int64)
    return _made(table, labels, Split(private=private, public=public + len(train), test=test + len(train)), about)


def _adult(about: Published, name: str, data_dir: Path | None, *, ordered: bool) -> pd.DataFrame:
    """The rows as strings. UCI's adult.test opens with a comment line and ends its labels with a full stop."""
    path = find(about.source, data_dir, [name, f"{name}.gz"])
    lines = [line.strip() for line in read_lines(path) if not line.startswith("|")]
    check_content(path, line_digests(lines), about.checksums[name], ordered=ordered)
    return pd.DataFrame([line.split(", ") for line in lines], columns=about.more["header"], dtype=str)


def heart_disease(request: DatasetRequest) -> Dataset:
    """920 patients of four hospitals, the sites: label 1 when coronary vessels are narrowed (num > 0). A split by
    patient (one row is one patient) from the seed, stratified by hospital and label: every part holds all hospitals.
    """
    about, tables = published("heart_disease"), []
    for site, lines in enumerate(hospitals.hospital_lines(data_folder(request.data_dir)).values()):
        rows = hospitals.cleaned(sorted(lines))
        tables.append(pd.DataFrame(rows, columns=about.more["header"], dtype=str).assign(site=site))
    table = pd.concat(tables, ignore_index=True).replace("?", np.nan)
    sites = table["site"].to_numpy(dtype=np.int64)
    labels = (table["num"] != "0").to_numpy(dtype=np.int64)
    parts = cut_as_asked(request, 2 * sites + labels, sizes=about.sizes, name=about.name)
    return _made(
        table, labels, parts, about, sites=sites, site_names=tuple(about.checksums), patients=np.arange(len(labels))
    )


def eicu_demo(request: DatasetRequest) -> Dataset:
    """1,838 intensive care stays at 174 hospitals, the sites: label 1 when the patient died in hospital. A split by
    patient from the seed, stratified by hospital: every hospital keeps a patient in the private part (unless a private
    size is asked for).
    """
    about = published("eicu_demo")
    table = eicu_stays(about, request.data_dir)
    labels = (table["actualhospitalmortality"] == "EXPIRED").to_numpy(dtype=np.int64)
    hospitals, sites = np.unique(table["hospitalid"].to_numpy(dtype=np.int64), return_inverse=True)
    patients = np.unique(table["uniquepid"].to_numpy(dtype=str), return_inverse=True)[1]
    parts = cut_as_asked(request, sites, groups=patients, sizes=about.sizes, name=about.name)
    names = tuple(f"hospital {number}" for number in hospitals)
    return _made(table, labels, parts, about, sites=sites, site_names=names, patients=patients)


def eicu_stays(about: Published, data_dir: Path | None) -> pd.DataFrame:
    """One row per stay that has APACHE variables and an APACHE IVa result, in the order of the stay's number; every
    value a text, missing ones NaN (APACHE writes -1).
    """
    tables = {}
    for name in about.checksums:
        text = io.StringIO("\n".join(_lines(about, f"{name}.csv", data_dir)))
        tables[name] = pd.read_csv(text, dtype=str, keep_default_na=False, na_values=["", "-1", "Unknown", "Other"])
    flags = about.more["flags"]
    result = tables["apachePatientResult"]
    outcome = result.loc[result["apacheversion"] == "IVa", [_STAY, "actualhospitalmortality"]]
    history = tables["apachePredVar"][[_STAY, *(set(flags) - {"intubated", "vent", "dialysis"})]]
    table = tables["patient"][[_STAY, "uniquepid", "hospitalid", "age", "gender"]]
    for other in (tables["apacheApsVar"], history, outcome):
        table = table.merge(other, on=_STAY, validate="one_to_one")
    table["age"] = table["age"].replace("> 89", "90")
    table[flags] = table[flags].mask(table[flags] == "0")
    return table.sort_values(_STAY, key=lambda stay: stay.astype(np.int64), ignore_index=True)


def diabetes130(request: DatasetRequest) -> Dataset:
    """101,766 hospital encounters of 71,518 diabetic patients: label 1 for a stay of 5 days or more. A split by patient
    from the seed.
    """
    about = published("diabetes130")
    table = encounters(about, request.data_dir)
    labels = (table["time_in_hospital"].astype(np.int64) >= LONG_STAY_DAYS).to_numpy(dtype=np.int64)
    return by_patient(request, about, table, labels, sizes=about.sizes)


def by_patient(
    request: DatasetRequest,
    about: Published,
    table: pd.DataFrame,
    labels: Int64[ndarray, " rows"],
    *,
    sizes: tuple[int, ...],
) -> Dataset:
    """The data set of these encounters, split so that no patient is in two parts. Raises InvalidInput for sizes."""
    patients = np.unique(table["patient_nbr"].to_numpy(dtype=np.int64), return_inverse=True)[1]
    parts = cut_as_asked(request, labels, groups=patients, sizes=sizes, name=about.name)
    return _made(table, labels, parts, about, patients=patients)


OUTCOMES = ("stay of 5 days or more", "medication changed", "insulin given", "readmitted", "readmitted within 30 days")
# Of discharge_disposition_id: the patient died, so nobody knows of a readmission.
_DIED = ("11", "19", "20", "21")


def diabetes130_outcomes(request: DatasetRequest) -> Dataset:
    """The same encounters with OUTCOMES as findings; what tells of drugs, or was decided with them, is no feature.
    Whether a patient comes back is unknown of one who died.
    """
    about = published("diabetes130", task="diabetes130_outcomes")
    table = encounters(about, request.data_dir)
    told = {*about.more["drugs"], "change", "diabetesMed"}
    about = replace(about, columns=tuple(each for each in about.columns if each.column not in told))
    long = (table["time_in_hospital"].astype(np.int64) >= LONG_STAY_DAYS).to_numpy()
    readmitted = table["readmitted"].to_numpy(dtype=str)
    labels = np.stack(
        [
            long, table["change"].notna().to_numpy(), table["insulin"].notna().to_numpy(),
            readmitted != "NO", readmitted == "<30",
        ], axis=1,
    ).astype(np.int64)  # fmt: skip
    labels[table["discharge_disposition_id"].isin(_DIED).to_numpy(), 3:] = NOT_KNOWN
    patients = np.unique(table["patient_nbr"].to_numpy(dtype=np.int64), return_inverse=True)[1]
    parts = cut_as_asked(request, long.astype(np.int64), groups=patients, sizes=about.sizes, name=about.name)
    return _made(table, labels, parts, about, patients=patients, findings=OUTCOMES)


def encounters(about: Published, data_dir: Path | None) -> pd.DataFrame:
    """The published rows: ages as interval midpoints, diagnoses as groups, rare codes merged, and codes that mean
    "none" as NaN."""
    text = io.StringIO("\n".join(_lines(about, "diabetic_data.csv", data_dir)))
    used = [
        "encounter_id", "patient_nbr", "time_in_hospital", "readmitted", "discharge_disposition_id",
        *(each.column for each in about.columns),
    ]  # fmt: skip
    table = pd.read_csv(text, usecols=used, dtype=str, keep_default_na=False, na_values=["?"])
    table = table.sort_values("encounter_id", key=lambda number: number.astype(np.int64), ignore_index=True)
    table["age"] = table["age"].map({f"[{low}-{low + 10})": str(low + 5) for low in range(0, 100, 10)})
    table["gender"] = table["gender"].replace("Unknown/Invalid", np.nan)
    specialty = table["medical_specialty"]
    table["medical_specialty"] = specialty.where(specialty.isna() | specialty.isin(about.more["specialties"]), "rare")
    source = table["admission_source_id"]
    table["admission_source_id"] = source.where(source.isin(["1", "2", "4", "5", "6", "7", "17"]))
    for name in ("diag_1", "diag_2", "diag_3"):
        codes = table[name].dropna().unique()
        table[name] = table[name].map({code: _diagnosis_group(code, about) for code in codes})
    for name in (*about.more["drugs"], "change", "diabetesMed"):
        table[name] = table[name].mask(table[name] == "No")
    return table


def _diagnosis_group(code: str, about: Published) -> str:
    """The group of an ICD-9 code: 250.x is diabetes, E and V codes are external."""
    if code[0] in "EV":
        return "external"
    number = int(float(code))
    if number == 250:
        return "diabetes"
    if single := about.more["single_codes"].get(str(number)):
        return str(single)
    return next(str(name) for name, low, high in about.more["chapters"] if low <= number < high)
