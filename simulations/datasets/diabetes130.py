"""The `diabetes130` data set: 101,766 hospital encounters of 71,518 diabetic patients; a stay of 5 days or
more?

Strack et al., BioMed Research International 2014:781670; UCI, doi 10.24432/C5230J; CC BY 4.0. It does not name
the hospitals.
"""

from __future__ import annotations

import io

import numpy as np
import pandas as pd
from jaxtyping import Int64
from numpy import ndarray

from protocols.study.terms import Feature
from simulations.datasets.columns import categorical, encode_published, numeric
from simulations.datasets.dataset import Dataset, cut_as_asked
from simulations.datasets.request import DatasetRequest
from simulations.datasets.sources import DataSource, check_content, find, line_digests, read_lines

SOURCE = DataSource(
    folder="diabetes130",
    url="https://archive.ics.uci.edu/static/public/296/diabetes+130-us+hospitals+for+years+1999-2008.zip",
    steps="download the zip file and unpack diabetic_data.csv",
)
CHECKSUM = "0a273aa37fa2a423ad66bd11e8220ccc9f5f22f8fb06c3816cd5025c016e7dc1"
PUBLIC_SIZE, TEST_SIZE = 10_000, 10_000
LONG_STAY_DAYS = 5

_DRUGS = tuple(
    "metformin repaglinide nateglinide chlorpropamide glimepiride glipizide glyburide pioglitazone "
    "rosiglitazone acarbose insulin glyburide-metformin".split()
)
_SPECIALTIES = tuple(
    "InternalMedicine Emergency/Trauma Family/GeneralPractice Cardiology Surgery-General Nephrology "
    "Orthopedics Orthopedics-Reconstructive Radiologist Pulmonology Psychiatry Urology "
    "ObstetricsandGynecology Surgery-Cardiovascular/Thoracic Gastroenterology Surgery-Vascular Surgery-Neuro "
    "PhysicalMedicineandRehabilitation Oncology Pediatrics Hematology/Oncology Neurology".split()
)
# The diagnosis groups of Strack et al. 2014, table 2 (ICD-9), with the chapters of what they call "other".
_CHAPTERS = (
    ("infection", 1, 140), ("neoplasm", 140, 240), ("endocrine", 240, 280), ("blood", 280, 290),
    ("mental", 290, 320), ("nervous", 320, 390), ("circulatory", 390, 460), ("respiratory", 460, 520),
    ("digestive", 520, 580), ("genitourinary", 580, 630), ("pregnancy", 630, 680), ("skin", 680, 710),
    ("musculoskeletal", 710, 740), ("congenital", 740, 780), ("symptoms", 780, 800), ("injury", 800, 1000),
)  # fmt: skip
_SINGLE_CODES = {785: "circulatory", 786: "respiratory", 787: "digestive", 788: "genitourinary"}
_GROUPS = ("diabetes", "external", *(name for name, _, _ in _CHAPTERS))

# Left out: the target (time_in_hospital), what is decided or known only after the stay (readmitted,
# discharge_disposition_id), identifiers, and weight and payer_code (mostly missing). Categories are from the
# codebook, centres and scales are round constants, so that no row influences a feature's encoding.
COLUMNS: tuple[Feature, ...] = (
    categorical("race", ("Caucasian", "AfricanAmerican", "Hispanic", "Asian", "Other"), may_miss=True),
    categorical("gender", ("Female", "Male"), may_miss=True),
    numeric("age", centre=65, scale=16),
    categorical("admission_type_id", tuple("12345678")),
    categorical("admission_source_id", ("1", "2", "4", "5", "6", "7", "17"), may_miss=True),
    categorical("medical_specialty", (*_SPECIALTIES, "rare"), may_miss=True),
    numeric("num_lab_procedures", centre=43, scale=20),
    numeric("num_procedures", centre=1.3, scale=1.7),
    numeric("num_medications", centre=16, scale=8),
    numeric("number_outpatient", centre=0, scale=0.5, log=True),
    numeric("number_emergency", centre=0, scale=0.5, log=True),
    numeric("number_inpatient", centre=0, scale=0.5, log=True),
    numeric("number_diagnoses", centre=7.5, scale=2),
    *(categorical(name, _GROUPS, may_miss=True) for name in ("diag_1", "diag_2", "diag_3")),
    categorical("max_glu_serum", ("None", "Norm", ">200", ">300")),
    categorical("A1Cresult", ("None", "Norm", ">7", ">8")),
    *(categorical(drug, ("Steady", "Up", "Down"), may_miss=True) for drug in _DRUGS),
    categorical("change", ("Ch",), may_miss=True),
    categorical("diabetesMed", ("Yes",), may_miss=True),
)


def load(request: DatasetRequest) -> Dataset:
    """Rows f32 [N, features], label 1 for a stay of 5 days or more. A split by patient from the seed.

    Raises DataUnavailable, DataCorrupt on other content than the published one, InvalidInput on sizes.
    """
    table = _read(request)
    labels = (table["time_in_hospital"].astype(np.int64) >= LONG_STAY_DAYS).to_numpy(dtype=np.int64)
    return _cut(
        request,
        table,
        labels,
        sizes=(PUBLIC_SIZE, TEST_SIZE),
        name="diabetes130",
        class_names=("under 5 days", "5 days or more"),
        about=(
            "Features cover the whole stay, including tests and drugs given during it: the task is "
            "to recognise long stays from their record, not to predict them at admission."
        ),
    )


def load_readmissions(request: DatasetRequest) -> Dataset:
    """Rows as `load`, label 1 for a patient who came back within 30 days; as many rows, drawn from the seed, of those
    who did not. The public and test sizes must be given. Raises as `load`.
    """
    table = _read(request)
    back = (table["readmitted"] == "<30").to_numpy()
    others = np.random.default_rng([request.seed, *b"diabetes130 others"]).choice(
        np.flatnonzero(~back), size=int(back.sum()), replace=False
    )
    kept = np.sort(np.concatenate([np.flatnonzero(back), others]))
    assert request.public_size is not None  # by whoever calls this
    assert request.test_size is not None
    return _cut(
        request,
        table.iloc[kept].reset_index(drop=True),
        back[kept].astype(np.int64),
        sizes=(request.public_size, request.test_size),
        name="diabetes130 readmissions",
        class_names=("later or never", "within 30 days"),
        about="Both classes are equally frequent: rows of the larger one were left out.",
    )


def _read(request: DatasetRequest) -> pd.DataFrame:
    """The published rows, cleaned. Raises DataUnavailable, DataCorrupt."""
    path = find(SOURCE, request.data_dir, ["diabetic_data.csv", "diabetic_data.csv.gz"])
    lines = read_lines(path)
    check_content(path, line_digests(lines), CHECKSUM, ordered=False)
    text = io.StringIO("\n".join(lines))
    used = ["encounter_id", "patient_nbr", "time_in_hospital", "readmitted", *(column.column for column in COLUMNS)]
    return _clean(pd.read_csv(text, usecols=used, dtype=str, keep_default_na=False, na_values=["?"]))


def _cut(
    request: DatasetRequest,
    table: pd.DataFrame,
    labels: Int64[ndarray, " rows"],
    *,
    sizes: tuple[int, int],
    name: str,
    class_names: tuple[str, str],
    about: str,
) -> Dataset:
    patients = np.unique(table["patient_nbr"].to_numpy(dtype=np.int64), return_inverse=True)[1]
    return Dataset.of(
        encode_published(table, COLUMNS, where="diabetes130"),
        labels,
        cut_as_asked(request, labels, groups=patients, sizes=sizes, name=name),
        name=name,
        kind="table",
        class_names=class_names,
        patients=patients,
        columns=COLUMNS,
        about=f"Diabetes encounters at 130 US hospitals (the hospital is not given). Split by patient. {about}",
    )


def _clean(table: pd.DataFrame) -> pd.DataFrame:
    """Ages as interval midpoints, diagnoses as groups, rare codes merged, and codes that mean "none" as NaN."""
    table = table.sort_values("encounter_id", key=lambda number: number.astype(np.int64), ignore_index=True)
    table["age"] = table["age"].map({f"[{low}-{low + 10})": str(low + 5) for low in range(0, 100, 10)})
    table["gender"] = table["gender"].replace("Unknown/Invalid", np.nan)
    specialty = table["medical_specialty"]
    table["medical_specialty"] = specialty.where(specialty.isna() | specialty.isin(_SPECIALTIES), "rare")
    source = table["admission_source_id"]
    table["admission_source_id"] = source.where(source.isin(["1", "2", "4", "5", "6", "7", "17"]))
    for name in ("diag_1", "diag_2", "diag_3"):
        codes = table[name].dropna().unique()
        table[name] = table[name].map({code: _diagnosis_group(code) for code in codes})
    for name in (*_DRUGS, "change", "diabetesMed"):
        table[name] = table[name].mask(table[name] == "No")
    return table


def _diagnosis_group(code: str) -> str:
    """The group of an ICD-9 code: 250.x is diabetes, E and V codes are external."""
    if code[0] in "EV":
        return "external"
    number = int(float(code))
    if number == 250:
        return "diabetes"
    if number in _SINGLE_CODES:
        return _SINGLE_CODES[number]
    return next(name for name, low, high in _CHAPTERS if low <= number < high)
