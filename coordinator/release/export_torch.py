"""A network as safetensors (its parameters by name) and as ONNX, by torch's own exporter."""

from __future__ import annotations

from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor

from coordinator.students.student import ONNX_FILE, SAFETENSORS_FILE, Student, Written
from coordinator.students.torch_student import CNN, MLP, TorchStudent
from coordinator.torch_onnx import onnx_bytes
from protocols.errors import DataCorrupt, InvalidInput
from protocols.reading import open_file

_FILE_BYTES = 2**31


class _Predicts(torch.nn.Module):
    """The student's predictions as a module: class and probabilities of each query."""

    def __init__(self, student: TorchStudent) -> None:
        super().__init__()
        self._network = student.network
        self._names = list(student.parameters)
        for position, value in enumerate(student.parameters.values()):
            self.register_buffer(f"parameter_{position}", value.detach().cpu())
        self.register_buffer("offsets", student.offsets.detach().cpu())

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        parameters = {name: self.get_buffer(f"parameter_{position}") for position, name in enumerate(self._names)}
        logits = self._network.logits(parameters, inputs, None) + self.get_buffer("offsets")
        return logits.argmax(1), logits.softmax(1)


def write(student: Student, folder: Path) -> Written:
    """Writes student.safetensors and student.onnx."""
    if not isinstance(student, TorchStudent):
        raise InvalidInput(f"the student is {type(student).__name__}; allowed: TorchStudent")
    tensors = {name: value.detach().cpu().contiguous() for name, value in student.parameters.items()}
    tensors["offsets"] = student.offsets.detach().cpu().contiguous()
    metadata = {
        "network": student.network.name,
        "input_shape": "x".join(str(size) for size in student.input_shape),
        "classes": str(len(student.offsets)),
    }
    safetensors.torch.save_file(tensors, folder / SAFETENSORS_FILE, metadata=metadata)
    sample = torch.zeros((2, *student.input_shape))
    content = onnx_bytes(_Predicts(student), sample, outputs=("label", "probabilities"))
    (folder / ONNX_FILE).write_bytes(content)
    return Written((ONNX_FILE, SAFETENSORS_FILE), student.input_shape, tuple(range(len(student.offsets))))


def read_network(path: Path, input_shape: tuple[int, ...]) -> TorchStudent | None:
    """The network that `write` wrote, on the CPU; None for one that is not this project's.

    Raises DataUnavailable, DataCorrupt.
    """
    open_file(path, most=_FILE_BYTES).close()  # safetensors waits for ever at a pipe
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            about = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # it is no mapping
        network = {each.name: each for each in (CNN, MLP)}.get(about["network"])
        if network is None:
            return None
        offsets, classes = tensors.pop("offsets"), int(about["classes"])
        wanted = {**network.shapes(input_shape, classes), "offsets": (classes,)}
        if any(tuple({**tensors, "offsets": offsets}[name].shape) != shape for name, shape in wanted.items()):
            raise ValueError("a parameter has another shape")
        return TorchStudent(network, tensors, offsets, input_shape)
    except (OSError, safetensors.SafetensorError, KeyError, ValueError, InvalidInput) as error:
        raise DataCorrupt(f"{path.name} is no network of inputs {input_shape}: {str(error)[:200]}") from None
