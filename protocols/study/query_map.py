"""QueryMap: the public queries of a study of record votes, and which of them each private record is nearest to.

Queries are points; they lie in partitions, and a record votes with its own label in the `nearest` of each partition. A
partition looks at some features only: all of them for centres of clusters of the public pool; one column's for the
cells of that column. All of it is fixed before anything private is touched, and stands in the study's digest.

Distances are whole numbers: features are scaled, rounded and clipped first. So the same record votes in the same cells
on every machine, and ties go to the query with the lowest number.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from jaxtyping import Float32, Float64, Int64
from numpy import ndarray

from protocols.array_files import parse_arrays
from protocols.errors import DataCorrupt, InvalidInput
from protocols.features.feature_map import FeatureMap
from protocols.features.stage import MOST_STEPS, whole_steps
from protocols.ranges import check, check_all

# Squared distances stay below 2**53, where float64 is exact: 4 * MOST_STEPS**2 * MOST_WIDTH = 2**50.
MOST_WIDTH = 2**14
# Within these bounds no feature of 32 bits times its scale exceeds a float64.
_LEAST_SCALE, _MOST_SCALE = 2.0**-64, 2.0**64
# The bytes of a file of queries, at most.
QUERIES_BYTES = 2**30
# The arrays of a file of queries: type and rank.
_ARRAYS = {
    "features": ("|u1", 1),
    "partitions": ("<i8", 2),
    "columns": ("<i8", 1),
    "scales": ("<f8", 1),
    "centres": ("<i4", 1),
}
# So many minima are found one by one; more of them by sorting.
_FEW = 16
# Distances that are held at once.
_CHUNK = 2**22


@dataclass(frozen=True, eq=False)
class Partition:
    """Queries of which each record votes in the nearest ones.

    columns: positions of the features that count; scales: what each is multiplied with; centres: one row a query, in
    whole steps, the same columns; nearest: in how many of them a record votes, with 1/sqrt of all its votes in each.
    Raises InvalidInput, with the value and the allowed range.
    """

    columns: Int64[ndarray, " width"]
    scales: Float64[ndarray, " width"]
    centres: Int64[ndarray, "queries width"]
    nearest: int

    def __post_init__(self) -> None:
        queries, width = self.centres.shape
        if not 1 <= width <= MOST_WIDTH:
            raise InvalidInput(f"a partition looks at {width} features; allowed: 1 to {MOST_WIDTH}")
        if queries < 2:
            raise InvalidInput(f"a partition has {queries} queries; allowed: at least 2, as one tells nothing apart")
        if not 1 <= self.nearest <= queries:
            raise InvalidInput(f"nearest is {self.nearest}; allowed: 1 to the {queries} queries of the partition")
        if self.columns.min() < 0 or len(np.unique(self.columns)) < width:
            raise InvalidInput(f"columns of a partition are {self.columns.tolist()[:20]}; allowed: from 0, each once")
        if not ((self.scales >= _LEAST_SCALE) & (self.scales <= _MOST_SCALE)).all():
            raise InvalidInput(
                f"scales span [{self.scales.min()}, {self.scales.max()}]; allowed: {_LEAST_SCALE:g} to {_MOST_SCALE:g}"
            )
        low, high = int(self.centres.min()), int(self.centres.max())
        if low < -MOST_STEPS or high > MOST_STEPS:
            raise InvalidInput(f"centres lie at {low} to {high} steps; allowed: {-MOST_STEPS} to {MOST_STEPS}")

    @classmethod
    def of(
        cls,
        points: Float32[ndarray, "queries width"],
        *,
        columns: Int64[ndarray, " width"],
        scales: Float64[ndarray, " width"] | None = None,
        nearest: int = 1,
    ) -> Partition:
        """The partition whose queries are these points; points that are the same after rounding are one query."""
        each = np.ones(points.shape[1]) if scales is None else scales
        return cls(columns, each, np.unique(whole_steps(points, scale=each).astype(np.int64), axis=0), nearest)

    def nearest_queries(self, features: Float32[ndarray, "records features"]) -> Int64[ndarray, "records nearest"]:
        """The numbers of the queries, in this partition, that each record is nearest to; the nearest first."""
        # |c|^2/2 - x.c orders as |x - c|^2 does. Sums of whole numbers below 2**53 are exact in any order.
        centres = self.centres.astype(np.float64)
        halves = (centres * centres).sum(axis=1) / 2
        found = np.empty((len(features), self.nearest), dtype=np.int64)
        rows = max(1, _CHUNK // len(centres))
        for start in range(0, len(features), rows):
            steps = whole_steps(features[start : start + rows][:, self.columns], scale=self.scales)
            distances = halves - steps @ centres.T
            found[start : start + rows] = _lowest(distances, self.nearest)
        return found


@dataclass(frozen=True, eq=False)
class QueryMap:
    """All queries of a study, partition after partition; features: what records are compared by."""

    features: FeatureMap
    partitions: tuple[Partition, ...] = field(repr=False)

    def __post_init__(self) -> None:
        if not self.partitions:
            raise InvalidInput("the study has no queries; allowed: at least one partition")
        check("study", "records.queries", self.queries)
        last = max(int(each.columns.max()) for each in self.partitions)
        if last >= self.features.width:
            raise InvalidInput(f"a partition looks at feature {last}; allowed: 0 to {self.features.width - 1}")

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of a private record, as its hospital holds it."""
        return self.features.input_shape

    @property
    def queries(self) -> int:
        """How many queries there are."""
        return sum(len(each.centres) for each in self.partitions)

    @property
    def votes(self) -> int:
        """In how many queries each record votes."""
        return sum(each.nearest for each in self.partitions)

    def nearest_queries(self, records: Float32[ndarray, "records ..."]) -> Int64[ndarray, "records votes"]:
        """The numbers of the queries that each record votes in. Raises InvalidInput for records that do not fit."""
        return self.nearest_to(self.features(records))

    def nearest_to(self, features: Float32[ndarray, "records features"]) -> Int64[ndarray, "records votes"]:
        """The same for records whose features are known already: what this map's `features` gave."""
        found, before = [], 0
        for each in self.partitions:
            found.append(each.nearest_queries(features) + before)
            before += len(each.centres)
        return np.concatenate(found, axis=1)

    def cells(
        self, records: Float32[ndarray, "records ..."], labels: Int64[ndarray, " records"], *, classes: int
    ) -> Int64[ndarray, "records votes"]:
        """The cells, query * classes + label, that each record votes in. Raises InvalidInput, also for a label that is
        no class."""
        if len(labels) and not (labels.min() >= 0 and labels.max() < classes):
            raise InvalidInput(f"labels span [{labels.min()}, {labels.max()}]; allowed: 0 to {classes - 1}")
        return self.nearest_queries(records) * classes + labels[:, None]

    def to_bytes(self) -> bytes:
        """The file of the queries, an .npz of plain arrays: what a consortium hands round beside its study."""
        content = io.BytesIO()
        np.savez(
            content,
            features=np.frombuffer(self.features.to_bytes(), dtype="|u1"),
            partitions=np.array([(*each.centres.shape, each.nearest) for each in self.partitions], dtype="<i8"),
            columns=np.concatenate([each.columns for each in self.partitions]).astype("<i8"),
            scales=np.concatenate([each.scales for each in self.partitions]).astype("<f8"),
            centres=np.concatenate([each.centres.ravel() for each in self.partitions]).astype("<i4"),
        )
        return content.getvalue()

    @classmethod
    def from_bytes(cls, content: bytes, *, where: str = "the file of queries") -> QueryMap:
        """The queries in what to_bytes gave, or anybody else made: untrusted. where: what it is, for the message.

        Raises DataCorrupt where it is no such file, InvalidInput where its queries are out of range.
        """
        arrays = parse_arrays(content, list(_ARRAYS), where=where, most=QUERIES_BYTES)
        for name, (kind, rank) in _ARRAYS.items():
            if arrays[name].dtype != np.dtype(kind) or arrays[name].ndim != rank:
                raise DataCorrupt(
                    f"{where}: {name} is {arrays[name].dtype} of rank {arrays[name].ndim}; "
                    f"allowed: {kind} of rank {rank}"
                )
        shapes = arrays["partitions"]
        if shapes.shape[1] != 3:
            raise DataCorrupt(f"{where}: partitions has shape {shapes.shape}; allowed: (partitions, 3)")
        features = FeatureMap.from_bytes(arrays["features"].tobytes(), where=f"{where}: features")
        check_all("queries", "partitions", shapes)
        widths, sizes = shapes[:, 1], shapes[:, 0] * shapes[:, 1]  # at most 2**48 each
        held = tuple(len(arrays[name]) for name in ("columns", "scales", "centres"))
        declared = (int(widths.sum()), int(widths.sum()), sum(sizes.tolist()))
        if held != declared:
            raise DataCorrupt(f"{where} holds {held} columns, scales and centres; allowed: the {declared} it declares")
        # An array without a partition splits into one part, which zip leaves out.
        columns, scales = (np.split(arrays[name], np.cumsum(widths)[:-1]) for name in ("columns", "scales"))
        centres = np.split(arrays["centres"].astype(np.int64), np.cumsum(sizes)[:-1])
        return cls(
            features,
            tuple(
                Partition(c, s, p.reshape(queries, -1), nearest)
                for c, s, p, (queries, _, nearest) in zip(columns, scales, centres, shapes.tolist(), strict=False)
            ),
        )

    @cached_property
    def digest(self) -> str:
        """SHA-256, in hexadecimal digits, of everything that decides where a record votes."""
        digest = hashlib.sha256(f"conclave queries 1 {self.features.digest} {len(self.partitions)}\n".encode())
        for array in self._arrays():
            digest.update(f"{array.dtype.str} {array.shape}\n".encode() + array.tobytes())
        return digest.hexdigest()

    def _arrays(self) -> Iterator[ndarray]:
        for each in self.partitions:
            yield each.columns.astype("<i8")
            yield each.scales.astype("<f8")
            yield np.ascontiguousarray(each.centres, dtype="<i8")
            yield np.array([each.nearest], dtype="<i8")


def _lowest(distances: Float64[ndarray, "records queries"], count: int) -> Int64[ndarray, "records count"]:
    """The positions of the `count` smallest of each row, in order; of equal ones the first. Overwrites `distances`."""
    if count > _FEW:
        return np.argsort(distances, axis=1, kind="stable")[:, :count]
    row, found = np.arange(len(distances)), []
    for _ in range(count):
        found.append(distances.argmin(axis=1))
        distances[row, found[-1]] = np.inf
    return np.stack(found, axis=1)
