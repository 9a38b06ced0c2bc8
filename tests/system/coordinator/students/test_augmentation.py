"""Random changes of images and rows."""

import numpy as np
import torch

from coordinator.students.torch_student import ImageChange, RowChange

STRONG_IMAGES = ImageChange(rotation=15, shift=0.1, scale=0.15, shear=0.15, contrast=0.3, cutout=0.2)


def blob() -> torch.Tensor:
    images = torch.zeros(64, 20, 20)
    images[:, 8:12, 8:12] = 1.0
    return images


def test_no_change_changes_nothing() -> None:
    images = torch.from_numpy(np.random.default_rng(0).uniform(0, 1, (5, 9, 12))).float()
    changed = ImageChange(rotation=0, shift=0)(images, np.random.default_rng(0))
    torch.testing.assert_close(changed, images, rtol=0, atol=1e-5)
    torch.testing.assert_close(RowChange(noise=0)(images, np.random.default_rng(0)), images)


def test_the_three_colours_of_an_image_are_changed_alike() -> None:
    grey = blob()
    changed = STRONG_IMAGES(torch.stack([grey, grey, 2 * grey], dim=-1), np.random.default_rng(0))
    alone = STRONG_IMAGES(grey, np.random.default_rng(0))
    torch.testing.assert_close(changed, torch.stack([alone, alone, 2 * alone], dim=-1))


def test_shifts_stay_within_their_range_and_reach_it() -> None:
    changed = ImageChange(rotation=0, shift=0.2)(blob(), np.random.default_rng(0))
    mass = changed.sum((1, 2))
    centres = (changed.sum(1) * (torch.arange(20) + 0.5)).sum(1) / mass
    assert (centres - 10).abs().max() <= 4.01
    assert (centres - 10).abs().max() > 3.5


def test_cutout_hides_a_square_of_at_most_its_size() -> None:
    images = torch.ones(200, 20, 20)
    hidden = (ImageChange(rotation=0, shift=0, cutout=0.25)(images, np.random.default_rng(0)) == 0).sum((1, 2))
    assert hidden.max() == 25
    assert hidden.min() > 0
