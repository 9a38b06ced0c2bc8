"""The `adult` data set: 48,842 people of the 1994 US census; does a person earn more than $50,000 a year?

Becker and Kohavi, Adult (Census Income), UCI 1996, doi 10.24432/C5XW20; CC BY 4.0.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from protocols.study.terms import Feature
from simulations.datasets.columns import categorical, encode_published, numeric
from simulations.datasets.dataset import Dataset, Split, choose, fixed_public_and_test
from simulations.datasets.request import DatasetRequest
from simulations.datasets.sources import DataSource, check_content, find, line_digests, read_lines

SOURCE = DataSource(
    folder="adult",
    url="https://archive.ics.uci.edu/static/public/2/adult.zip",
    steps="download adult.zip and unpack adult.data and adult.test",
)
TRAIN_CHECKSUM = "564aa3f92f6996de890b1b0105c9bd596b06d1fce922377f6de55aa6de14742d"
TEST_CHECKSUM = "698c6ad46e1a9e8ea45015628147c97488a136afce759eeda302da020f598e4e"
TEST_SIZE = 1_000  # the rest of adult.test is public

# Categories are those of adult.names, with "?" for a missing answer; "fnlwgt" (a sampling weight) is
# left out. Centres and scales are round constants, so that no row influences a feature's encoding.
COLUMNS: tuple[Feature, ...] = (
    numeric("age", centre=40, scale=14),
    categorical(
        "workclass",
        tuple(
            "Private Self-emp-not-inc Self-emp-inc Federal-gov Local-gov State-gov Without-pay Never-worked ?".split()
        ),
    ),
    categorical(
        "education",
        tuple(
            "Bachelors Some-college 11th HS-grad Prof-school Assoc-acdm Assoc-voc 9th 7th-8th 12th Masters "
            "1st-4th 10th Doctorate 5th-6th Preschool".split()
        ),
    ),
    numeric("education-num", centre=10, scale=2.5),
    categorical(
        "marital-status",
        tuple(
            "Married-civ-spouse Divorced Never-married Separated Widowed Married-spouse-absent "
            "Married-AF-spouse".split()
        ),
    ),
    categorical(
        "occupation",
        tuple(
            "Tech-support Craft-repair Other-service Sales Exec-managerial Prof-specialty Handlers-cleaners "
            "Machine-op-inspct Adm-clerical Farming-fishing Transport-moving Priv-house-serv Protective-serv "
            "Armed-Forces ?".split()
        ),
    ),
    categorical("relationship", tuple("Wife Own-child Husband Not-in-family Other-relative Unmarried".split())),
    categorical("race", tuple("White Asian-Pac-Islander Amer-Indian-Eskimo Other Black".split())),
    categorical("sex", ("Female", "Male")),
    numeric("capital-gain", centre=0, scale=3, log=True),
    numeric("capital-loss", centre=0, scale=3, log=True),
    numeric("hours-per-week", centre=40, scale=12),
    categorical(
        "native-country",
        tuple(
            "United-States Cambodia England Puerto-Rico Canada Germany Outlying-US(Guam-USVI-etc) India "
            "Japan Greece South China Cuba Iran Honduras Philippines Italy Poland Jamaica Vietnam Mexico "
            "Portugal Ireland France Dominican-Republic Laos Ecuador Taiwan Haiti Columbia Hungary "
            "Guatemala Nicaragua Scotland Thailand Yugoslavia El-Salvador Trinadad&Tobago Peru Hong "
            "Holand-Netherlands ?".split()
        ),
    ),
)
_HEADER = ["age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation"] + [
    "relationship", "race", "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country",
    "income",
]  # fmt: skip


def load(request: DatasetRequest) -> Dataset:
    """Rows f32 [N, features], labels 0 (at most $50,000) and 1. Private: adult.data; public and test: the
    first and the last rows of adult.test in the file's own order, so that published votes on it line up.

    Raises DataUnavailable, DataCorrupt if the content is not the published one, InvalidInput for sizes.
    """
    train_path = find(SOURCE, request.data_dir, ["adult.data", "adult.data.gz"])
    test_path = find(SOURCE, request.data_dir, ["adult.test", "adult.test.gz"])
    train = _read(train_path, TRAIN_CHECKSUM, ordered=False)
    held_out = _read(test_path, TEST_CHECKSUM, ordered=True)
    rng = np.random.default_rng([request.seed, *b"adult private"])
    private = choose(len(train), request.private_size, "adult", rng)
    public, test = fixed_public_and_test(
        len(held_out), request.public_size, request.test_size, (len(held_out), TEST_SIZE), "adult"
    )
    table = pd.concat([train, held_out], ignore_index=True)
    inputs = encode_published(table, COLUMNS, where="adult")
    labels = table["income"].str.startswith(">50K").to_numpy(dtype=np.int64)
    return Dataset.of(
        inputs,
        labels,
        Split(private=private, public=public + len(train), test=test + len(train)),
        name="adult",
        kind="table",
        class_names=("<=50K", ">50K"),
        columns=COLUMNS,
        about=(
            "Adult census income. Private: from adult.data; public and test: the first and the last rows of "
            "adult.test, in file order. Missing answers are a category of their own."
        ),
    )


def _read(path: Path, checksum: str, *, ordered: bool) -> pd.DataFrame:
    """The rows as strings. UCI's adult.test opens with a comment line and ends its labels with a full stop."""
    lines = [line.strip() for line in read_lines(path) if not line.startswith("|")]
    check_content(path, line_digests(lines), checksum, ordered=ordered)
    rows = [line.split(", ") for line in lines]
    return pd.DataFrame(rows, columns=_HEADER, dtype=str)
