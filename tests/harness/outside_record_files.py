"""The files of record votes with one number in them that may be out of its range."""

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np

from protocols.array_files import parse_arrays
from protocols.features.feature_map import FeatureMap
from protocols.release.sums import (
    SOFT_LABELS_FILE,
    SUMS_FILE,
    LabelsOfPool,
    read_soft_labels,
    read_sums,
    soft_labels_csv,
    sums_csv,
)
from protocols.sums.blocks import Blocks, Kernel
from tests.harness.deployed_records import record_study_of
from tests.harness.outside_ranges import array_of
from tests.harness.record_votes import QUERIES


def features(side: int) -> object:
    """The file of a feature map of records with such a side."""
    content = io.BytesIO()
    np.savez(content, shape=array_of(side), kinds=np.zeros(0, "<i8"))
    return FeatureMap.from_bytes(content.getvalue())


_KERNEL = Kernel(
    share=1, columns=np.arange(1), scales=np.ones(1), centres=np.zeros((1, 1), np.int64), width=1,
    means=np.zeros(1, np.int64), matrix=np.ones((1, 1), np.int64),
)  # fmt: skip
_BLOCKS = Blocks(QUERIES.features, (*QUERIES.blocks[:1], _KERNEL))


def queries(name: str) -> Callable[[int], object]:
    """Reads the file of blocks in which one block has another figure of this name."""
    place = 1 if name == "width" else 0

    def read(value: int) -> object:
        arrays = parse_arrays(_BLOCKS.to_bytes(), where="queries")
        content = io.BytesIO()
        np.savez(content, **arrays | {f"{place}.{name}": array_of(value).reshape(())})
        return Blocks.from_bytes(content.getvalue())

    return read


RECORDS, _ = record_study_of()


def sums(value: int, folder: Path) -> object:
    text = sums_csv(np.zeros((RECORDS.votes.queries, RECORDS.classes), dtype=np.int64))
    (folder / SUMS_FILE).write_text(text.replace("0,0,0", f"0,{value},0", 1))
    return read_sums(folder, RECORDS)


def soft_labels(value: int, folder: Path) -> object:
    pool, votes = RECORDS.terms.pool_size, RECORDS.votes.votes
    made = LabelsOfPool(np.zeros((pool, votes), dtype=np.int64), np.full((pool, RECORDS.classes), 0.5))
    (folder / SOFT_LABELS_FILE).write_text(soft_labels_csv(made).replace("0,0 ", f"0,{value} ", 1))
    return read_soft_labels(folder, RECORDS)
