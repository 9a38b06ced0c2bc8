"""By what test records can be told apart: class, site, and columns of a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from jaxtyping import Float32, Float64, Int64, Shaped
from numpy import ndarray

from protocols.errors import InvalidInput
from protocols.study.features import read_numbers
from protocols.study.terms import Feature
from simulations.datasets.dataset import Dataset

# A column of numbers with more distinct ones is cut into quarters of the test records.
_MOST_NUMBERS = 10
_MOST_NAMES = 200
_MISSING = "missing"


@dataclass(frozen=True, eq=False)
class Grouping:
    """One way to tell test records apart. member: of each test record, an index into names, of which each has some.

    edges: where numbers are cut; empty where they are not, or names are no numbers.
    """

    attribute: str
    names: tuple[str, ...]
    member: Int64[ndarray, " test"]
    edges: tuple[float, ...] = ()


def groupings(dataset: Dataset, columns: Sequence[str], *, like: Sequence[Grouping] = ()) -> list[Grouping]:
    """The test records by class, if they have one, by site where there are several, and by each of the columns.

    A column is a feature of the data set, or was asked for when an own table was read. Numbers with more than 10
    different values are cut at the quartiles of the test records, or where `like` cuts them: groupings of other test
    records. Raises InvalidInput for a column that the data do not have, and for one with more than 200 names.
    """
    edges = {each.attribute: each.edges for each in like}
    made = []
    if not dataset.findings:
        made.append(_grouping("class", np.array(dataset.class_names)[dataset.test_labels], order=dataset.class_names))
    sites = dataset.test_names.get("site")
    if sites is not None and len(set(sites.tolist())) > 1:
        made.append(_grouping("site", np.where(sites == "", _MISSING, sites), order=dataset.site_names))
    for column in columns:
        if column in ("class", "site"):
            if column not in {each.attribute for each in made}:
                raise InvalidInput(f"groups has {column!r}; {dataset.name} has no test records of several sites")
            continue
        made.append(_of_column(dataset, column, edges.get(column, ())))
    return made


def _of_column(dataset: Dataset, column: str, edges: tuple[float, ...]) -> Grouping:
    if column in dataset.test_names:
        return _of_texts(column, dataset.test_names[column], edges)
    start = 0
    for feature in dataset.columns:
        if feature.column == column and feature.kind != "text":
            return _of_feature(feature, dataset.test_inputs[:, start : start + feature.width], edges)
        start += feature.width
    known = ", ".join([*dataset.test_names, *(each.column for each in dataset.columns if each.kind != "text")])
    raise InvalidInput(f"groups has {column!r}; allowed with {dataset.name}: class{', ' * bool(known)}{known}")


def _of_texts(column: str, texts: Shaped[ndarray, " test"], edges: tuple[float, ...]) -> Grouping:
    present = texts != _MISSING
    numbers = read_numbers(texts.tolist())
    if present.any() and np.isfinite(numbers[present]).all():
        return _of_numbers(column, np.where(present, numbers, np.nan), edges)
    return _grouping(column, texts, order=())


def _of_feature(feature: Feature, inputs: Float32[ndarray, "test width"], edges: tuple[float, ...]) -> Grouping:
    """The values of a column that became features, as they were before."""
    if feature.kind == "categorical":
        known = inputs.any(axis=1)
        place = np.where(known, inputs.argmax(axis=1), len(feature.categories))
        names = np.array([*feature.categories, _MISSING])[place]
        return _grouping(feature.column, names, order=feature.categories)
    assert feature.centre is not None
    assert feature.scale is not None
    numbers = inputs[:, 0].astype(np.float64) * feature.scale + feature.centre
    numbers = np.expm1(numbers) if feature.log else numbers
    if feature.may_miss:
        numbers[inputs[:, 1] > 0] = np.nan
    # Features are 32 bits: what was 43 comes back as 43.0000001.
    return _of_numbers(feature.column, np.array([float(f"{number:.6g}") for number in numbers]), edges)


def _of_numbers(column: str, numbers: Float64[ndarray, " test"], edges: tuple[float, ...]) -> Grouping:
    """Distinct numbers where they are few, else quarters of the records, or as `edges` cut them; NaN is missing."""
    present = np.isfinite(numbers)
    values = np.unique(numbers[present])
    if len(values) <= _MOST_NUMBERS and not edges:
        order = _distinct(values, digits=6)
        place = np.searchsorted(values, numbers)
        names = np.array([*order, _MISSING])[np.where(present, place, len(order))]
        return _grouping(column, names, order=order)
    edges = edges or tuple(np.unique(np.quantile(numbers[present], [0.25, 0.5, 0.75])).tolist())
    said = _distinct(edges, digits=4)
    between = [f"{low} to {high}" for low, high in pairwise(said)]
    order = (f"below {said[0]}", *between, f"{said[-1]} or more")
    place = np.searchsorted(edges, numbers, side="right")
    names = np.array([*order, _MISSING])[np.where(present, place, len(order))]
    return replace(_grouping(column, names, order=order), edges=edges)


def _distinct(numbers: Sequence[float] | Float64[ndarray, " numbers"], *, digits: int) -> tuple[str, ...]:
    """Different numbers in words, with so many digits, or as many more as tell them apart."""
    for each in range(digits, 18):
        said = tuple(f"{number:.{each}g}" for number in numbers)
        if len(set(said)) == len(said):
            break
    return said


def _grouping(attribute: str, names: Shaped[ndarray, " test"], *, order: Sequence[str]) -> Grouping:
    """Groups in the given order, then the others by name."""
    found = set(names.tolist())
    if len(found) > _MOST_NAMES:
        raise InvalidInput(f"groups has {attribute!r}, with {len(found)} names; allowed: at most {_MOST_NAMES}")
    listed = [*(name for name in order if name in found), *sorted(found - set(order))]
    place = {name: number for number, name in enumerate(listed)}
    return Grouping(attribute, tuple(listed), np.array([place[name] for name in names.tolist()], np.int64))
