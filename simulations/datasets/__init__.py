"""The data sets of the simulator: a table of names, and `load`. A new one is one file and one line here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from protocols.errors import InvalidInput
from protocols.plugins import Parts, function_of

if TYPE_CHECKING:
    from simulations.datasets.dataset import Dataset, DatasetRequest

__all__ = ["DATASETS", "RENDERED", "load"]

# These are computed rather than read, so they are worth keeping, take any size, and can be made harder.
RENDERED = ("glyphs", "clear_glyphs")

DATASETS: Parts[Callable[[DatasetRequest], Dataset]] = Parts(
    "dataset",
    {
        "glyphs": "simulations.datasets.glyphs:load",
        "clear_glyphs": "simulations.datasets.glyphs:load_clear",
        "glyph_sets": "simulations.datasets.glyphs:load_sets",
        "digits": "simulations.datasets.shipped:load_digits",
        "breast_cancer": "simulations.datasets.shipped:load_breast_cancer",
        "mnist": "simulations.datasets.published_images:load_mnist",
        "fashion_mnist": "simulations.datasets.published_images:load_fashion_mnist",
        "svhn": "simulations.datasets.published_images:load_svhn",
        "cifar10": "simulations.datasets.published_images:load_cifar10",
        "adult": "simulations.datasets.published_tables:adult",
        "diabetes130": "simulations.datasets.published_tables:diabetes130",
        "diabetes130_outcomes": "simulations.datasets.published_tables:diabetes130_outcomes",
        "heart_disease": "simulations.datasets.published_tables:heart_disease",
        "eicu_demo": "simulations.datasets.published_tables:eicu_demo",
        "pneumoniamnist": "simulations.datasets.published_images:load_pneumonia",
        "breastmnist": "simulations.datasets.published_images:load_breast",
    },
    group="conclave.datasets",
    check=function_of("a DatasetRequest that returns a Dataset"),
)


def load(name: str, request: DatasetRequest) -> Dataset:
    """The named data set, or the user's own file if `name` ends in .csv, .tsv (or these and .gz), .parquet, .jsonl,
    .ndjson or .npz.

    Everything random in it comes from the request's seed. Raises InvalidInput (an unknown name, a value out of range,
    an option that this data set does not have), DataUnavailable (files are absent; the message says how to get them)
    and DataCorrupt (wrong content).
    """
    from simulations.datasets.own import SUFFIXES, is_file_name, load_file  # pandas and pyarrow

    is_file = is_file_name(name)
    if not is_file and name not in DATASETS:
        raise InvalidInput(
            f"dataset is {name!r}; allowed: {', '.join(DATASETS)}, or a file ending in {', '.join(SUFFIXES)}"
        )
    if not is_file and request.schema is not None:
        raise InvalidInput(f"schema_file is given, but {name} needs none; allowed: only with a file of your own")
    if name not in RENDERED and (request.imbalance != 1 or request.mislabelled != 0):
        raise InvalidInput(
            f"imbalance is {request.imbalance:g} and mislabelled {request.mislabelled:g} for {name}; "
            f"allowed: 1 and 0 for any data set but {' and '.join(RENDERED)}"
        )
    dataset: Dataset = load_file(Path(name), request) if is_file else DATASETS[name](request)
    if request.classes not in (None, dataset.classes):
        raise InvalidInput(f"classes is {request.classes}; allowed: {dataset.classes}, the classes of {name}")
    return dataset
