"""The `heart_disease` data set: 920 patients of four real hospitals; are the coronary vessels narrowed?

Janosi, Steinbrunn, Pfisterer, Detrano, Heart Disease, UCI 1989, doi 10.24432/C52P4X; CC BY 4.0.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from protocols.study.terms import Feature
from simulations.datasets.columns import categorical, encode_published, numeric
from simulations.datasets.dataset import Dataset, cut_as_asked
from simulations.datasets.request import DatasetRequest
from simulations.datasets.sources import DataSource, check_content, find, line_digests, read_lines

SOURCE = DataSource(
    folder="heart_disease",
    url="https://archive.ics.uci.edu/static/public/45/heart+disease.zip",
    steps="download heart+disease.zip and unpack processed.cleveland.data, processed.hungarian.data, "
    "processed.switzerland.data and processed.va.data",
)
CHECKSUMS = {
    "cleveland": "85cccf8e4df44e10c7e9d18b4c2502c462ebc3d1c9497680c695bd32e87a4250",
    "hungarian": "2e361ce50fcd03dd28014a336e0e2343a1fb339ff579d1dab64ab96d6a493dad",
    "switzerland": "9a1e1a4291ecc26c265f89f9a9184433d76de48f728d854590c4927eabdc61da",
    "va": "fee41f05e960e24cc60a9c7f9a86f50fff28e9d2f3ab684ab276982f10855504",
}
PUBLIC_SIZE, TEST_SIZE = 250, 170

# Codes as in heart-disease.names; centres and scales are round clinical constants, so that no row influences
# a feature's encoding. Missing numbers become the centre and are flagged; a missing code is in no category.
COLUMNS: tuple[Feature, ...] = (
    numeric("age", centre=55, scale=10),
    categorical("sex", ("0", "1")),
    categorical("cp", ("1", "2", "3", "4")),
    numeric("trestbps", centre=130, scale=20, may_miss=True),
    numeric("chol", centre=230, scale=60, may_miss=True),
    categorical("fbs", ("0", "1"), may_miss=True),
    categorical("restecg", ("0", "1", "2"), may_miss=True),
    numeric("thalach", centre=140, scale=25, may_miss=True),
    categorical("exang", ("0", "1"), may_miss=True),
    numeric("oldpeak", centre=1, scale=1, may_miss=True),
    categorical("slope", ("1", "2", "3"), may_miss=True),
    numeric("ca", centre=0.5, scale=1, may_miss=True),
    categorical("thal", ("3", "6", "7"), may_miss=True),
)
_HEADER = "age sex cp trestbps chol fbs restecg thalach exang oldpeak slope ca thal num".split()


def load(request: DatasetRequest) -> Dataset:
    """Rows f32 [N, features], label 1 when num > 0; sites are the four hospitals. A split by patient (one
    row is one patient) from the seed, stratified by hospital and label: every part holds all hospitals.

    Raises DataUnavailable, DataCorrupt on other content than the published one, InvalidInput on sizes.
    """
    tables = []
    for site, (hospital, checksum) in enumerate(CHECKSUMS.items()):
        path = find(SOURCE, request.data_dir, [f"processed.{hospital}.data", f"processed.{hospital}.data.gz"])
        lines = read_lines(path)
        check_content(path, line_digests(lines), checksum, ordered=False)
        rows = [line.split(",") for line in sorted(lines)]
        tables.append(pd.DataFrame(rows, columns=_HEADER, dtype=str).assign(site=site))
    table = _clean(pd.concat(tables, ignore_index=True))
    sites = table["site"].to_numpy(dtype=np.int64)
    labels = (table["num"] != "0").to_numpy(dtype=np.int64)
    parts = cut_as_asked(request, 2 * sites + labels, sizes=(PUBLIC_SIZE, TEST_SIZE), name="heart_disease")
    inputs = encode_published(table, COLUMNS, where="heart_disease")
    return Dataset.of(
        inputs,
        labels,
        parts,
        name="heart_disease",
        kind="table",
        class_names=("no disease", "disease"),
        sites=sites,
        site_names=tuple(CHECKSUMS),
        patients=np.arange(len(labels)),
        columns=COLUMNS,
        about=(
            "Heart disease at four hospitals (sites). Split by patient, stratified by hospital and "
            "diagnosis. The hospitals differ in what they measured, what they left out, and how many of their "
            "patients are ill."
        ),
    )


def _clean(table: pd.DataFrame) -> pd.DataFrame:
    """Missing values as NaN, codes as whole numbers: files write 1 and 1.0, and a cholesterol of 0 where none
    was taken."""
    table = table.replace("?", np.nan)
    for column in COLUMNS:
        if column.kind == "categorical":
            table[column.column] = table[column.column].str.removesuffix(".0")
    table["chol"] = table["chol"].mask(table["chol"] == "0")
    return table
