"""What a caller asks of a data set loader: seed, sizes, and where the files lie."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from protocols.errors import InvalidInput


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
