"""The losses of PATE-G's discriminator and generator, against the formulas computed one by one."""

import math

import numpy as np
import pytest
import torch

from benchmarks import gan
from benchmarks.gan import DISCRIMINATOR, Generator, adversarial
from coordinator.students import torch_student
from coordinator.students.student import one_hot


def test_the_adversarial_loss_is_that_of_a_softmax_with_one_more_class() -> None:
    """Salimans et al. 2016, section 5: made is class K + 1, whose logit is 0; input by input in double precision."""
    generator = np.random.default_rng(0)
    real, made = 3 * generator.standard_normal((5, 4)), 3 * generator.standard_normal((7, 4))

    def probability_of_made(logits: list[float]) -> float:
        return 1 / (1 + sum(math.exp(each) for each in logits))

    wanted = -sum(math.log(1 - probability_of_made(row)) for row in real.tolist()) / 5 / 2
    wanted -= sum(math.log(probability_of_made(row)) for row in made.tolist()) / 7 / 2
    assert adversarial(torch.tensor(real), torch.tensor(made)).item() == pytest.approx(wanted, rel=1e-9)


def test_the_length_of_a_weight_says_nothing_and_the_last_scale_does() -> None:
    shape = (9, 8, 3)
    parameters = DISCRIMINATOR.initial(np.random.default_rng(0), shape, 3)
    images = torch.from_numpy(np.random.default_rng(1).random((4, *shape), np.float32))
    found = DISCRIMINATOR.logits(parameters, images, None)
    longer = {name: 3 * value if name.endswith(".weight") else value for name, value in parameters.items()}
    torch.testing.assert_close(DISCRIMINATOR.logits(longer, images, None), found)
    doubled = parameters | {"out.scale": 2 * parameters["out.scale"]}
    torch.testing.assert_close(DISCRIMINATOR.logits(doubled, images, None), 2 * found)


def test_what_is_made_starts_near_the_mean_of_the_pool_and_lies_within_its_range() -> None:
    random = np.random.default_rng(0)
    pool = torch.from_numpy(random.uniform(-1, 3, (50, 4, 5)).astype(np.float32))
    pool[:, 0, 0] = 7  # a feature that never changes
    generator = Generator.before_training(pool, random)
    made = generator(400, random)
    assert made.shape == (400, 4, 5)
    assert ((made >= pool.amin(0)) & (made <= pool.amax(0))).all()
    assert (made.mean(0) - pool.mean(0)).abs().max() < 0.5


def test_it_tells_two_kinds_of_images_apart_and_the_same_seed_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    short = torch_student.Schedule(batch=32, epochs=1, fewest_steps=60, most_steps=60)
    monkeypatch.setattr(gan, "_SCHEDULE", short)
    random = np.random.default_rng(2)
    labels = np.arange(80) % 2
    images = random.random((80, 9, 8), np.float32) / 2
    images[labels == 1, :, :4] += 0.5
    kind = gan.gan(device="cpu")
    first, again = (
        kind.fit(images[:40], one_hot(labels[:40], 2), unlabelled=images[40:], classes=2, seed=3) for _ in range(2)
    )
    assert (first.predict(images[40:]) == labels[40:]).mean() >= 0.9
    np.testing.assert_array_equal(first.predict_proba(images), again.predict_proba(images))
