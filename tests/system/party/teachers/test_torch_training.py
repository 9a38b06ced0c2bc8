"""The networks, and stacked against looped training."""

from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import torch
from numpy import ndarray
from sklearn.datasets import load_digits
from torch.nn import functional

from party.teachers import torch_teacher
from party.teachers.teacher import Shard
from party.teachers.torch_teacher import (
    TEACHER_CNN,
    TEACHER_MLP,
    TeacherNetwork,
    TorchKind,
    TorchTeacher,
    cnn,
    mlp,
    train_looped,
    train_stacked,
)
from protocols.errors import DataCorrupt


def digit_shards(*sizes: int) -> list[Shard]:
    source = load_digits()
    images, labels = (source.images / 16).astype(np.float32), source.target.astype(np.int64)
    stops = np.cumsum(sizes)
    return [(images[stop - size : stop], labels[stop - size : stop]) for size, stop in zip(sizes, stops, strict=True)]


@pytest.mark.parametrize("shape", [(11, 14), (11, 14, 3)], ids=["grey", "colour"])
def test_the_folded_cnn_is_convolution_batch_norm_max_pool_dense_batch_norm_dense(shape: tuple[int, ...]) -> None:
    generator = np.random.default_rng(0)
    parameters = TEACHER_CNN.initial(generator, shape, 5)
    for name in parameters:  # the identity would hide a swapped scale or shift
        if name.endswith((".scale", ".shift")):
            parameters[name] = torch.from_numpy(generator.uniform(-1, 1, parameters[name].shape)).float()
    images = torch.from_numpy(generator.uniform(0, 1, (6, *shape))).float()
    channels_first = images.reshape(6, 11, 14, -1).permute(0, 3, 1, 2)
    values = functional.conv2d(channels_first, parameters["conv.weight"])
    values = functional.batch_norm(
        values, None, None, parameters["conv_norm.scale"], parameters["conv_norm.shift"], training=True
    )
    values = torch.relu(functional.max_pool2d(values, 2)).flatten(1) @ parameters["hidden.weight"]
    values = functional.batch_norm(
        values, None, None, parameters["hidden_norm.scale"], parameters["hidden_norm.shift"], training=True
    )
    expected = torch.relu(values) @ parameters["out.weight"] + parameters["out.shift"]
    torch.testing.assert_close(TEACHER_CNN.logits(parameters, images, None), expected, rtol=1e-4, atol=1e-4)


def test_cnn_teachers_learn_from_colour_alone() -> None:
    generator = np.random.default_rng(0)
    labels = np.arange(60, dtype=np.int64) % 2
    images = generator.uniform(0, 0.2, (60, 8, 8, 3)).astype(np.float32)
    images[np.arange(60), :, :, labels] += 0.5  # red or green, of the same brightness
    (teacher,) = cnn(device="cpu").fit([(images[:40], labels[:40])], classes=2, seeds=[0])
    assert (teacher.predict(images[40:]) == labels[40:]).all()


@pytest.mark.parametrize("network", [TEACHER_CNN, TEACHER_MLP], ids=lambda network: network.name)
def test_final_statistics_make_the_training_rows_come_out_as_in_training(network: TeacherNetwork) -> None:
    images = torch.from_numpy(digit_shards(30)[0][0])
    parameters = network.initial(np.random.default_rng(0), (8, 8), 10)
    found: dict[str, torch.Tensor] = {}
    in_training = network.logits(parameters, images, found)
    assert {name: tuple(value.shape) for name, value in found.items()} == network.found((8, 8))
    torch.testing.assert_close(network.logits(parameters | found, images, None), in_training)


@pytest.mark.parametrize("network", [TEACHER_CNN, TEACHER_MLP], ids=lambda network: network.name)
def test_stacked_training_agrees_with_looped_training(network: TeacherNetwork, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_teacher, "_FEWEST_STEPS", 20)
    shards, seeds = digit_shards(40, 40, 25, 40), [1, 2, 3, 4]
    device = torch.device("cpu")
    looped = train_looped(network, shards, classes=10, seeds=seeds, device=device)
    stacked = train_stacked(network, shards, classes=10, seeds=seeds, device=device)
    queries = torch.from_numpy(digit_shards(500, 500)[1][0])
    for one, other in zip(looped, stacked, strict=True):
        assert one.keys() == other.keys()
        same = network.logits(one, queries, None).argmax(1) == network.logits(other, queries, None).argmax(1)
        assert same.float().mean() >= 0.98  # rounding moves what lies on a border
    # The order of the results is that of the shards: a neighbour's teacher is a different one.
    weights = looped[3]["hidden.weight"]
    assert (weights - stacked[3]["hidden.weight"]).abs().mean() < 1e-3
    assert (weights - stacked[0]["hidden.weight"]).abs().mean() > 1e-2


@pytest.mark.parametrize("make", [cnn, mlp])
def test_a_stack_with_one_class_one_row_and_full_shards_trains(make: object) -> None:
    kind: TorchKind = make(device="cpu")  # type: ignore[operator]  # cnn or mlp
    shards = digit_shards(12, 12, 1)
    shards[1] = (shards[1][0], np.full(12, 6, np.int64))
    teachers = kind.fit_with(shards, classes=10, seeds=[0, 1, 2], stacked=True)
    queries = digit_shards(300)[0][0]
    for teacher, (_, labels) in zip(teachers, shards, strict=True):
        assert set(teacher.predict(queries)) <= set(labels)


def test_training_does_not_touch_the_global_generator_of_torch() -> None:
    state = torch.get_rng_state()
    cnn(device="cpu").fit(digit_shards(10), classes=10, seeds=[0])
    torch.testing.assert_close(torch.get_rng_state(), state)


def altered(path: Path, **changed: ndarray) -> None:
    with safetensors.safe_open(path, framework="numpy") as file:
        about, arrays = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}
    safetensors.numpy.save_file(
        arrays | {name.replace("__", "."): value for name, value in changed.items()}, path, about
    )


@pytest.mark.parametrize(
    "changed",
    [
        {"out__weight": np.zeros((100, 9), np.float32)},
        {"out__shift": np.full(10, np.nan, np.float32)},
        {"out__shift": np.zeros(10, np.float64)},
        {"unknown": np.zeros(3, np.float32)},
        {"seen": np.array([3, 10])},
        {"seen": np.zeros(0, np.int64)},
    ],
)
def test_one_altered_array_is_corrupt(changed: dict[str, ndarray], tmp_path: Path) -> None:
    kind, path = mlp(device="cpu"), tmp_path / "teacher"
    kind.fit(digit_shards(10), classes=10, seeds=[0])[0].save(path)
    altered(path)
    assert isinstance(kind.load(path), TorchTeacher)
    altered(path, **changed)
    with pytest.raises(DataCorrupt):
        kind.load(path)
