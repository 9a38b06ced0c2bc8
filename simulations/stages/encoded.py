"""What teachers and students learn from: records, or what a public feature map makes of them, kept on disk."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from jaxtyping import Float32
from numpy import ndarray

from coordinator.students import student_kind
from coordinator.students.choice import AUTO, USUAL
from party.teachers import teacher_kind
from protocols.array_files import array_bytes
from protocols.errors import InvalidInput
from protocols.features.feature_map import FeatureMap
from runtime.files import write_atomically
from simulations.datasets.dataset import Dataset, content_digest
from simulations.setup.experiment import Experiment
from simulations.source import source_digest
from simulations.stages.cached import cached_array


def encoded(dataset: Dataset, features: FeatureMap, *, cache_dir: Path | None) -> Dataset:
    """The same records as rows of features. cache_dir: where they are kept; None: nowhere.

    Raises InvalidInput for records that the map cannot take.
    """

    def of(records: Float32[ndarray, "records ..."]) -> Float32[ndarray, "records features"]:
        if cache_dir is None:
            return features(records)
        key = content_digest(records, text=f"features {features.digest} {source_digest('protocols.features')}")
        path = cache_dir / "features" / f"{key}.npy"
        known = cached_array(path)
        if known is not None and known.shape == (len(records), features.width) and known.dtype == np.float32:
            return known
        made = features(records)
        write_atomically(path, array_bytes(made))
        return made

    return replace(
        dataset,
        kind="table",
        columns=(),
        private_inputs=of(dataset.private_inputs),
        public_inputs=of(dataset.public_inputs),
        test_inputs=of(dataset.test_inputs),
    )


def check_suited(settings: Experiment, dataset: Dataset, *, student: str) -> None:
    """Raises InvalidInput for a teacher or a student that needs images, and would learn from something else."""
    named = student not in ("none", AUTO, USUAL)
    for what, name, images, features in (
        ("teacher", settings.teacher, teacher_kind(settings.teacher).needs_images, settings.teacher_features),
        ("student", student, named and student_kind(student).needs_images, bool(settings.student_features)),
    ):
        if images and (dataset.kind != "image" or features):
            raise InvalidInput(
                f"{what} is {name!r}, which needs images; allowed for {'features of ' * features}{dataset.name}: "
                "one for tables, as mlp"
            )
