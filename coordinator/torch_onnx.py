"""A torch module as the bytes of an ONNX file, by torch's own exporter, without what it notes about this machine."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping, Sequence

import torch
from google.protobuf.message import Message
from torch import Tensor

_OPSET = 18


def onnx_bytes(
    module: torch.nn.Module, sample: Tensor, *, outputs: Sequence[str], says: Mapping[str, str] | None = None
) -> bytes:
    """The module in one file. sample: two inputs or more, rows first; outputs: the names of what it returns; says: what
    the file says of itself (metadata_props).

    The file takes any number of rows, under the name "inputs".
    """
    # The exporter reports which operators of torchvision it could have written if that were installed.
    logging.getLogger("torch.onnx._internal.exporter._registration").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        # The exporter warns about changes inside torch itself.
        warnings.simplefilter("ignore", FutureWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        program = torch.onnx.export(
            module.eval(),
            (sample,),
            dynamo=True,
            verbose=False,
            input_names=["inputs"],
            output_names=list(outputs),
            dynamic_shapes={"inputs": {0: torch.export.Dim("queries", min=1)}},
            opset_version=_OPSET,
            external_data=False,
        )
    assert program is not None  # dynamo=True always returns one
    model = program.model_proto
    _forget_origin(model)
    for name, value in (says or {}).items():
        model.metadata_props.add(key=name, value=value)
    content: bytes = model.SerializeToString()
    return content


def _forget_origin(message: Message) -> None:
    """Removes what torch notes about each node, at any depth: it quotes source code, with its path on this machine."""
    for field, value in message.ListFields():
        if field.name in ("metadata_props", "doc_string"):
            message.ClearField(field.name)
        elif field.message_type is not None:
            for each in value if field.is_repeated else (value,):
                _forget_origin(each)
