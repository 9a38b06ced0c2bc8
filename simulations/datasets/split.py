"""Cutting one pool of records into disjoint private, public and test parts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int64
from numpy import ndarray

from protocols.errors import InvalidInput
from simulations.datasets.request import DatasetRequest


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
    sizes: tuple[int, int],
    name: str,
) -> Split:
    """`cut` into the sizes of the request, from its seed. sizes: of the public and test parts where it gives none."""
    rng = np.random.default_rng([request.seed, *f"{name} split".encode()])
    wanted = (request.private_size, request.public_size or sizes[0], request.test_size or sizes[1])
    return cut(strata, groups=groups, sizes=wanted, name=name, rng=rng)


def choose(available: int, size: int | None, name: str, rng: np.random.Generator) -> Int64[ndarray, " chosen"]:
    """`size` of `available` private records, uniformly, ascending; all when size is None. Raises
    InvalidInput."""
    if size is None:
        return np.arange(available)
    if size > available:
        raise InvalidInput(f"{name}: private_size is {size}; allowed: 1 to {available}")
    return np.sort(rng.choice(available, size=size, replace=False))


def fixed_public_and_test(
    available: int, public_size: int | None, test_size: int | None, defaults: tuple[int, int], name: str
) -> tuple[Int64[ndarray, " public"], Int64[ndarray, " test"]]:
    """Both parts of an official test set in its own order: the first rows are public, the last are test rows.

    Raises InvalidInput when they would overlap.
    """
    test = defaults[1] if test_size is None else test_size
    public = min(defaults[0], available - test) if public_size is None else public_size
    if public < 1 or public + test > available:
        raise InvalidInput(
            f"{name}: {public} public and {test} test records were asked for; allowed: at least 1 each and "
            f"at most {available} together"
        )
    return np.arange(public), np.arange(available - test, available)


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
