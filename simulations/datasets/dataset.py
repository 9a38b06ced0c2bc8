"""What a data set loader is asked, and what it returns: disjoint private, public and test parts of one task."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Float32, Float64, Int64, Shaped
from numpy import ndarray

from protocols.errors import DataCorrupt, InvalidInput
from protocols.study.findings import NOT_KNOWN, PRESENT, STATES, Labelled, labelled

if TYPE_CHECKING:
    from protocols.study.terms import Feature


@dataclass(frozen=True, kw_only=True)
class DatasetRequest:
    """Sizes are in records; None means the data set's own default (for the private part: all there is).

    `data_dir` is the folder that holds one sub-folder per data set (None: no folder is known). `classes`,
    `imbalance` (largest class over smallest, 1 = balanced) and `mislabelled` (share of the private labels
    that are wrong) shape `glyphs`; other data sets are fixed, and `datasets.load` refuses these options for them.
    `schema` is the TOML file that describes the user's own table; `groups` are columns of it by which test records are
    told apart, whether they are features or not, and `time` is its column of time.

    Raises InvalidInput when a value is outside its range.
    """

    seed: int
    data_dir: Path | None = None
    private_size: int | None = None
    public_size: int | None = None
    test_size: int | None = None
    classes: int | None = None
    imbalance: float = 1.0
    mislabelled: float = 0.0
    schema: Path | None = None
    groups: tuple[str, ...] = ()
    time: str | None = None

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise InvalidInput("the seed of a data set is negative; allowed: integers from 0")
        for part, size in (
            ("private_size", self.private_size),
            ("public_size", self.public_size),
            ("test_size", self.test_size),
        ):
            if size is not None and size < 1:
                raise InvalidInput(f"{part} is {size}; allowed: integers from 1")
        if self.classes is not None and self.classes < 2:
            raise InvalidInput(f"classes is {self.classes}; allowed: integers from 2")
        if not (math.isfinite(self.imbalance) and self.imbalance >= 1):
            raise InvalidInput(f"imbalance is {self.imbalance}; allowed: [1, infinity)")
        if not 0 <= self.mislabelled < 1:
            raise InvalidInput(f"mislabelled is {self.mislabelled}; allowed: [0, 1)")


def largest_remainder(exact: Float64[ndarray, " groups"], total: int) -> Int64[ndarray, " groups"]:
    """Whole numbers that add up to `total`, each less than 1 from the exact one; these add up to it, too."""
    whole = np.floor(exact).astype(np.int64)
    whole[np.argsort(whole - exact, kind="stable")[: total - whole.sum()]] += 1
    return whole


@dataclass(frozen=True)
class Split:
    """Indices into one pool of records, disjoint; of `cut` ascending."""

    private: Int64[ndarray, " private"]
    public: Int64[ndarray, " public"]
    test: Int64[ndarray, " test"]


def cut(
    strata: Int64[ndarray, " records"],
    *,
    groups: Int64[ndarray, " records"] | None,
    sizes: tuple[int | None, int, int],
    name: str,
    rng: np.random.Generator,
) -> Split:
    """A split of (private, public, test) `sizes`, each with the strata in nearly the pool's proportions.

    Records of one group (a patient, or copies of one image) stay in one part; a group belongs to the stratum
    of its first record. Every stratum keeps a group in the private part while the sizes allow it. The public
    and test parts are of exactly their sizes: the last group's surplus records are in no part. Private size
    None means all the rest, otherwise a uniform choice from it.

    Raises InvalidInput when the sizes do not leave a private record.
    """
    count = len(strata)
    if groups is None:
        groups = np.arange(count)
    _, first, unit = np.unique(groups, return_index=True, return_inverse=True)
    place = np.argsort(np.argsort(_spread(strata[first], rng), kind="stable"), kind="stable")
    order = np.argsort(place[unit], kind="stable")  # whole groups, the strata interleaved
    new_unit = np.flatnonzero(np.diff(unit[order], prepend=-1))  # where a group starts in that order
    private_size, public_size, test_size = sizes
    test_start = _next_group(new_unit, public_size, count)
    test_end = _next_group(new_unit, test_start + test_size, count)
    rest = order[test_end:]
    if len(rest) == 0 or (private_size is not None and private_size > len(rest)):
        raise InvalidInput(
            f"{name}: {'all other' if private_size is None else private_size} private, {public_size} public "
            f"and {test_size} test records were asked for of {count}, which leaves {len(rest)} for the "
            f"private part; allowed: at least 1 record in each part"
        )
    if private_size is not None:
        rest = rng.choice(rest, size=private_size, replace=False)
    return Split(
        private=np.sort(rest),
        public=np.sort(order[:public_size]),
        test=np.sort(order[test_start : test_start + test_size]),
    )


def cut_as_asked(
    request: DatasetRequest,
    strata: Int64[ndarray, " records"],
    *,
    groups: Int64[ndarray, " records"] | None = None,
    sizes: tuple[int, ...],
    name: str,
) -> Split:
    """`cut` into the sizes of the request, from its seed. sizes: of the public and test parts where it gives none."""
    rng = np.random.default_rng([request.seed, *f"{name} split".encode()])
    wanted = (request.private_size, request.public_size or sizes[0], request.test_size or sizes[1])
    return cut(strata, groups=groups, sizes=wanted, name=name, rng=rng)


def subset(available: int, size: int | None, name: str, rng: np.random.Generator) -> Int64[ndarray, " chosen"]:
    """`size` of `available` private records, uniformly, ascending; all when size is None. Raises
    InvalidInput."""
    if size is None:
        return np.arange(available)
    if size > available:
        raise InvalidInput(f"{name}: private_size is {size}; allowed: 1 to {available}")
    return np.sort(rng.choice(available, size=size, replace=False))


# How the rows of an official test set, so many, are ordered before they are cut into public and test records.
Order = Callable[[int, DatasetRequest], Int64[ndarray, " rows"]]


def drawn(rows: int, request: DatasetRequest) -> Int64[ndarray, " rows"]:
    """An order that the request's seed draws, so that intervals over seeds cover the choice of both parts."""
    return np.random.default_rng([request.seed, *b"public and test"]).permutation(rows)


def as_published(rows: int, request: DatasetRequest) -> Int64[ndarray, " rows"]:
    """The files' own order, for published votes on their first rows, and for who draws both parts by other rules."""
    return np.arange(rows)


def held_out(
    available: int, order: Order, request: DatasetRequest, defaults: tuple[int, int], name: str
) -> tuple[Int64[ndarray, " public"], Int64[ndarray, " test"]]:
    """Both parts of an official test set of so many rows: the first of the order are public, the last are test rows.

    Raises InvalidInput when they would overlap.
    """
    test = defaults[1] if request.test_size is None else request.test_size
    public = min(defaults[0], available - test) if request.public_size is None else request.public_size
    if public < 1 or public + test > available:
        raise InvalidInput(
            f"{name}: {public} public and {test} test records were asked for; allowed: at least 1 each and "
            f"at most {available} together"
        )
    rows = order(available, request)
    return rows[:public], rows[available - test :]


def _spread(strata: Int64[ndarray, " units"], rng: np.random.Generator) -> ndarray:
    """One position per unit, such that any range of positions holds the strata in proportion.

    The last unit of each stratum comes after all others, so that a prefix never uses a stratum up.
    """
    shuffled = rng.permutation(len(strata))
    by_stratum = shuffled[np.argsort(strata[shuffled], kind="stable")]
    _, counts = np.unique(strata, return_counts=True)
    rank = np.arange(len(strata)) - np.repeat(np.cumsum(counts) - counts, counts)
    size = np.repeat(counts, counts)
    offset = np.repeat(rng.random(len(counts)), counts)
    position = np.empty(len(strata))
    position[by_stratum] = np.where(rank == size - 1, 1.0 + offset, (rank + offset) / size)
    return position


def _next_group(starts: Int64[ndarray, " groups"], position: int, count: int) -> int:
    """The first start of a group at or after the position, `count` (the number of records) if there is
    none."""
    after = int(np.searchsorted(starts, position))
    return int(starts[after]) if after < len(starts) else count


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """One classification task, split into three disjoint parts.

    Inputs are f32: images [N, height, width] or [N, height, width, 3] in [0, 1], or table rows [N, features]
    (standardised with constants that do not depend on private data, or with statistics of the public part; categories
    one-hot).
    Labels are i64 in [0, classes); where there are `findings`, of each record one row of -1 unknown, 0 absent, 1
    present, and `class_names` are STATES. `public_labels` are known here for evaluation only: no teacher, student
    or coordinator is given them. `private_sites[i]` is the hospital (index into `site_names`) that holds
    record i; `private_patients[i]`, as `test_patients[i]` of test records, the patient it belongs to (records of one
    patient are never split over parties, nor over private/public/test). They are None where the source has no such
    field. `columns` are those of a table, as they were encoded, in the order of the features; empty for images and bare
    arrays.
    `test_names` says of every test record, by the name of a column, what it belongs to there: its "site" where the
    source names sites, and the columns of an own table that were asked for. `private_times` orders the private records
    in time; None where no column of time was asked for. `notes` are warnings, of what was changed in reading.

    Raises DataCorrupt when shapes, label ranges or finiteness do not hold.
    """

    name: str
    kind: Literal["image", "table"]
    class_names: tuple[str, ...]
    private_inputs: Float32[ndarray, "private ..."]
    private_labels: Int64[ndarray, "private *findings"]
    public_inputs: Float32[ndarray, "public ..."]
    public_labels: Int64[ndarray, "public *findings"]
    test_inputs: Float32[ndarray, "test ..."]
    test_labels: Int64[ndarray, "test *findings"]
    private_sites: Int64[ndarray, " private"] | None = None
    site_names: tuple[str, ...] = ()
    private_patients: Int64[ndarray, " private"] | None = None
    test_patients: Int64[ndarray, " test"] | None = None
    columns: tuple[Feature, ...] = ()
    findings: tuple[str, ...] = ()
    test_names: Mapping[str, Shaped[ndarray, " test"]] = field(default_factory=dict)
    private_times: Float64[ndarray, " private"] | None = None
    about: str = ""
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        parts = (
            ("private", self.private_inputs, self.private_labels),
            ("public", self.public_inputs, self.public_labels),
            ("test", self.test_inputs, self.test_labels),
        )
        for part, inputs, labels in parts:
            if len(inputs) != len(labels):
                raise DataCorrupt(f"{self.name}: {len(inputs)} {part} inputs but {len(labels)} labels")
            try:
                known = self.labelled.known(labels)
            except InvalidInput as error:
                raise DataCorrupt(f"{self.name}: {part} {error}") from None
            if not (known.all() or self.findings or part == "public"):
                raise DataCorrupt(
                    f"{self.name}: {part} labels span [{labels.min()}, {labels.max()}]; "
                    f"allowed: [0, {self.classes - 1}]"
                )
            if not np.isfinite(inputs).all():
                bad = int((~np.isfinite(inputs.reshape(len(inputs), -1))).any(axis=1).sum())
                raise DataCorrupt(f"{self.name}: {bad} {part} rows hold NaN or infinite features; allowed: finite")

    @classmethod
    def of(
        cls,
        inputs: Float32[ndarray, "records ..."],
        labels: Int64[ndarray, "records *findings"],
        parts: Split,
        *,
        name: str,
        kind: Literal["image", "table"],
        class_names: tuple[str, ...],
        about: str,
        columns: tuple[Feature, ...] = (),
        findings: tuple[str, ...] = (),
        sites: Int64[ndarray, " records"] | None = None,
        site_names: tuple[str, ...] = (),
        patients: Int64[ndarray, " records"] | None = None,
    ) -> Dataset:
        """The data set whose three parts are these records of one pool. Raises DataCorrupt."""
        return cls(
            name=name,
            kind=kind,
            class_names=class_names,
            private_inputs=inputs[parts.private],
            private_labels=labels[parts.private],
            public_inputs=inputs[parts.public],
            public_labels=labels[parts.public],
            test_inputs=inputs[parts.test],
            test_labels=labels[parts.test],
            private_sites=None if sites is None else sites[parts.private],
            site_names=site_names,
            private_patients=None if patients is None else patients[parts.private],
            test_patients=None if patients is None else patients[parts.test],
            columns=columns,
            findings=findings,
            test_names={} if sites is None else {"site": np.array(site_names)[sites[parts.test]]},
            about=about,
        )

    @classmethod
    def of_parts(cls, parts: Mapping[str, tuple[ndarray, ndarray]], **about: Any) -> Dataset:  # about: other fields
        """The data set of these inputs and labels of "private", "public" and "test". Raises DataCorrupt."""
        for part, (inputs, labels) in parts.items():
            about |= {f"{part}_inputs": inputs, f"{part}_labels": labels}
        return cls(**about)

    @cached_property
    def private_digest(self) -> str:
        """A digest of the private part's content, which names it in caches."""
        return content_digest(self.private_inputs, self.private_labels)

    @cached_property
    def public_digest(self) -> str:
        """A digest of the public inputs, which names them in caches."""
        return content_digest(self.public_inputs)

    @cached_property
    def test_digest(self) -> str:
        """A digest of the test part's content, which names it in caches."""
        return content_digest(self.test_inputs, self.test_labels)

    @property
    def has_cells(self) -> bool:
        """Whether its records lie in cells of columns: those of tables without text."""
        return self.kind == "table" and all(each.kind != "text" for each in self.columns)

    @property
    def classes(self) -> int:
        """The number of classes, at least 2."""
        return len(self.class_names)

    @cached_property
    def labelled(self) -> Labelled:
        """What a record is labelled with: one class, or several findings."""
        return labelled(self.findings, self.classes)

    @cached_property
    def tasks(self) -> tuple[Dataset, ...]:
        """The data set of each finding, with the private and test records that know it; or itself, for one label."""
        return tuple(map(self._task, range(len(self.findings)))) or (self,)

    @property
    def strata(self) -> tuple[Int64[ndarray, " private"], int]:
        """By what private records are dealt to unlike parties, and how many such there are: classes; or the first
        finding of a record, or that it has none."""
        return strata_of(self.private_labels), len(self.findings) + 1 if self.findings else self.classes

    def _task(self, at: int) -> Dataset:
        private, test = (labels[:, at] != NOT_KNOWN for labels in (self.private_labels, self.test_labels))
        sites, patients, times = self.private_sites, self.private_patients, self.private_times
        return replace(
            self,
            name=f"{self.name} {self.findings[at]}",
            findings=(),
            class_names=STATES,
            private_inputs=self.private_inputs[private],
            private_labels=self.private_labels[private, at],
            public_labels=self.public_labels[:, at],
            test_inputs=self.test_inputs[test],
            test_labels=self.test_labels[test, at],
            test_names={name: values[test] for name, values in self.test_names.items()},
            private_sites=None if sites is None else sites[private],
            private_patients=None if patients is None else patients[private],
            test_patients=None if self.test_patients is None else self.test_patients[test],
            private_times=None if times is None else times[private],
        )


def strata_of(labels: Int64[ndarray, "records *findings"]) -> Int64[ndarray, " records"]:
    """The class of each record; or the first finding that it has, and for none their number."""
    if labels.ndim == 1:
        return labels
    none = np.full((len(labels), 1), PRESENT)
    found: Int64[ndarray, " records"] = np.concatenate([labels, none], axis=1).argmax(axis=1)
    return found


def content_digest(*arrays: ndarray, text: str = "") -> str:
    """32 hexadecimal digits of SHA-256, of the arrays' dtypes, shapes and bytes, and of `text`."""
    digest = hashlib.sha256(text.encode())
    for array in arrays:
        digest.update(f"\n{array.dtype.str} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()[:32]
