"""Features of images: deskewing by moments, and oriented gradients held against a slow reading of the papers."""

import numpy as np
import pytest

from protocols.errors import InvalidInput
from protocols.features.images import Deskew, Hog
from tests.harness.refusals import refuses

RNG = np.random.default_rng(5)


def moments(image):
    """Centre of mass, and how much the figure leans."""
    mass, rows, columns = image.sum(), *np.indices(image.shape)
    down, right = (rows * image).sum() / mass, (columns * image).sum() / mass
    tall = ((rows - down) ** 2 * image).sum()
    return down, right, ((rows - down) * (columns - right) * image).sum() / tall


def leaning(side=24):
    """A bar that leans by half a pixel a row, away from the centre."""
    image = np.zeros((side, side), np.float32)
    for row in range(4, 16):
        image[row, 2 + row // 2 : 5 + row // 2] = 0.7
    return image


def test_a_leaning_figure_stands_upright_in_the_centre() -> None:
    assert moments(leaning())[2] > 0.4
    down, right, lean = moments(Deskew()(leaning()[None])[0].astype(np.float64))
    assert (down, right) == pytest.approx((11.5, 11.5), abs=0.05)
    assert abs(lean) < 0.02


def test_no_ink_is_lost_and_a_dark_image_stays_dark() -> None:
    made = Deskew()(np.stack([leaning(), np.zeros((24, 24), np.float32)]))
    assert made[0].sum() == pytest.approx(leaning().sum(), rel=0.01)
    assert not made[1].any()


def slow_hog(image, orientations, cells):
    """Pixel by pixel: each gradient is solved for its parts along the two directions that it lies between."""
    height, width = image.shape
    steps = np.rint(image.astype(np.float64) * 1024)
    padded = np.pad(steps, 1, mode="edge")
    histograms = np.zeros((cells, cells, orientations))
    turn = np.pi / orientations
    for row in range(height):
        for column in range(width):
            down = padded[row + 2, column + 1] - padded[row, column + 1]
            right = padded[row + 1, column + 2] - padded[row + 1, column]
            angle = np.arctan2(down, right) % np.pi
            first = int(angle / turn) % orientations
            basis = np.array([[np.cos(k * turn), np.sin(k * turn)] for k in (first, first + 1)]).T
            length = np.hypot(down, right)
            parts = np.linalg.solve(basis, length * np.array([np.cos(angle), np.sin(angle)])) * np.sin(turn)
            for y in range(cells):
                for x in range(cells):
                    share = 1.0
                    for place, cell, side in ((row, y, height), (column, x, width)):
                        centre = (cell + 0.5) * side / cells - 0.5
                        share *= max(0.0, 1 - abs(place - centre) * cells / side)
                    for part, direction in zip(parts, (first, (first + 1) % orientations), strict=True):
                        histograms[y, x, direction] += share * part
    area = 1.0
    for side in image.shape:
        centres = [(cell + 0.5) * side / cells - 0.5 for cell in range(cells)]
        area *= sum(max(0.0, 1 - abs(place - c) * cells / side) for c in centres for place in range(side))
    histograms *= 32 / (area / cells**2)
    found = np.zeros_like(histograms)
    for y in range(cells):
        for x in range(cells):
            around = histograms[max(y - 1, 0) : y + 2, max(x - 1, 0) : x + 2]
            found[y, x] = np.minimum(histograms[y, x] / np.sqrt((around**2).sum() + (12 * 32) ** 2), 0.2)
    return found.ravel()


@pytest.mark.parametrize(("shape", "orientations", "cells"), [((12, 12), 8, 3), ((10, 14), 5, 4), ((9, 9), 2, 1)])
def test_gradients_are_divided_between_directions_and_cells_as_the_papers_say(shape, orientations, cells) -> None:
    rng = np.random.default_rng(5)
    images = rng.random((3, *shape)).astype(np.float32)
    expected = [slow_hog(image, orientations, cells) for image in images]
    np.testing.assert_allclose(Hog(orientations, cells)(images), expected, atol=4e-3)


def test_of_several_channels_the_strongest_gradient_counts() -> None:
    rng = np.random.default_rng(5)
    strong = rng.random((2, 12, 12)).astype(np.float32)
    coloured = np.stack([strong * 0.3, strong, np.zeros_like(strong)], axis=-1)
    np.testing.assert_array_equal(Hog(8, 3)(coloured), Hog(8, 3)(strong))


@pytest.mark.parametrize("stage", [Deskew(), Hog(8, 4)], ids=["deskew", "hog"])
def test_an_image_has_the_same_features_alone_and_among_others(stage) -> None:
    rng = np.random.default_rng(5)
    images = rng.random((300, 24, 24)).astype(np.float32)
    together = stage(images)
    np.testing.assert_array_equal(np.concatenate([stage(image[None]) for image in images[:20]]), together[:20])
    np.testing.assert_array_equal(stage(np.asfortranarray(images[::-1]))[::-1], together)


@pytest.mark.parametrize("stage", [Deskew(), Hog(8, 4)], ids=["deskew", "hog"])
def test_pixels_far_outside_of_an_image_overflow_nothing(stage) -> None:
    wild = np.full((1, 128, 128), 3e38, np.float32)
    wild[:, ::2] = -3e38
    assert np.isfinite(stage(wild)).all()


@pytest.mark.parametrize(
    ("stage", "shape", "words"),
    [
        (Hog(8, 4), (7, 28), ("(7, 28)",)),
        (Hog(8, 4), (28,), ("(28,)",)),
        (Hog(8, 4), (28, 28, 17), (16,)),
        (Hog(8, 9), (8, 8), ("9 cells a side on images of shape", "allowed: 1 to 8")),
        (Hog(8, 1), (200, 200), (2, 200)),
        (Deskew(), (28, 28, 3), ("allowed: grey",)),
    ],
)
def test_images_that_do_not_fit_are_refused(stage, shape, words) -> None:
    with refuses(InvalidInput, *words):
        stage.output_shape(shape)


@pytest.mark.parametrize("sizes", [(1, 7), (33, 7), (8, 0), (8, 33)])
def test_hog_out_of_range_is_refused(sizes) -> None:
    with refuses(InvalidInput, 2, 32, 1):
        Hog(*sizes)
