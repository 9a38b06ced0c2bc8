"""The values that every data set loader returns: private, public and test parts of one task."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
from jaxtyping import Float32, Float64, Int64, Shaped
from numpy import ndarray

from protocols.errors import DataCorrupt
from protocols.study.terms import Feature
from simulations.datasets.split import Split


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """One classification task, split into three disjoint parts.

    Inputs are f32: images [N, height, width] or [N, height, width, 3] in [0, 1], or table rows [N, features]
    (standardised with constants that do not depend on private data, or with statistics of the public part; categories
    one-hot).
    Labels are i64 in [0, classes). `public_labels` are known here for evaluation only: no teacher, student
    or coordinator is given them. `private_sites[i]` is the hospital (index into `site_names`) that holds
    record i; `private_patients[i]` the patient it belongs to (records of one patient are never split over
    parties, nor over private/public/test). Both are None where the source has no such field. `columns` are
    those of a table, as they were encoded, in the order of the features; empty for images and bare arrays.
    `test_names` says of every test record, by the name of a column, what it belongs to there: its "site" where the
    source names sites, and the columns of an own table that were asked for. `private_times` orders the private records
    in time; None where no column of time was asked for.

    Raises DataCorrupt when shapes, label ranges or finiteness do not hold.
    """

    name: str
    kind: Literal["image", "table"]
    class_names: tuple[str, ...]
    private_inputs: Float32[ndarray, "private ..."]
    private_labels: Int64[ndarray, " private"]
    public_inputs: Float32[ndarray, "public ..."]
    public_labels: Int64[ndarray, " public"]
    test_inputs: Float32[ndarray, "test ..."]
    test_labels: Int64[ndarray, " test"]
    private_sites: Int64[ndarray, " private"] | None = None
    site_names: tuple[str, ...] = ()
    private_patients: Int64[ndarray, " private"] | None = None
    columns: tuple[Feature, ...] = ()
    test_names: Mapping[str, Shaped[ndarray, " test"]] = field(default_factory=dict)
    private_times: Float64[ndarray, " private"] | None = None
    about: str = ""

    def __post_init__(self) -> None:
        parts = (
            ("private", self.private_inputs, self.private_labels),
            ("public", self.public_inputs, self.public_labels),
            ("test", self.test_inputs, self.test_labels),
        )
        for part, inputs, labels in parts:
            if len(inputs) != len(labels):
                raise DataCorrupt(f"{self.name}: {len(inputs)} {part} inputs but {len(labels)} labels")
            if len(labels) and not (labels.min() >= 0 and labels.max() < self.classes):
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
        labels: Int64[ndarray, " records"],
        parts: Split,
        *,
        name: str,
        kind: Literal["image", "table"],
        class_names: tuple[str, ...],
        about: str,
        columns: tuple[Feature, ...] = (),
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
            columns=columns,
            test_names={} if sites is None else {"site": np.array(site_names)[sites[parts.test]]},
            about=about,
        )

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


def content_digest(*arrays: ndarray, text: str = "") -> str:
    """32 hexadecimal digits of SHA-256, of the arrays' dtypes, shapes and bytes, and of `text`."""
    digest = hashlib.sha256(text.encode())
    for array in arrays:
        digest.update(f"\n{array.dtype.str} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()[:32]
