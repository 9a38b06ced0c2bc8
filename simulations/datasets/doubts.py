"""What makes figures of a data set look better, or worse, than they are: columns that tell the label or say nothing,
classes that nobody tests, hospitals that hold next to nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from jaxtyping import Float32, Float64, Int64, Shaped
from numpy import ndarray

from protocols.plural import some
from protocols.study.column_queries import bare_columns
from protocols.study.findings import NOT_KNOWN
from simulations.datasets.dataset import Dataset

# Of the records that the most frequent class gets wrong, a column may get wrong so many.
_LEFT: Final = 0.02
# Numbers are looked at in so many ranges, of at least so many records each.
_RANGES, _IN_RANGE = 32, 20
# A model of fewer records knows little, and says much about each.
FEW_RECORDS: Final = 10


def tells(cells: Int64[ndarray, " records"], labels: Int64[ndarray, " records"]) -> bool:
    """Whether the most frequent label of each cell is nearly always right, of at least 40 records.

    Right, that is, for at least 98 % of the records that the most frequent label of all gets wrong; a record that is
    alone in its cell counts as wrong. cells: numbers from 0.
    """
    if len(labels) < 2 * _IN_RANGE:
        return False
    classes, label = np.unique(labels, return_inverse=True)
    counts = np.bincount(cells * len(classes) + label, minlength=(cells.max() + 1) * len(classes))
    table = counts.reshape(-1, len(classes))
    wrong = len(labels) - table.max(axis=1).sum() + (table.sum(axis=1) == 1).sum()
    guessed = len(labels) - np.bincount(label).max()
    return bool(guessed and wrong <= _LEFT * guessed)


def ranges_of(numbers: Float64[ndarray, " records"], labels: Shaped[ndarray, " records"]) -> Int64[ndarray, " records"]:
    """In which of up to 32 ranges of about as many records each number lies, and in which part of it: a limit that
    parts two labels seldom lies between two ranges, so each is cut in two where its labels differ most."""
    count = max(1, min(_RANGES, len(numbers) // _IN_RANGE))
    inner = np.sort(numbers)[np.arange(1, count) * len(numbers) // count]
    ranges = np.searchsorted(np.unique(inner), numbers, side="right")
    each, upper = labels[:, None] == np.unique(labels), np.zeros_like(ranges)
    for number in np.unique(ranges):
        inside = np.flatnonzero(ranges == number)
        inside = inside[np.argsort(numbers[inside], kind="stable")]
        below = np.cumsum(each[inside], axis=0)
        right = below.max(axis=1) + (below[-1] - below).max(axis=1)
        right[:-1][numbers[inside[1:]] == numbers[inside[:-1]]] = 0
        upper[inside[len(inside) - right[::-1].argmax() :]] = 1  # nothing, where nothing is gained
    return 2 * ranges + upper


def doubts_of(dataset: Dataset) -> tuple[str, ...]:
    """What casts doubt on the figures of any study of these data, a clause each, from the pool and test records, on
    whose labels figures rest anyway; first what was changed in reading."""
    found = list(dataset.notes)
    if dataset.kind == "table":
        pool, tests = dataset.public_inputs, dataset.test_inputs
        constant = [name for name, block in _blocks(dataset, pool) if (block == block[0]).all()]
        if constant:
            verb = "says" if len(constant) == 1 else "say"
            found.append(f"{some(constant)} {verb} nothing: the same in all of the pool's {len(pool)} records")
        found += [_telling(names) for names in [_tellers(dataset, np.concatenate([pool, tests]))] if names]
    for task in dataset.tasks:
        absent = np.flatnonzero(np.bincount(task.test_labels, minlength=task.classes) == 0)
        if len(absent):
            names = some([task.class_names[each] for each in absent])
            found.append(f"no test record of {task.name} is of class {names}, so nothing measures how it is told")
    return tuple(found)


def doubts_of_holdings(
    dataset: Dataset, shards: Sequence[Sequence[Int64[ndarray, " records"]]]
) -> tuple[str | None, str | None]:
    """What casts doubt on models of what single parties hold: that some hold few records, which is public; and that
    some hold one class alone, which is private."""
    held = [np.concatenate(of_party) for of_party in shards]
    sizes = np.array([len(records) for records in held])
    few, of = int((sizes < FEW_RECORDS).sum()), f"of {len(held)} hospitals"
    little = (
        f"{few} {of} hold fewer than {FEW_RECORDS} records, the smallest {sizes.min()}: a model of so few knows "
        "little, and may say much about each"
    )
    labels = dataset.private_labels
    single = sum(len(np.unique(labels[records], axis=0)) == 1 for records in held if len(records) >= FEW_RECORDS)
    one = f"{single} {of} hold records of one class alone: models of theirs know no other"
    return little if few else None, one if single and not dataset.findings else None


def _blocks(
    dataset: Dataset, inputs: Float32[ndarray, "records features"]
) -> Iterator[tuple[str, Float32[ndarray, "records width"]]]:
    """Each column that is no text, in words, and its features."""
    start = 0
    for each in dataset.columns or bare_columns(inputs.shape[1]):
        if each.kind != "text":
            yield f"column {each.column!r}", inputs[:, start : start + each.width]
        start += each.width


def _tellers(dataset: Dataset, inputs: Float32[ndarray, "records features"]) -> list[str]:
    """The columns that tell a label by themselves."""
    found: dict[str, None] = {}
    for task in dataset.tasks:
        # Of several findings a task has only the test records that know its own.
        seen = inputs if not dataset.findings else np.concatenate([task.public_inputs, task.test_inputs])
        labels = np.concatenate([task.public_labels, task.test_labels])
        known = labels != NOT_KNOWN
        labels = labels[known]
        for name, block in _blocks(dataset, seen[known]):
            numeric = len(np.unique(block[:, 0])) > 2
            rest = np.unique(block[:, 1:] if numeric else block, axis=0, return_inverse=True)[1].reshape(-1)
            cells = ranges_of(block[:, 0].astype(np.float64), labels) if numeric else np.zeros(len(block), np.int64)
            if tells(cells * (int(rest.max()) + 1) + rest, labels):
                found[name] = None
    return [*found]


def _telling(names: list[str]) -> str:
    verb = "tells" if len(names) == 1 else "each tell"
    return f"{some(names)} {verb} the label alone: figures mean nothing if that is known only after the label"
