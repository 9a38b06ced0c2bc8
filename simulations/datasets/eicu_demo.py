"""The `eicu_demo` data set: 1,838 intensive care stays at 174 real hospitals; does the patient die in
hospital?

Johnson et al., eICU Collaborative Research Database Demo 2.0.1, PhysioNet 2021, doi 10.13026/4mxk-na84;
Pollard et al., Scientific Data 5:180178, 2018. Open Database License 1.0. Hospitals hold 3 to 18 stays and
often one class: the set is for tiny and one-class parties, not for accuracy.
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pandas as pd

from protocols.study.terms import Feature
from simulations.datasets.columns import categorical, encode_published, numeric
from simulations.datasets.dataset import Dataset, cut_as_asked
from simulations.datasets.request import DatasetRequest
from simulations.datasets.sources import DataSource, check_content, find, line_digests, read_lines

SOURCE = DataSource(
    folder="eicu_demo",
    url="https://physionet.org/content/eicu-crd-demo/2.0.1/",
    steps="download patient.csv.gz, apacheApsVar.csv.gz, apachePatientResult.csv.gz and apachePredVar.csv.gz",
)
CHECKSUMS = {
    "patient": "710f0d7f6bb4b984478ecbb6f057edf9c013a6779724d6c3348402975149d559",
    "apacheApsVar": "5cf11f2ba9fece72b47174e5d6e6d70cda0b09e63de62ff17bc3bfb7c7e77f55",
    "apachePatientResult": "1a7ac064b9003e4258e9893fc7e2b1e4278af47ebb21257f6741229dacfe25b6",
    "apachePredVar": "864fbbedf505e6f3902a34f37d44369eda04a49178e830b06d624d150013c1ab",
}
PUBLIC_SIZE, TEST_SIZE = 400, 300

# First-day physiology and history only. Left out: every outcome (mortality, discharge, length of stay) and
# APACHE's own scores and predictions. Centres and scales are round clinical constants.
_PHYSIOLOGY = (
    ("urine", 1800, 1500), ("wbc", 11, 6), ("temperature", 36.5, 1), ("respiratoryrate", 25, 15),
    ("sodium", 138, 6), ("heartrate", 100, 30), ("meanbp", 85, 40), ("ph", 7.37, 0.1), ("hematocrit", 33, 7),
    ("creatinine", 1.5, 1.5), ("albumin", 2.9, 0.7), ("pao2", 125, 75), ("pco2", 42, 12), ("bun", 25, 20),
    ("glucose", 160, 90), ("bilirubin", 1.3, 2.5), ("fio2", 55, 25), ("eyes", 3.6, 0.85), ("motor", 5.6, 1.1),
    ("verbal", 4.2, 1.4),
)  # fmt: skip
_FLAGS = (
    "intubated", "vent", "dialysis", "hepaticfailure", "lymphoma", "metastaticcancer", "leukemia",
    "immunosuppression", "cirrhosis", "electivesurgery", "diabetes",
)  # fmt: skip
COLUMNS: tuple[Feature, ...] = (
    numeric("age", centre=63, scale=17, may_miss=True),
    categorical("gender", ("Female", "Male"), may_miss=True),
    *(numeric(name, centre=centre, scale=scale, may_miss=True) for name, centre, scale in _PHYSIOLOGY),
    *(categorical(name, ("1",), may_miss=True) for name in _FLAGS),
)
_STAY = "patientunitstayid"


def load(request: DatasetRequest) -> Dataset:
    """Rows f32 [N, features], label 1 when the patient died in hospital; sites are the 174 hospitals. A
    split by patient from the seed, stratified by hospital: every hospital keeps a patient in the private
    part (unless a private size is asked for).

    Raises DataUnavailable, DataCorrupt on other content than the published one, InvalidInput on sizes.
    """
    table = _join({name: _read(name, checksum, request.data_dir) for name, checksum in CHECKSUMS.items()})
    labels = (table["actualhospitalmortality"] == "EXPIRED").to_numpy(dtype=np.int64)
    hospitals, sites = np.unique(table["hospitalid"].to_numpy(dtype=np.int64), return_inverse=True)
    patients = np.unique(table["uniquepid"].to_numpy(dtype=str), return_inverse=True)[1]
    parts = cut_as_asked(request, sites, groups=patients, sizes=(PUBLIC_SIZE, TEST_SIZE), name="eicu_demo")
    inputs = encode_published(table, COLUMNS, where="eicu_demo")
    return Dataset.of(
        inputs,
        labels,
        parts,
        name="eicu_demo",
        kind="table",
        class_names=("survived", "died"),
        sites=sites,
        site_names=tuple(f"hospital {number}" for number in hospitals),
        patients=patients,
        columns=COLUMNS,
        about=(
            "Intensive care stays at 174 hospitals (sites) of 3 to 18 stays, 8 % of them fatal. Split by "
            "patient, stratified by hospital. Too small and too unbalanced to measure accuracy on."
        ),
    )


def _read(name: str, checksum: str, data_dir: Path | None) -> pd.DataFrame:
    """One of the official tables, every value a text, missing ones NaN (APACHE writes -1)."""
    path = find(SOURCE, data_dir, [f"{name}.csv.gz", f"{name}.csv"])
    lines = read_lines(path)
    check_content(path, line_digests(lines), checksum, ordered=False)
    text = io.StringIO("\n".join(lines))
    return pd.read_csv(text, dtype=str, keep_default_na=False, na_values=["", "-1", "Unknown", "Other"])


def _join(tables: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """One row per stay that has APACHE variables and an APACHE IVa result, in the order of the stay's number."""
    result = tables["apachePatientResult"]
    outcome = result.loc[result["apacheversion"] == "IVa", [_STAY, "actualhospitalmortality"]]
    history = tables["apachePredVar"][[_STAY, *(set(_FLAGS) - {"intubated", "vent", "dialysis"})]]
    table = tables["patient"][[_STAY, "uniquepid", "hospitalid", "age", "gender"]]
    for other in (tables["apacheApsVar"], history, outcome):
        table = table.merge(other, on=_STAY, validate="one_to_one")
    table["age"] = table["age"].replace("> 89", "90")
    flags = list(_FLAGS)
    table[flags] = table[flags].mask(table[flags] == "0")
    return table.sort_values(_STAY, key=lambda stay: stay.astype(np.int64), ignore_index=True)
