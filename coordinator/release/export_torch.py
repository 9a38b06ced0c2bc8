"""A network as safetensors (its parameters by name) and as ONNX, by torch's own exporter."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path

import safetensors.torch
import torch
from google.protobuf.message import Message
from torch import Tensor

from coordinator.release.export import ONNX_FILE, SAFETENSORS_FILE, Written
from coordinator.students.student import Student
from coordinator.students.torch_student import TorchStudent
from protocols.errors import InvalidInput

_OPSET = 18


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
    # The exporter reports which operators of torchvision it could have written if that were installed.
    logging.getLogger("torch.onnx._internal.exporter._registration").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        # The exporter warns about changes inside torch itself.
        warnings.simplefilter("ignore", FutureWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        program = torch.onnx.export(
            _Predicts(student).eval(),
            (sample,),
            dynamo=True,
            verbose=False,
            input_names=["inputs"],
            output_names=["label", "probabilities"],
            dynamic_shapes={"inputs": {0: torch.export.Dim("queries", min=1)}},
            opset_version=_OPSET,
            external_data=False,
        )
    assert program is not None  # dynamo=True always returns one
    model = program.model_proto
    _forget_origin(model)
    (folder / ONNX_FILE).write_bytes(model.SerializeToString())
    return Written((ONNX_FILE, SAFETENSORS_FILE), student.input_shape, tuple(range(len(student.offsets))))


def _forget_origin(message: Message) -> None:
    """Removes what torch notes about each node, at any depth: it quotes source code, with its path on this machine."""
    for field, value in message.ListFields():
        if field.name in ("metadata_props", "doc_string"):
            message.ClearField(field.name)
        elif field.message_type is not None:
            for each in value if field.is_repeated else (value,):
                _forget_origin(each)
