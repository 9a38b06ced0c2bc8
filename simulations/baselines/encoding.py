"""What linear models of a comparison see: tables as they are, images by features of the public pool.

Features cost no budget, as they are made from constants and the public pool alone. Linear models with privacy are
better on them than on pixels, and often better than networks with privacy (Tramer and Boneh 2021).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from coordinator.queries.features import features_for
from protocols.errors import InvalidInput
from simulations.stages.encoded import encoded as of_features
from simulations.stages.inputs import DatasetInputs


def encoded(inputs: DatasetInputs, features: str) -> DatasetInputs:
    """The inputs with tables left alone, and features f32 [N, features] of images in the place of their pixels.

    features: see features_for. They are centred on the public pool, and scaled by one number so that their mean square
    over the pool is 1. Raises InvalidInput for features that the pool does not have, and for any but auto of tables.
    """
    dataset = inputs.dataset
    if dataset.kind != "image":
        if features != "auto":
            raise InvalidInput(f"features is {features!r}, and {dataset.name} is a table; allowed: auto, as it is")
        return inputs
    found = features_for(dataset.public_inputs, features, columns=dataset.columns, seed=inputs.settings.data_seed)
    made = of_features(dataset, found, cache_dir=inputs.cache_dir)
    pool = made.public_inputs.astype(np.float64)
    centre = pool.mean(axis=0)
    scale = float(np.sqrt(((pool - centre) ** 2).mean())) or 1.0
    private, public, test = (
        ((part - centre) / scale).astype(np.float32)
        for part in (made.private_inputs, made.public_inputs, made.test_inputs)
    )
    return replace(inputs, dataset=replace(made, private_inputs=private, public_inputs=public, test_inputs=test))
