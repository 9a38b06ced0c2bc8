"""The records of the user's own file, before and after they are cut into private, public and test parts."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Final, Literal

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64, Shaped
from numpy import ndarray

from party.data.mapping import folded_number
from protocols.errors import DataCorrupt, InvalidInput
from protocols.plural import counted
from protocols.study.terms import Feature
from simulations.datasets.dataset import Dataset, Split, cut, strata_of, subset

PARTS = ("private", "public", "test")
# Records that are equal in all columns are copies where so many times more pairs of them are than their halves would
# give if these were independent: of different patients of `adult` 8 times, of a tenth that stands twice 70 or more.
_MORE: Final = 50.0

_Kept = Bool[ndarray, " records"]


@dataclass(frozen=True, kw_only=True)
class Pool:
    """What a file says about its records besides their features; `part` indexes PARTS if the file has a split.

    Sites and patients are names; the sites of public records do not matter. names: what records belong to besides, by
    column; times: their order in time; copies: how many records were left out, as they stand in the file again;
    repeated: how many of those that are left stand there again as the same patient's.
    """

    path: Path
    name: str
    kind: Literal["image", "table"]
    class_names: tuple[str, ...]
    labels: Int64[ndarray, "records *findings"]
    findings: tuple[str, ...] = ()
    sites: Shaped[ndarray, " records"] | None = None
    patients: Shaped[ndarray, " records"] | None = None
    part: Int64[ndarray, " records"] | None = None
    names: Mapping[str, Shaped[ndarray, " records"]] = field(default_factory=dict)
    times: Float64[ndarray, " records"] | None = None
    copies: int = 0
    repeated: int = 0

    @cached_property
    def patient_numbers(self) -> Int64[ndarray, " records"] | None:
        """The number of each record's patient: names that may mean one person do, as nobody can be asked here."""
        if self.patients is None:
            return None
        return np.unique([folded_number(str(name)) for name in self.patients], return_inverse=True)[1]

    def without_copies(self, halves: tuple[Sequence[Hashable], Sequence[Hashable]]) -> tuple[Pool, _Kept]:
        """The same without records that stand in the file again as another part's or another patient's, and which were
        kept; halves: see `_copies`."""
        copied, leader = _copies(self, halves)
        patient = np.arange(len(leader)) if self.patient_numbers is None else self.patient_numbers
        part = np.zeros_like(leader) if self.part is None else self.part
        kept = ~copied | ((patient == patient[leader]) & (part == part[leader]))
        repeated = kept & copied & (leader != np.arange(len(leader)))
        pool = replace(
            self,
            labels=self.labels[kept],
            sites=None if self.sites is None else self.sites[kept],
            patients=None if self.patients is None else self.patients[kept],
            part=None if self.part is None else self.part[kept],
            names={name: of[kept] for name, of in self.names.items()},
            times=None if self.times is None else self.times[kept],
            copies=int((~kept).sum()),
            repeated=int(repeated.sum()),
        )
        return pool, kept


def _copies(
    pool: Pool, halves: tuple[Sequence[Hashable], Sequence[Hashable]]
) -> tuple[_Kept, Int64[ndarray, " records"]]:
    """Which records stand in the file again, and of each the first of its equals: of the test part, else of the public,
    else of the private part.

    halves: the values of each record in every other column, and in the rest. A record with the same values as others is
    their copy where both halves find these alone, and not where all records are the same; or where far more records are
    equal than by chance (_MORE).
    """
    first, second = (np.unique([hash(each) for each in half], return_inverse=True)[1] for half in halves)
    both = np.unique(first * (int(second.max()) + 1) + second, return_inverse=True)[1]
    alike = [np.bincount(each).astype(float) for each in (first, second, both)]
    one, other, equal = (float((each * (each - 1)).sum()) for each in alike)
    count = len(both)
    copied = (alike[2][both] > 1) & (alike[2][both] < count)
    if equal * count * (count - 1) <= _MORE * one * other:
        copied &= (alike[0][first] == alike[2][both]) & (alike[1][second] == alike[2][both])
    part = np.zeros(count, np.int64) if pool.part is None else pool.part
    order = np.lexsort((np.arange(count), -part))  # parts are numbered as PARTS
    return copied, order[np.unique(both[order], return_index=True)[1]][both]


def flat_halves(inputs: Float32[ndarray, "records ..."]) -> tuple[list[bytes], list[bytes]]:
    """What `without_copies` is given of records that are arrays."""
    flat = inputs.reshape(len(inputs), -1)
    first, second = ([each.tobytes() for each in np.ascontiguousarray(flat[:, at::2])] for at in (0, 1))
    return first, second


def cut_pool(
    pool: Pool, shares: tuple[float, float, float], sizes: tuple[int | None, int | None, int | None], seed: int
) -> Split:
    """The file's own split (a given size takes the first public and test records, and a random choice of private
    ones), or else a split by shares or sizes, stratified by class and site, that keeps patients whole and has the
    public records in random order.

    Raises DataCorrupt if a part is empty or a patient is in two parts, InvalidInput if a size does not fit.
    """
    rng = np.random.default_rng([seed, *b"own file split"])
    if pool.part is not None:
        return _own_split(pool, pool.part, sizes, rng)
    count = len(pool.labels)
    public, test = (
        size if size is not None else max(1, round(share * count))
        for size, share in zip(sizes[1:], shares[1:], strict=True)
    )
    strata = strata_of(pool.labels)
    if pool.sites is not None:
        strata = np.unique(pool.sites, return_inverse=True)[1] * (int(strata.max()) + 1) + strata
    groups = pool.patient_numbers
    parts = cut(strata, groups=groups, sizes=(sizes[0], public, test), name=str(pool.path), rng=rng)
    # Many files are sorted by class, and teachers are asked about the pool's first records.
    return replace(parts, public=rng.permutation(parts.public))


def as_dataset(
    pool: Pool, inputs: Float32[ndarray, "records ..."], parts: Split, columns: tuple[Feature, ...] = ()
) -> Dataset:
    """The data set of these parts of the pool; columns: of a table."""
    sites = patients = None
    names: tuple[str, ...] = ()
    told = None if pool.sites is None else pool.sites[parts.private]
    if pool.patient_numbers is not None:
        _, first, patients = np.unique(pool.patient_numbers[parts.private], return_index=True, return_inverse=True)
        # A patient of two sites is at that of the first record: a site may have nobody of its own.
        told = None if told is None else told[first][patients]
    if told is not None:
        found, sites = np.unique(told, return_inverse=True)
        names = tuple(str(name) for name in found)
    known = {**pool.names, **({} if pool.sites is None else {"site": pool.sites})}
    return Dataset(
        name=pool.name,
        kind=pool.kind,
        class_names=pool.class_names,
        private_inputs=inputs[parts.private],
        private_labels=pool.labels[parts.private],
        public_inputs=inputs[parts.public],
        public_labels=pool.labels[parts.public],
        test_inputs=inputs[parts.test],
        test_labels=pool.labels[parts.test],
        private_sites=sites,
        site_names=names,
        private_patients=patients,
        test_patients=None if pool.patient_numbers is None else pool.patient_numbers[parts.test],
        columns=columns,
        findings=pool.findings,
        # The arrays of an archive may name the sites of its private part alone.
        test_names={name: of[parts.test] for name, of in known.items() if (of[parts.test] != "").any()},
        private_times=None if pool.times is None else pool.times[parts.private],
        about=f"The file {pool.path.name}, split {_manner(pool)}.",
        notes=_notes(pool),
    )


def _notes(pool: Pool) -> tuple[str, ...]:
    """What is said of records that stand in the file again."""
    of = f"of {len(pool.labels) + pool.copies} in {pool.path.name} are the same as others"
    left_out = (
        f"{counted(pool.copies, 'record')} {of}, and are left out: a record's guarantee would not cover a person who "
        "has two, and a model that has seen a test record looks better than it is"
    )
    repeated = (
        f"{counted(pool.repeated, 'record')} {of} of the same patient, and count again: delete them unless they are "
        "other visits; --unit patient protects all of a patient's"
    )
    return (left_out,) * (pool.copies > 0) + (repeated,) * (pool.repeated > 0)


def _manner(pool: Pool) -> str:
    if pool.part is not None:
        return "as the file says"
    return "by row" if pool.patients is None else "by patient"


def _own_split(
    pool: Pool,
    part: Int64[ndarray, " records"],
    sizes: tuple[int | None, int | None, int | None],
    rng: np.random.Generator,
) -> Split:
    counts = np.bincount(part, minlength=3)
    if (counts == 0).any():
        raise DataCorrupt(
            f"{pool.path} holds {counts[0]} private, {counts[1]} public and {counts[2]} test records; "
            f"allowed: at least 1 each"
        )
    if (patient := pool.patient_numbers) is not None:
        pairs = np.unique(np.stack([patient, part], axis=1), axis=0)
        shared = len(pairs) - len(np.unique(patient))
        if shared:
            raise DataCorrupt(f"{pool.path}: {shared} patients have records in several parts; allowed: in one")
    indices = [np.flatnonzero(part == number) for number in range(3)]
    for name, found, size in zip(PARTS, counts, sizes, strict=True):
        if size is not None and size > found:
            raise InvalidInput(f"{pool.path}: {name}_size is {size}; allowed: 1 to {found}")
    private = indices[0][subset(len(indices[0]), sizes[0], str(pool.path), rng)]
    return Split(private=private, public=indices[1][: sizes[1]], test=indices[2][: sizes[2]])
