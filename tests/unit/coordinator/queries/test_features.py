"""Feature maps that are fitted to a pool, or drawn from constants."""

import math

import numpy as np
import pytest
from sklearn.decomposition import PCA

from coordinator.queries.choice import QueryChoice, drawn_pool, make_queries
from coordinator.queries.features import features_for, principal, projected_features, share_of_noise
from protocols.errors import InvalidInput
from protocols.features.feature_map import FeatureMap
from protocols.study.terms import Feature
from tests.harness.refusals import refuses

RNG = np.random.default_rng(3)
TABLE = RNG.normal(size=(200, 12)).astype(np.float32)
# Soft blobs on a dark ground, here and there.
PLACES = np.indices((16, 16)) - RNG.uniform(5, 10, (120, 2))[:, :, None, None]
BLOBS = np.exp(-(PLACES**2).sum(axis=1) / 8).astype(np.float32)
NOISY = np.clip(BLOBS + RNG.normal(0, 0.6, BLOBS.shape), 0, 1).astype(np.float32)


def kinds(made):
    return [type(stage).__name__ for stage in made.stages]


@pytest.mark.parametrize(
    ("pool", "named", "stages", "width"),
    [
        (TABLE, "auto", [], 12),
        (TABLE, "raw", [], 12),
        (TABLE, "pca:3", ["LinearMap"], 3),
        (TABLE, "projection:5", ["LinearMap"], 5),
        (BLOBS, "raw", [], 256),
        (BLOBS, "hog", ["Deskew", "Hog"], 392),
        (BLOBS, "auto", ["Deskew", "Hog", "LinearMap"], 64),
        (NOISY, "auto", ["Deskew", "LinearMap"], 64),
        (np.stack([BLOBS] * 3, axis=-1), "auto", ["Hog", "LinearMap"], 64),
        (BLOBS[:10], "auto", ["Deskew", "Hog", "LinearMap"], 10),
    ],
)
def test_a_name_gives_the_stages_that_it_says(pool, named, stages, width) -> None:
    made = features_for(pool, named, seed=0)
    assert (kinds(made), made.width, made(pool[:2]).shape) == (stages, width, (2, width))
    assert made.digest == features_for(pool, named, seed=0).digest


def test_principal_components_are_those_of_scikit_learn() -> None:
    made = principal(TABLE, FeatureMap((12,)), 4)
    expected = PCA(4, svd_solver="full").fit_transform(TABLE.astype(np.float64))
    np.testing.assert_allclose(made(TABLE), expected, atol=0.01)


def test_meanings_of_text_are_components_of_what_is_weighted_by_rarity() -> None:
    rng = np.random.default_rng(3)
    columns = (
        Feature(column="age", kind="numeric", centre=0.0, scale=1.0),
        Feature(column="note", kind="text", vectors="grams:16"),
    )
    pool = np.concatenate([TABLE[:, :1], rng.poisson(0.7, (200, 16))], axis=1, dtype=np.float32)
    weights = [1.0, *(1 + math.log(201 / (1 + sum(row[at] != 0 for row in pool.tolist()))) for at in range(1, 17))]
    weighted = pool.astype(np.float64) * weights
    centred = weighted - weighted.mean(axis=0)
    _, _, directions = np.linalg.svd(centred)
    expected = centred @ directions[:5].T
    made = features_for(pool, "lsa:5", columns=columns, seed=0)(pool)
    signs = np.sign((made * expected).sum(axis=0))
    np.testing.assert_allclose(made, expected * signs, atol=0.01)
    assert kinds(features_for(pool, "auto", columns=columns, seed=0)) == ["LinearMap"]
    assert features_for(pool, "auto", columns=columns, seed=0).width == 17
    with refuses(InvalidInput, "text"):
        features_for(pool[:, :1], "lsa:1", columns=columns[:1], seed=0)
    with refuses(InvalidInput, "text", "cells"):
        make_queries(pool, columns, QueryChoice(), population=300, classes=2, noise=0.05)
    with refuses(InvalidInput, "a pool of public texts"):
        drawn_pool(columns, records=10, seed=0)


def test_a_projection_keeps_distances_and_needs_no_pool() -> None:
    rng = np.random.default_rng(3)
    records = rng.normal(size=(40, 300)).astype(np.float32)
    made = projected_features(FeatureMap((300,)), 150, seed=1)
    ratios = np.linalg.norm(np.diff(made(records), axis=0), axis=1) / np.linalg.norm(np.diff(records, axis=0), axis=1)
    assert np.abs(ratios - 1).max() < 0.3
    assert made.digest != projected_features(FeatureMap((300,)), 150, seed=2).digest


def test_the_noise_of_pixels_is_told_from_edges() -> None:
    rng = np.random.default_rng(3)
    assert share_of_noise(rng.normal(size=(50, 16, 16)).astype(np.float32)) == pytest.approx(1, abs=0.05)
    assert share_of_noise(BLOBS) < 0.1
    assert share_of_noise((BLOBS > 0.5).astype(np.float32)) < 0.2
    assert share_of_noise(np.ones((5, 16, 16), np.float32)) == 0


@pytest.mark.parametrize(
    ("pool", "named", "words"),
    [
        (TABLE, "hog", ("hog", "(12,)")),
        (TABLE, "sift", ("features", "sift")),
        (TABLE, "pca:", ("features", "pca:")),
        (TABLE, "pca:0", (0, 200, 1, 12)),
        (TABLE, "pca:13", (1, 12)),
        (TABLE, "projection:13", (13, 1, 12)),
        (TABLE, "onnx:", ("features", "onnx:")),
        (BLOBS[:, :7], "hog", ("(7, 16)",)),
    ],
)
def test_features_that_a_pool_does_not_have_are_refused(pool, named, words) -> None:
    with refuses(InvalidInput, *words):
        features_for(pool, named, seed=0)
