"""Feature maps for a pool: its own values, gradients of images, principal components, projections, meanings of text,
encoders.

All of them are made from the public pool and from constants, so they cost nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from jaxtyping import Float32, Float64
from numpy import ndarray

from protocols.errors import InvalidInput
from protocols.features.encoder import MOST_MODEL_BYTES, Encoder
from protocols.features.feature_map import FeatureMap
from protocols.features.images import Deskew, Hog
from protocols.features.linear import LinearMap, Scale
from protocols.features.stage import STEPS, Stage
from protocols.installing import install
from protocols.reading import read_bytes
from protocols.study.terms import Feature

# Chosen by nearest neighbours on training images of MNIST and Fashion-MNIST: docs/how-to/choose-features.md.
_ORIENTATIONS: Final = 8
_CELLS: Final = 7
_COMPONENTS: Final = 64
# By nearest neighbours on the data sets notes and sms_spam, where 64 to 256 are about as good.
_MEANINGS: Final = 128
# What may follow: split there, so that a file's name may hold a plus.
_FURTHER: Final = re.compile(r"\+(?=(?:standard|pca:[0-9]+|projection:[0-9]+)(?:\+|$))")
_LEAST_DEVIATION: Final = 0.05
# Noise of pixels, as a share of all their variation, from which gradients say less than the pixels do.
_NOISY: Final = 0.5
# Rows that are enough to see how noisy the pixels are.
_LOOKED_AT: Final = 2000
# Of noise alone, of standard deviation 1, in noise_share's mask (Immerkaer 1996); and of a median (Donoho 1995).
_MASK_DEVIATION, _MEDIAN_OF_NORMAL = 6.0, 0.6745


def features_for(
    pool: Float32[ndarray, "pool ..."], named: str, *, columns: Sequence[Feature] = (), seed: int
) -> FeatureMap:
    """The feature map of this name for such a pool. columns: of a table, if they are known.

    raw: the values themselves; hog: histograms of oriented gradients, of deskewed images where they are grey; pca:N: N
    principal components of the pool; projection:N: N random directions; lsa:N: latent meanings of text; onnx:FILE: an
    encoder; auto: raw for rows of tables, lsa where a column of them is text; for images hog, or deskewed pixels where
    they are mostly noise, and principal components of that. Behind it, as often as wanted, of what comes before:
    +pca:N, +projection:N, or +standard, with mean 0 and standard deviation 1 over the pool.

    Raises InvalidInput for another name, and where the map does not fit the pool.
    """
    first, *further = _FURTHER.split(named)
    found = _first(pool, first, columns=columns, seed=seed)
    for each in further:
        kind, _, number = each.partition(":")
        if kind == "pca":
            found = principal(pool, found, int(number))
        else:
            found = projected_features(found, int(number), seed=seed) if kind == "projection" else standard(pool, found)
    return found


def _first(pool: Float32[ndarray, "pool ..."], named: str, *, columns: Sequence[Feature], seed: int) -> FeatureMap:
    raw = FeatureMap(pool.shape[1:])
    kind, _, value = named.partition(":")
    if kind == "onnx" and value:
        return encoder(pool, Path(value))
    texts = [each.kind == "text" for each in columns]
    if named == "auto" and any(texts):
        return latent(pool, columns, None)
    if kind in ("pca", "projection", "lsa") and value.isascii() and value.isdecimal():
        if kind == "lsa":
            return latent(pool, columns, int(value))
        return principal(pool, raw, int(value)) if kind == "pca" else projected_features(raw, int(value), seed=seed)
    if named == "raw" or (named == "auto" and pool.ndim == 2):
        return raw
    if named not in ("auto", "hog"):
        raise InvalidInput(
            f"features is {named[:80]!r}; allowed: auto, raw, hog, pca:N, projection:N, lsa:N, onnx:FILE, and behind "
            "it +standard, +pca:N, +projection:N"
        )
    if pool.ndim < 3:
        raise InvalidInput(f"features is 'hog' for records of shape {pool.shape[1:]}; allowed: images")
    if named == "hog":
        return raw.then(*_image_stages(pool, noisy=False))
    return principal(pool, raw.then(*_image_stages(pool, noisy=share_of_noise(pool) > _NOISY)), None)


def principal(
    pool: Float32[ndarray, "pool ..."],
    base: FeatureMap,
    components: int | None,
    *,
    weights: Float64[ndarray, " features"] | float = 1.0,
    usual: int = _COMPONENTS,
) -> FeatureMap:
    """`base`, and then as many principal components of the pool's features, multiplied by `weights`; None: `usual`, or
    all if they are fewer.

    Raises InvalidInput where the pool has fewer records or features, or without scikit-learn.
    """
    try:
        from sklearn.decomposition import PCA
    except ModuleNotFoundError as missing:
        raise InvalidInput(f"principal components need scikit-learn: {install('sklearn')}") from missing
    found = base(pool).astype(np.float64) * weights
    most = min(found.shape)
    count = min(usual, most) if components is None else components
    if not 1 <= count <= most:
        raise InvalidInput(f"{count} principal components of {len(pool)} records are asked for; allowed: 1 to {most}")
    fitted = PCA(count, svd_solver="full").fit(found)
    return base.then(LinearMap.of((fitted.components_ * weights).T, fitted.mean_ / weights))


def latent(pool: Float32[ndarray, "pool features"], columns: Sequence[Feature], components: int | None) -> FeatureMap:
    """Latent meanings of text (Deerwester et al. 1990): principal components of the pool's features, those of text
    weighted by how few of the pool's texts have them.

    That weight is 1 + ln((1 + n) / (1 + those of n texts in which the feature is not 0)), the inverse document
    frequency of Spaerck Jones 1972. Weights and components are one matrix. components: None for 128, or all if they are
    fewer. Raises InvalidInput without a column of text, for too many components, or without scikit-learn.
    """
    of_text = np.repeat([each.kind == "text" for each in columns], [each.width for each in columns])
    if not of_text.any():
        raise InvalidInput("features is 'lsa', and no column is text; allowed: auto, raw, pca:N, projection:N")
    had = np.count_nonzero(pool, axis=0)
    weights = np.where(of_text, 1 + np.log((1 + len(pool)) / (1 + had)), 1.0)
    return principal(pool, FeatureMap(pool.shape[1:]), components, weights=weights, usual=_MEANINGS)


def standard(pool: Float32[ndarray, "pool ..."], base: FeatureMap) -> FeatureMap:
    """`base`, and then each feature less its mean over the pool, in units of its standard deviation there.

    One that hardly varies stays small: it is divided by _LEAST_DEVIATION of the mean deviation, or one step, at least.
    """
    mean, deviation = mean_and_deviation(base(pool).astype(np.float64), least=1 / STEPS)
    return base.then(Scale.of(mean, 1 / deviation))


def mean_and_deviation(
    found: Float64[ndarray, "pool features"], *, least: float
) -> tuple[Float64[ndarray, " features"], Float64[ndarray, " features"]]:
    """Of each feature over the pool, the standard deviation at least _LEAST_DEVIATION of the mean one, and `least`."""
    deviation = found.std(axis=0)
    return found.mean(axis=0), np.maximum(deviation, max(_LEAST_DEVIATION * float(deviation.mean()), least))


def projected_features(base: FeatureMap, components: int, *, seed: int) -> FeatureMap:
    """`base`, and then random directions, which keep distances about as they are (Johnson & Lindenstrauss 1984). Needs
    no pool. Raises InvalidInput on their number.
    """
    if not 1 <= components <= base.width:
        raise InvalidInput(f"{components} directions are asked for; allowed: 1 to the {base.width} features")
    rng = np.random.default_rng([seed, *b"projection"])
    directions = rng.standard_normal((base.width, components)) / math.sqrt(components)
    return base.then(LinearMap.of(directions, np.zeros(base.width)))


def encoder(pool: Float32[ndarray, "pool ..."], path: Path) -> FeatureMap:
    """The first output of an ONNX model, one row of features a record. The model must be public, and not trained on
    anything private.

    Raises DataUnavailable, DataCorrupt, InvalidInput where it cannot take the pool's records.
    """
    content = read_bytes(path, most=MOST_MODEL_BYTES)
    return FeatureMap(pool.shape[1:], (Encoder.of(content, pool[:1]),))


def share_of_noise(images: Float32[ndarray, "images *shape"]) -> float:
    """The pixels' noise over their standard deviation: about 1 for noise alone, 0 for smooth images.

    Immerkaer 1996: the mask [[1, -2, 1], [-2, 4, -2], [1, -2, 1]] takes out what changes smoothly. The median of its
    values, and not the mean, so that edges and strokes do not count.
    """
    looked = images[:_LOOKED_AT].astype(np.float64)
    for axis in (1, 2):
        looked = np.diff(looked, n=2, axis=axis)
    spread = float(images[:_LOOKED_AT].std())
    return float(np.median(np.abs(looked))) / _MEDIAN_OF_NORMAL / _MASK_DEVIATION / spread if spread > 0 else 0.0


def _image_stages(pool: Float32[ndarray, "pool *shape"], *, noisy: bool) -> tuple[Stage, ...]:
    upright = (Deskew(),) if pool.ndim == 3 else ()
    return upright if noisy else (*upright, Hog(_ORIENTATIONS, _CELLS))
