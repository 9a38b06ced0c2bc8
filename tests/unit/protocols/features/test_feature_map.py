"""Chains of stages: their file, their digest, and what is refused."""

import io

import numpy as np
import pytest

from protocols.array_files import parse_arrays
from protocols.errors import DataCorrupt, InvalidInput
from protocols.features.encoder import Encoder
from protocols.features.feature_map import FeatureMap
from protocols.features.images import Deskew, Hog
from protocols.features.linear import LinearMap
from tests.harness.refusals import refuses

IMAGES = np.random.default_rng(1).random((5, 16, 16)).astype(np.float32)
LINEAR = LinearMap.of(np.random.default_rng(2).normal(size=(72, 3)), np.zeros(72))
MADE = FeatureMap((16, 16), (Deskew(), Hog(8, 3), LINEAR))


def test_a_file_gives_the_same_map_back() -> None:
    encoded = FeatureMap((16, 16), (Encoder(b"a model that does not run yet", 5),))
    for made in (MADE, encoded, FeatureMap((4,))):
        read = FeatureMap.from_bytes(made.to_bytes())
        assert (read.digest, read.width, read.to_bytes()) == (made.digest, made.width, made.to_bytes())
    np.testing.assert_array_equal(FeatureMap.from_bytes(MADE.to_bytes())(IMAGES), MADE(IMAGES))


def test_the_digest_names_all_that_decides_a_records_features() -> None:
    others = [
        FeatureMap((16, 16), (Hog(8, 3), LINEAR)),
        FeatureMap((16, 16), (Deskew(), Hog(8, 3))),
        FeatureMap((16, 17), MADE.stages),
        FeatureMap((16, 16), (Deskew(), Hog(2, 6), LINEAR)),
        FeatureMap((16, 16), (Deskew(), Hog(8, 3), LinearMap(LINEAR.matrix, LINEAR.offset + 1))),
        FeatureMap((16, 16), (Encoder(b"one", 5),)),
        FeatureMap((16, 16), (Encoder(b"two", 5),)),
        FeatureMap((16, 16), (Encoder(b"one", 6),)),
    ]
    assert len({MADE.digest, *(other.digest for other in others)}) == 9


def altered(**changed):
    arrays = {**parse_arrays(MADE.to_bytes(), where="features"), **changed}
    content = io.BytesIO()
    np.savez(content, **{name: array for name, array in arrays.items() if array is not None})
    return content.getvalue()


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"kinds": None}, "kinds is absent"),
        ({"kinds": np.array([2, 9, 1])}, r"stages \[2, 9, 1\]; allowed: up to 8 of \[1, 2, 3, 4, 5\]"),
        ({"kinds": np.full(9, 2)}, "allowed: up to 8"),
        ({"kinds": np.array([2.0, 3.0])}, "kinds is float64"),
        ({"shape": np.array([0, 16])}, "shape is 0; allowed: 1 to"),
        ({"shape": np.full(5, 2)}, "5 sides; allowed: 1 to 4"),
        ({"shape": np.array([16, 16, 3])}, "allowed: grey"),
        ({"1.sizes": np.array([8])}, "hog has 1 sizes"),
        ({"1.sizes": np.array([8, 4])}, "linear feature map of 72 values"),
        ({"2.matrix": np.zeros((72, 3), np.int32)}, "2.matrix is int32 of rank 2; allowed: <i8 of rank 2"),
        ({"2.offset": np.zeros(4, np.int64)}, "has 4 offsets; allowed: the 3 of its outputs"),
    ],
)
def test_a_file_that_is_none_of_features_is_refused(changed, words) -> None:
    with pytest.raises((InvalidInput, DataCorrupt), match=words):
        FeatureMap.from_bytes(altered(**changed))


@pytest.mark.parametrize(
    ("records", "words"),
    [
        (np.zeros((2, 16, 15), np.float32), ("(16, 15)", "(16, 16)")),
        (np.full((2, 16, 16), np.inf, np.float32), ("NaN",)),
    ],
)
def test_records_that_do_not_fit_are_refused(records, words) -> None:
    with refuses(InvalidInput, *words):
        MADE(records)


@pytest.mark.parametrize(("content", "width"), [(b"", 1), (b"x", 0), (b"x", 2**14 + 1)])
def test_an_encoder_out_of_range_is_refused(content, width) -> None:
    with refuses(InvalidInput, "encoder"):
        Encoder(content, width)
