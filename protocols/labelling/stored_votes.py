"""Votes that were cast once, so that a study can be replayed: those of each teacher, or only their histogram.

They, and true labels, may come from arrays or .npy and .npz files, without data or training.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import numpy as np
from jaxtyping import Float64, Int64, Integer
from numpy import ndarray

from protocols.array_files import FILE_BYTES, array_names, read_array, read_arrays
from protocols.errors import InvalidInput
from protocols.reading import open_file
from protocols.study.several_findings import ONE_CLASS, Asked
from protocols.votes import check_votes, count_votes

# Histograms of groups of equal weight are kept where they have at most this many cells (8 bytes each).
_GROUP_CELLS = 20_000_000
_GROUPS = 64


# More votes are cast at once than are needed, as starting the engine takes seconds.
_AHEAD = 2

CastMore = Callable[[int], Integer[ndarray, "parties teachers cast"]]


@dataclass(eq=False)
class CastVotes:
    """The votes of each teacher: class ids or ABSTAIN.

    votes: on the first queries of the pool, or on all. pool: how many queries there are (None: as many as votes).
    cast_more(queries): votes on at least so many of the first queries, for those that are asked after all.
    asks: what they are votes on.
    """

    classes: int
    votes: Integer[ndarray, "parties teachers cast"] = field(repr=False)
    pool: int | None = None
    cast_more: CastMore | None = field(default=None, repr=False)
    asks: Asked = ONE_CLASS
    _groups: dict[bytes, Float64[ndarray, "groups cells"]] = field(default_factory=dict, repr=False)

    @property
    def teachers(self) -> int:
        """How many teachers each party has."""
        return self.votes.shape[1]

    @property
    def queries(self) -> int:
        """The number of queries that may be asked."""
        return self.votes.shape[2] if self.pool is None else self.pool

    def reach(self, queries: int) -> bool:
        """Sees to it that the first so many queries are voted on; whether votes had to be cast for that."""
        known = self.votes.shape[2]
        if queries <= known or self.cast_more is None:
            return False
        self.votes = self.cast_more(min(max(queries, _AHEAD * known), self.queries))
        self._groups.clear()
        return True

    @property
    def arrays(self) -> tuple[ndarray, ...]:
        """Everything that was stored, for a digest."""
        return (self.votes,)

    def first(self, queries: int) -> CastVotes:
        """The votes on the first so many queries."""
        return CastVotes(self.classes, self.votes[:, :, :queries], asks=self.asks)

    def histogram(self) -> Float64[ndarray, "queries classes"]:
        """How many teachers voted for each class, of the queries that were voted on."""
        return count_votes(self.votes, np.ones(len(self.votes)), classes=self.classes)

    def group_counts(self, member: Int64[ndarray, " parties"], groups: int) -> Float64[ndarray, "groups cells"] | None:
        """Unweighted histograms of each group of parties on the queries that were voted on, flattened; None where that
        would take too much memory.

        Kept between calls, so that a sweep over budgets, weights and noise counts the votes once.
        """
        cells = self.votes.shape[2] * self.classes
        if groups > _GROUPS or groups * cells > _GROUP_CELLS:
            return None
        key = member.astype(np.int32).tobytes()
        if key not in self._groups:
            rows = [
                count_votes(self.votes, (member == group).astype(float), classes=self.classes).ravel()
                for group in range(groups)
            ]
            self._groups.clear()
            self._groups[key] = np.stack(rows)
        return self._groups[key]


# By how much the votes of one row must agree more than those on one query, and the fewest of both.
_CLEARLY_MORE, _FEWEST = 0.05, 10


def transposed(stored: StoredVotes) -> str | None:
    """A question, by the votes alone and so not for release, whether rows are queries; None where nothing says so.

    Parties mostly agree on a query, and name several classes over all of them.
    """
    if isinstance(stored, VoteCounts) or min(stored.votes.shape[0], stored.votes.shape[2]) < _FEWEST:
        return None

    def agreement(votes: Integer[ndarray, "parties teachers queries"]) -> float:
        counts = count_votes(votes, np.ones(len(votes)), classes=stored.classes)
        return float((counts.max(axis=1) / np.maximum(counts.sum(axis=1), 1)).mean())

    column, row = agreement(stored.votes), agreement(stored.votes.transpose(2, 1, 0))
    if row < column + _CLEARLY_MORE:
        return None
    return (
        f"a party's own votes are {100 * row:.0f} % of one class, and the votes on a query {100 * column:.0f} %: rows "
        "are parties, so the array may be transposed, or parties know few classes"
    )


@dataclass(frozen=True, eq=False)
class VoteCounts:
    """Only the unweighted histogram: votes for each class, each row summing to the number of voters."""

    classes: int
    counts: Float64[ndarray, "queries classes"] = field(repr=False)
    asks: ClassVar[Asked] = ONE_CLASS
    teachers: ClassVar[int] = 1

    @property
    def queries(self) -> int:
        """The number of queries that were voted on."""
        return len(self.counts)

    @property
    def arrays(self) -> tuple[ndarray, ...]:
        """Everything that was stored, for a digest."""
        return (self.counts,)

    def first(self, queries: int) -> VoteCounts:
        """The votes on the first so many queries."""
        return VoteCounts(self.classes, self.counts[:queries])

    def histogram(self) -> Float64[ndarray, "queries classes"]:
        """How many teachers voted for each class."""
        return self.counts


@dataclass(frozen=True, eq=False)
class RecordSums:
    """Where records vote: each seat's sum of contributions, i64 [queries, classes] in lattice units of the study."""

    classes: int
    sums: Sequence[Int64[ndarray, "queries classes"]] = field(repr=False)

    @property
    def queries(self) -> int:
        """How many public queries there are."""
        return len(self.sums[0])


StoredVotes = CastVotes | VoteCounts


MOST_CLASSES = 10_000
_LARGEST_COUNT = 10_000_000


def load_votes(path: Path, *, kind: str | None, classes: int | None, parties: int | None) -> tuple[StoredVotes, int]:
    """The votes in a .npy file and the number of parties that cast them.

    kind "ids": integers [parties, queries] or [parties, teachers, queries], -1 for an abstention; "counts": votes per
    class [queries, classes], non-negative, every row with the same sum. kind None: counts if the dtype is float, else
    it must be given. classes: None takes the largest id + 1 (ids) or the columns (counts). parties: the requested
    number, or None.

    Raises DataUnavailable, DataCorrupt, or InvalidInput with the shape, dtype or value at fault.
    """
    array = _load(path)
    if kind is None:
        if not np.issubdtype(array.dtype, np.floating):
            raise InvalidInput(
                f"votes in {path} have dtype {array.dtype}, and no kind is given; allowed: votes_kind ids or counts"
            )
        kind = "counts"
    stored, found = stored_votes(array, kind=kind, classes=classes, called=str(path))
    if parties is not None and parties != found:
        raise InvalidInput(f"parties is {parties}; allowed: {found}, whose votes {path} holds")
    return stored, found


def stored_votes(array: ndarray, *, kind: str, classes: int | None, called: str) -> tuple[StoredVotes, int]:
    """The votes in an array, checked, and the number of parties that cast them; the arguments are as in load_votes.

    called: the array's name in messages. Raises InvalidInput.
    """
    return (_counts if kind == "counts" else _ids)(called, array, classes)


def check_labels(array: ndarray, *, queries: int, classes: int, called: str) -> Int64[ndarray, " queries"]:
    """True labels of the queries: the first `queries` of the array. Raises InvalidInput, as read_labels does."""
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
        raise InvalidInput(
            f"labels in {called} have dtype {array.dtype} and shape {array.shape}; allowed: integers, one dimension"
        )
    if len(array) < queries:
        raise InvalidInput(f"{called} has {len(array)} labels; allowed: one for each of {queries} queries")
    labels = array[:queries].astype(np.int64)
    if labels.min() < 0 or labels.max() >= classes:
        raise InvalidInput(f"labels span [{labels.min()}, {labels.max()}]; allowed: [0, {classes - 1}]")
    return labels


def load_labels(path_text: str, *, queries: int, classes: int) -> Int64[ndarray, " queries"]:
    """True labels of the queries from FILE.npy or FILE.npz:KEY; the first `queries` of them.

    Raises InvalidInput when there are fewer, or some lie outside the classes.
    """
    return check_labels(labels_in(path_text), queries=queries, classes=classes, called=path_text)


def labels_in(path_text: str) -> ndarray:
    """The array of FILE.npy or FILE.npz:KEY, unchecked. Raises InvalidInput."""
    name, _, key = path_text.partition(".npz:")
    return _load(Path(f"{name}.npz") if key else Path(path_text), key=key or None)


def _counts(path: str, array: ndarray, classes: int | None) -> tuple[VoteCounts, int]:
    if array.ndim != 2 or array.shape[0] < 1 or array.shape[1] < 2 or array.dtype.kind not in "iuf":
        raise InvalidInput(
            f"vote counts in {path} have dtype {array.dtype} and shape {array.shape}; "
            "allowed: numbers [queries, classes]"
        )
    counts = array.astype(np.float64)
    if not np.isfinite(counts).all() or (counts < 0).any() or (counts != np.rint(counts)).any():
        bad = int((~np.isfinite(counts) | (counts < 0) | (counts != np.rint(counts))).any(axis=1).argmax())
        raise InvalidInput(f"vote counts in {path}, row {bad}, are not all whole; allowed: whole numbers >= 0")
    sums = counts.sum(axis=1)
    if (sums != sums[0]).any() or not 1 <= sums[0] <= _LARGEST_COUNT:
        raise InvalidInput(
            f"rows of {path} sum to {sums.min():g} to {sums.max():g} votes; "
            f"allowed for counts, a row per query and a column per class: all the same, 1 to {_LARGEST_COUNT}"
        )
    if classes is not None and classes != counts.shape[1]:
        raise InvalidInput(f"classes is {classes}; allowed: {counts.shape[1]}, which {path} has")
    return VoteCounts(counts.shape[1], counts), int(sums[0])


def _ids(path: str, array: ndarray, classes: int | None) -> tuple[CastVotes, int]:
    if array.ndim not in (2, 3) or array.size == 0 or array.dtype.kind not in "iu":
        raise InvalidInput(
            f"votes in {path} have dtype {array.dtype} and shape {array.shape}; allowed: integers [parties, queries] "
            "or [parties, teachers, queries]"
        )
    votes = array if array.ndim == 3 else array[:, None, :]
    found = max(2, int(votes.max()) + 1) if classes is None else classes
    if found > MOST_CLASSES:
        raise InvalidInput(f"votes in {path} go to class {found - 1}; allowed: class ids below {MOST_CLASSES}")
    check_votes(votes, classes=found)
    return CastVotes(found, votes), len(votes)


def _load(path: Path, *, key: str | None = None) -> ndarray:
    """The array of an .npy file, or the named one of an .npz file, which is recognised by its first bytes."""
    with open_file(path, most=FILE_BYTES) as file:
        packed = file.read(2) == b"PK"
    if not packed:
        return read_array(path)
    names = array_names(path)
    if key is None or key not in names:
        raise InvalidInput(f"{path} holds {', '.join(names)[:300]}; name one of them as {path}:KEY")
    return read_arrays(path, [key])[key]
