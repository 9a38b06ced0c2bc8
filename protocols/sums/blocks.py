"""Blocks: the public features phi of which every protected unit of a study says one thing, and the code psi of what it
says.

A record with features x and class y says psi(y) x phi(x), a matrix. phi is made of blocks, each with its share of the
squared length: signs, linear maps, kernels, the cell that a record lies in. All of it is fixed before anything private
is touched, and its digest stands in the study.

Everything is in whole numbers, and each record stands alone: the same record gives the same integers in any company and
on every machine. A block is scaled to its length and rounded towards zero, so |phi| <= NORM_STEPS holds exactly. A
record that holds NaN or infinite values says nothing: its phi is 0.
"""

from __future__ import annotations

import hashlib
import io
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import isqrt
from typing import Any, ClassVar, Final  # Any: arrays and whole numbers by name

import numpy as np
from jaxtyping import Float32, Float64, Int64
from numpy import ndarray

from protocols.array_files import parse_arrays, typed_array
from protocols.errors import DataCorrupt, InvalidInput
from protocols.features.feature_map import FeatureMap
from protocols.features.stage import EXACT, MOST_STEPS, whole_steps
from protocols.ranges import check

# phi of length 1 is so many steps, and so is psi: with a weight below 2**33 a product of the three fits 64 bits.
NORM_STEPS: Final = 2**15
TARGET_STEPS: Final = 2**14
# Of psi's squared length where phi has signs: a part that is the same for every class, so that the sum of phi is known.
OVERALL_SHARE: Final = (1, 16)
# The bytes of a file of blocks, at most.
BLOCKS_BYTES: Final = 2**30
# Squared distances stay below 2**53, where float64 is exact: 4 * MOST_STEPS**2 * MOST_WIDTH = 2**50.
MOST_WIDTH: Final = 2**14
# Within these bounds no feature of 32 bits times its scale exceeds a float64.
_LEAST_SCALE, _MOST_SCALE = 2.0**-64, 2.0**64
# Before it is normalised, a row's largest value has so many bits: squares of 2**13 of them stay below 2**53.
_BITS = 20
_MOST_ROWS = 2**13
_MOST_BLOCKS = 2**12
# A kernel of 1 is so many steps.
KERNEL_STEPS: Final = 2**15
# So many minima are found one by one; more of them by sorting.
_FEW = 16
# Values that are held at once.
_CHUNK = 2**22

Steps = Int64[ndarray, "records rows"]
Features = Float32[ndarray, "records features"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Block(ABC):
    """Some rows of phi. share: of the squared length, in parts of all blocks' shares."""

    share: int
    # Its number in files and digests, and the arrays that define it, as little-endian dtype and rank.
    number: ClassVar[int]
    layout: ClassVar[Mapping[str, tuple[str, int]]]
    # Whether an entry may be below 0.
    signed: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check("queries", "share", self.share)

    @property
    @abstractmethod
    def rows(self) -> int:
        """How many rows of phi it is."""

    @property
    def filled(self) -> int:
        """How many of its rows one record may fill."""
        return self.rows

    @property
    def last(self) -> int:
        """The last feature that it looks at; -1 if at none."""
        return -1

    @abstractmethod
    def __call__(self, features: Features) -> Float64[ndarray, "records rows"]:
        """Whole numbers for finite features, of any length: their direction counts."""

    def arrays(self) -> dict[str, ndarray]:
        """What defines it, as `layout` says."""
        return {name: np.asarray(getattr(self, name)) for name in self.layout}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, ndarray]) -> Block:
        """The block that arrays of this layout define; untrusted. Raises InvalidInput."""
        given: Any = {name: arrays[name] if rank else int(arrays[name]) for name, (_, rank) in cls.layout.items()}
        return cls(**given)


_SHARE: Final = {"share": ("<i8", 0)}
_CHOSEN: Final = {**_SHARE, "columns": ("<i8", 1), "scales": ("<f8", 1)}


@dataclass(frozen=True, eq=False, kw_only=True)
class Constant(Block):
    """One row that is the same for every record: its sum says how many there are of each target."""

    number = 1
    layout = _SHARE
    signed = False

    @property
    def rows(self) -> int:
        return 1

    def __call__(self, features: Features) -> Float64[ndarray, "records rows"]:
        return np.ones((len(features), 1))


@dataclass(frozen=True, eq=False, kw_only=True)
class Chosen(Block):
    """A block that looks at some features, in whole steps.

    columns: positions of the features that count; scales: what each is multiplied with.
    """

    columns: Int64[ndarray, " width"] = field(repr=False)
    scales: Float64[ndarray, " width"] = field(repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        width = len(self.columns)
        if not 1 <= width <= MOST_WIDTH:
            raise InvalidInput(f"a block looks at {width} features; allowed: 1 to {MOST_WIDTH}")
        if self.columns.min() < 0 or len(np.unique(self.columns)) < width:
            raise InvalidInput(f"columns of a block are {self.columns.tolist()[:20]}; allowed: from 0, each once")
        if self.scales.shape != (width,) or not ((self.scales >= _LEAST_SCALE) & (self.scales <= _MOST_SCALE)).all():
            raise InvalidInput(f"scales of a block; allowed: {width}, each {_LEAST_SCALE:g} to {_MOST_SCALE:g}")

    @property
    def last(self) -> int:
        return int(self.columns.max())

    def steps(self, features: Features) -> Float64[ndarray, "records width"]:
        """The features that count, in whole steps."""
        return whole_steps(features[:, self.columns], scale=self.scales)

    def _check_points(self, points: Int64[ndarray, "points width"]) -> None:
        """Raises InvalidInput unless these are points among the steps of its features."""
        if points.shape[1] != len(self.columns):
            raise InvalidInput(f"centres have {points.shape[1]} features; allowed: the block's {len(self.columns)}")
        if points.size and not (points.min() >= -MOST_STEPS and points.max() <= MOST_STEPS):
            raise InvalidInput(
                f"centres lie at {points.min()} to {points.max()} steps; allowed: {-MOST_STEPS} to {MOST_STEPS}"
            )

    def _check_matrix(self, matrix: Int64[ndarray, "rows inputs"], *, inputs: int, most: int) -> None:
        """Raises InvalidInput unless products of the matrix with values up to `most` are exact."""
        rows, columns = matrix.shape
        if not 1 <= rows <= _MOST_ROWS or columns != inputs:
            raise InvalidInput(f"a matrix of shape {matrix.shape}; allowed: 1 to {_MOST_ROWS} rows of {inputs}")
        # In float64 first: sums of untrusted integers may not fit 64 bits.
        reach = np.abs(matrix.astype(np.float64)).sum(axis=1).max() * most
        if reach >= EXACT / 2:
            raise InvalidInput(f"a matrix may reach {reach:.3g}; allowed: below {EXACT // 2}, for exact sums")


@dataclass(frozen=True, eq=False, kw_only=True)
class Linear(Chosen):
    """matrix @ (x - centre). An empty matrix, of no rows: the features themselves less their centre."""

    number = 2
    layout = {**_CHOSEN, "centre": ("<i8", 1), "matrix": ("<i8", 2)}  # noqa: RUF012  # declared a ClassVar in Block
    centre: Int64[ndarray, " width"] = field(repr=False)
    matrix: Int64[ndarray, "rows width"] = field(repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_points(self.centre[None])
        if len(self.matrix):
            self._check_matrix(self.matrix, inputs=len(self.columns), most=2 * MOST_STEPS)
        elif len(self.columns) > _MOST_ROWS:
            raise InvalidInput(f"a block has {len(self.columns)} rows; allowed: at most {_MOST_ROWS}")

    @property
    def rows(self) -> int:
        return len(self.matrix) or len(self.columns)

    def __call__(self, features: Features) -> Float64[ndarray, "records rows"]:
        moved = self.steps(features) - self.centre
        return moved @ self.matrix.T.astype(np.float64) if len(self.matrix) else moved


@dataclass(frozen=True, eq=False, kw_only=True)
class Signs(Chosen):
    """+1 for each feature above its centre, -1 for each other one."""

    number = 3
    layout = {**_CHOSEN, "centre": ("<i8", 1)}  # noqa: RUF012
    centre: Int64[ndarray, " width"] = field(repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_points(self.centre[None])
        if len(self.columns) > _MOST_ROWS:
            raise InvalidInput(f"a block has {len(self.columns)} rows; allowed: at most {_MOST_ROWS}")

    @property
    def rows(self) -> int:
        return len(self.columns)

    def __call__(self, features: Features) -> Float64[ndarray, "records rows"]:
        return np.where(self.steps(features) > self.centre, 1.0, -1.0)


@dataclass(frozen=True, eq=False, kw_only=True)
class Kernel(Chosen):
    """matrix @ (k - means), k_j = max(0, 1 - d_j^2/width)^4 in KERNEL_STEPS, d_j the distance to centre j in steps.

    means: of the public pool, in KERNEL_STEPS; width: in squared steps.
    """

    number = 4
    layout = {  # noqa: RUF012
        **_CHOSEN, "centres": ("<i8", 2), "width": ("<i8", 0), "means": ("<i8", 1), "matrix": ("<i8", 2),
    }  # fmt: skip
    centres: Int64[ndarray, "centres columns"] = field(repr=False)
    width: int
    means: Int64[ndarray, " centres"] = field(repr=False)
    matrix: Int64[ndarray, "rows centres"] = field(repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_points(self.centres)
        check("queries", "width", self.width)
        if self.means.shape != (len(self.centres),) or not ((self.means >= 0) & (self.means <= KERNEL_STEPS)).all():
            raise InvalidInput(f"means of a kernel; allowed: one for each centre, 0 to {KERNEL_STEPS}")
        self._check_matrix(self.matrix, inputs=len(self.centres), most=KERNEL_STEPS)

    @property
    def rows(self) -> int:
        return len(self.matrix)

    def values(self, features: Features) -> Float64[ndarray, "records centres"]:
        """k, in KERNEL_STEPS: for the means of a pool."""
        # A division of two floats is rounded the same everywhere; the rest is whole numbers.
        inside = np.maximum(self.width - self._squared_distances(features), 0.0) / self.width
        root = np.floor(inside * KERNEL_STEPS).astype(np.int64)
        return (root**4 // KERNEL_STEPS**3).astype(np.float64)

    def _squared_distances(self, features: Features) -> Float64[ndarray, "records centres"]:
        steps, centres = self.steps(features), self.centres.astype(np.float64)
        own = (steps * steps).sum(axis=1)[:, None] + (centres * centres).sum(axis=1)
        return own - 2 * (steps @ centres.T)

    def __call__(self, features: Features) -> Float64[ndarray, "records rows"]:
        return (self.values(features) - self.means) @ self.matrix.T.astype(np.float64)


@dataclass(frozen=True, eq=False, kw_only=True)
class Cells(Chosen):
    """1 for each of the cells that a record lies in, of which there are as many for every record."""

    signed = False

    @abstractmethod
    def cells(self, features: Features) -> Int64[ndarray, "records filled"]:
        """The numbers of the cells that each record lies in."""

    def __call__(self, features: Features) -> Float64[ndarray, "records rows"]:
        inside = np.zeros((len(features), self.rows))
        np.put_along_axis(inside, self.cells(features), 1.0, axis=1)
        return inside


@dataclass(frozen=True, eq=False, kw_only=True)
class Ranges(Cells):
    """The range of a number: below the first edge, from one edge to below the next, from the last. A second column,
    where there is one, says that the number is missing, which is the last cell.

    edges: in steps of the first column, ascending.
    """

    number = 6
    layout = {**_CHOSEN, "edges": ("<i8", 1)}  # noqa: RUF012
    edges: Int64[ndarray, " edges"] = field(repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.columns) > 2:
            raise InvalidInput(f"ranges of {len(self.columns)} features; allowed: a number, and whether it is missing")
        most = np.abs(self.edges).max(initial=0)
        if not 1 <= len(self.edges) <= _MOST_ROWS or (np.diff(self.edges) <= 0).any() or most > MOST_STEPS:
            raise InvalidInput(f"edges are {self.edges.tolist()[:20]}; allowed: ascending, within {MOST_STEPS} steps")

    @property
    def rows(self) -> int:
        return len(self.edges) + len(self.columns)

    @property
    def filled(self) -> int:
        return 1

    def cells(self, features: Features) -> Int64[ndarray, "records filled"]:
        steps = self.steps(features)
        found = np.searchsorted(self.edges, steps[:, 0], side="right")
        if len(self.columns) == 2:
            found = np.where(steps[:, 1] > 0, len(self.edges) + 1, found)
        return found.astype(np.int64)[:, None]


@dataclass(frozen=True, eq=False, kw_only=True)
class Nearest(Cells):
    """1 for each of the `nearest` centres that a record is nearest to: cells. Ties go to the lowest number."""

    number = 5
    layout = {**_CHOSEN, "centres": ("<i8", 2), "nearest": ("<i8", 0)}  # noqa: RUF012
    centres: Int64[ndarray, "centres columns"] = field(repr=False)
    nearest: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_points(self.centres)
        if len(self.centres) < 2:
            raise InvalidInput(f"a block has {len(self.centres)} cells; allowed: at least 2")
        if not 1 <= self.nearest <= min(len(self.centres), _MOST_ROWS):
            raise InvalidInput(f"nearest is {self.nearest}; allowed: 1 to the {len(self.centres)} cells of the block")

    @classmethod
    def of(
        cls,
        points: Float32[ndarray, "points width"],
        *,
        columns: Int64[ndarray, " width"],
        scales: Float64[ndarray, " width"] | None = None,
        nearest: int = 1,
        share: int | None = None,
    ) -> Nearest:
        """The cells around these points; points that are the same after rounding are one. share: None: as `nearest`, so
        that a record says as much in each cell of each such block."""
        each = np.ones(points.shape[1]) if scales is None else scales
        centres = np.unique(whole_steps(points, scale=each).astype(np.int64), axis=0)
        return cls(share=share or max(nearest, 1), columns=columns, scales=each, centres=centres, nearest=nearest)

    @property
    def rows(self) -> int:
        return len(self.centres)

    @property
    def filled(self) -> int:
        return self.nearest

    def cells(self, features: Features) -> Int64[ndarray, "records nearest"]:
        """The nearest first."""
        # |c|^2/2 - x.c orders as |x - c|^2 does. Sums of whole numbers below 2**53 are exact in any order.
        centres = self.centres.astype(np.float64)
        halves = (centres * centres).sum(axis=1) / 2
        found = np.empty((len(features), self.nearest), dtype=np.int64)
        rows = max(1, _CHUNK // len(centres))
        for start in range(0, len(features), rows):
            distances = halves - self.steps(features[start : start + rows]) @ centres.T
            found[start : start + rows] = _lowest(distances, self.nearest)
        return found


_KINDS = (Constant, Linear, Signs, Kernel, Nearest, Ranges)
BLOCKS: Final[Mapping[int, type[Block]]] = {each.number: each for each in _KINDS}


@dataclass(frozen=True, eq=False)
class Blocks:
    """All of phi, block after block; features: what records are compared by. Raises InvalidInput."""

    features: FeatureMap
    blocks: tuple[Block, ...] = field(repr=False)

    def __post_init__(self) -> None:
        if not 1 <= len(self.blocks) <= _MOST_BLOCKS:
            raise InvalidInput(f"there are {len(self.blocks)} blocks of features; allowed: 1 to {_MOST_BLOCKS}")
        check("study", "records.queries", self.rows)
        last = max(each.last for each in self.blocks)
        if last >= self.features.width:
            raise InvalidInput(f"a block looks at feature {last}; allowed: 0 to {self.features.width - 1}")

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of a private record, as its hospital holds it."""
        return self.features.input_shape

    @cached_property
    def rows(self) -> int:
        """How many numbers phi has."""
        return sum(each.rows for each in self.blocks)

    @cached_property
    def filled(self) -> int:
        """How many of them one record may fill."""
        return sum(each.filled for each in self.blocks)

    @cached_property
    def signed(self) -> bool:
        """Whether an entry of phi may be below 0."""
        return any(each.signed for each in self.blocks)

    @cached_property
    def plain(self) -> bool:
        """Whether phi says nothing but in which cells a record lies, in each as much as in the others: record votes."""
        first = self.blocks[0]
        return all(isinstance(each, Cells) for each in self.blocks) and all(
            each.share * first.filled == first.share * each.filled for each in self.blocks
        )

    @property
    def partitions(self) -> tuple[int, ...]:
        """Of cells alone, the rows of each block, if a record fills as many in each; else (), or all rows as one."""
        if not self.plain:
            return ()
        same = len({each.filled for each in self.blocks}) == 1
        return tuple(each.rows for each in self.blocks) if same else (self.rows,)

    @property
    def narrow(self) -> bool:
        """Whether every block looks at a part of the features only, as the cells of one column do."""
        return all(isinstance(each, Chosen) and len(each.columns) < self.features.width for each in self.blocks)

    @property
    def whole(self) -> bool:
        """Whether every block looks at all features, and so says which records are close."""
        return all(isinstance(each, Chosen) and len(each.columns) == self.features.width for each in self.blocks)

    def cells(self, features: Features) -> Int64[ndarray, "records filled"]:
        """The rows of phi whose cells each record lies in, where there are cells alone; finite features."""
        found, before = [], 0
        for each in self.blocks:
            if not isinstance(each, Cells):
                raise InvalidInput("blocks of features are no cells; allowed: cells alone")
            found.append(each.cells(features) + before)
            before += each.rows
        return np.concatenate(found, axis=1)

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        """The length of each block in steps: squares add up to NORM_STEPS squared at most."""
        shares = [each.share for each in self.blocks]
        return tuple(isqrt(NORM_STEPS**2 * share // sum(shares)) for share in shares)

    def phi(self, features: Features) -> Steps:
        """phi of records whose features are known, in steps: of norm at most NORM_STEPS, exactly.

        features: what this map's `features` gave; where they are not finite, phi is 0.
        """
        finite = np.isfinite(features).all(axis=1)
        clean = np.where(finite[:, None], features, np.float32(0))
        found = np.empty((len(features), self.rows), dtype=np.int64)
        widest = max(self.features.width, *(len(getattr(each, "centres", ())) for each in self.blocks))
        for start in range(0, len(features), each := max(1, _CHUNK // max(self.rows, widest))):
            chunk, before = slice(start, start + each), 0
            for block, length in zip(self.blocks, self.lengths, strict=True):
                made = _of_length(block(clean[chunk]), length)
                found[chunk, before : before + block.rows] = made
                before += block.rows
        found[~finite] = 0
        return found

    def of_records(self, records: Float32[ndarray, "records ..."]) -> Steps:
        """phi of records as a hospital holds them. Raises InvalidInput for records of another shape."""
        finite = np.isfinite(records.reshape(len(records), -1)).all(axis=1)
        if finite.all():
            return self.phi(self.features(records))
        shown = np.where(finite.reshape(-1, *[1] * (records.ndim - 1)), records, np.float32(0))
        found = self.phi(self.features(shown))
        found[~finite] = 0
        return found

    def targets(self, classes: int) -> Int64[ndarray, "classes columns"]:
        """psi of each class, in TARGET_STEPS: one entry for each class; where phi has signs, a simplex and, in the last
        column, a constant."""
        if not self.signed:
            return np.eye(classes, dtype=np.int64) * TARGET_STEPS
        of, parts = OVERALL_SHARE
        overall = np.full((classes, 1), isqrt(TARGET_STEPS**2 * of // parts))
        return np.concatenate([simplex(classes, squared=TARGET_STEPS**2 * (parts - of) // parts), overall], axis=1)

    def psi(self, labels: Int64[ndarray, "records told"], classes: int) -> Int64[ndarray, "records columns"]:
        """psi of each record, in TARGET_STEPS: of its class; or, where several findings are told, +1 (1) or -1 (0) over
        the root of their number for each. What is not known (-1) is 0. classes: the columns of a sum."""
        if labels.shape[1] == 1:
            return np.where(labels < 0, 0, self.targets(classes)[labels[:, 0]])
        return np.where(labels < 0, 0, (2 * labels - 1) * isqrt(TARGET_STEPS**2 // classes))

    def to_bytes(self) -> bytes:
        """The file of the features, an .npz of plain arrays: what a consortium hands round beside its study."""
        content = io.BytesIO()
        np.savez(content, **self._arrays())  # type: ignore[arg-type]  # the stub takes the names for allow_pickle
        return content.getvalue()

    @classmethod
    def from_bytes(cls, content: bytes, *, where: str = "the file of features") -> Blocks:
        """The blocks in what to_bytes gave, or anybody else made: untrusted. where: what it is, for the message.

        Raises DataCorrupt where it is no such file, InvalidInput where its blocks are out of range.
        """
        arrays = parse_arrays(content, where=where, most=BLOCKS_BYTES)
        features = FeatureMap.from_bytes(
            typed_array(arrays, "features", ("|u1", 1), where).tobytes(), where=f"{where}: features"
        )
        kinds = typed_array(arrays, "kinds", ("<i8", 1), where).tolist()
        if not set(kinds) <= set(BLOCKS):
            raise DataCorrupt(f"{where} has blocks of kinds {sorted(set(kinds))[:20]}; allowed: {sorted(BLOCKS)}")
        blocks = [
            BLOCKS[kind].of_arrays(
                {
                    name: typed_array(arrays, f"{place}.{name}", each, where)
                    for name, each in BLOCKS[kind].layout.items()
                }
            )
            for place, kind in enumerate(kinds)
        ]
        return cls(features, tuple(blocks))

    @cached_property
    def digest(self) -> str:
        """SHA-256, in hexadecimal digits, of everything that decides what a record says."""
        digest = hashlib.sha256(f"conclave blocks 1 {self.features.digest}\n".encode())
        for name, array in self._arrays().items():
            if name != "features":
                digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode() + array.tobytes())
        return digest.hexdigest()

    def _arrays(self) -> dict[str, ndarray]:
        arrays = {
            "features": np.frombuffer(self.features.to_bytes(), dtype="|u1"),
            "kinds": np.array([each.number for each in self.blocks], dtype="<i8"),
        }
        for place, block in enumerate(self.blocks):
            given = block.arrays()
            arrays |= {f"{place}.{name}": given[name].astype(kind) for name, (kind, _) in block.layout.items()}
        return arrays


def simplex(classes: int, *, squared: int = TARGET_STEPS**2) -> Int64[ndarray, "classes columns"]:
    """The vertices of a regular simplex around 0, in classes - 1 whole numbers, of at most this squared length each."""
    found = np.zeros((classes, classes - 1), dtype=np.int64)
    for column in range(classes - 1):
        below = squared * classes
        above = (classes - 1) * (column + 1) * (column + 2)
        found[: column + 1, column] = isqrt(below // above)
        found[column + 1, column] = -isqrt(below * (column + 1) ** 2 // above)
    return found


def _of_length(values: Float64[ndarray, "records rows"], length: int) -> Steps:
    """Rows of whole numbers scaled to this length, rounded towards zero: never longer. A row of zeros stays."""
    largest = np.abs(values).max(axis=1, initial=0.0)
    _, bits = np.frexp(largest)
    # Of _BITS bits at most: a multiplication by a power of two is exact.
    scaled = np.trunc(np.ldexp(values, (_BITS - bits)[:, None])).astype(np.int64)
    norm = root_above((scaled * scaled).sum(axis=1))
    return np.sign(scaled) * (np.abs(scaled) * length // np.maximum(norm, 1)[:, None])


def root_above(squares: Int64[ndarray, " records"]) -> Int64[ndarray, " records"]:
    """The least whole numbers whose squares are at least these, which are below 2**53."""
    root = np.sqrt(squares.astype(np.float64)).astype(np.int64)
    return root + (root * root < squares)


def _lowest(distances: Float64[ndarray, "records queries"], count: int) -> Int64[ndarray, "records count"]:
    """The positions of the `count` smallest of each row, in order; of equal ones the first. Overwrites `distances`."""
    if count > _FEW:
        return np.argsort(distances, axis=1, kind="stable")[:, :count]
    row, found = np.arange(len(distances)), []
    for _ in range(count):
        found.append(distances.argmin(axis=1))
        distances[row, found[-1]] = np.inf
    return np.stack(found, axis=1)
