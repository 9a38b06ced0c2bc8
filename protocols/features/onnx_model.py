"""Running an ONNX file on the CPU, on one thread: the file that feature maps and teachers import onnxruntime by."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import onnxruntime
from jaxtyping import Float32, Shaped
from numpy import ndarray
from onnxruntime.capi import onnxruntime_pybind11_state

from protocols.errors import DataCorrupt, InvalidInput
from protocols.features.onnx_graph import check_onnx

# onnxruntime's own exceptions share no base class; besides them its bindings raise these three.
_FAILURES: tuple[type[Exception], ...] = (
    ValueError,
    TypeError,
    RuntimeError,
    *(
        each
        for each in vars(onnxruntime_pybind11_state).values()
        if isinstance(each, type) and issubclass(each, Exception)
    ),
)


@dataclass(frozen=True, eq=False)
class OnnxModel:
    """One input of 32-bit floats, records first."""

    session: onnxruntime.InferenceSession = field(repr=False)

    @classmethod
    def of(cls, content: bytes, *, where: str, draws: bool) -> OnnxModel:
        """The model in an untrusted file that needs no other file and no custom operators. Raises DataCorrupt.

        where: what it is, for the message; draws: whether it may draw at random, and so give other outputs each time.
        """
        check_onnx(content, where=where, draws=draws)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        # Not onnxruntime's own format, which was not checked.
        options.add_session_config_entry("session.load_model_format", "ONNX")
        try:
            session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
            # The names in a model are bytes, decoded only when they are read.
            taken = [(each.name, each.type) for each in session.get_inputs()]
            given = [each.name for each in session.get_outputs()]
        except _FAILURES as error:
            raise DataCorrupt(f"{where} is not a readable ONNX model: {str(error)[:200]}") from None
        if len(taken) != 1 or taken[0][1] != "tensor(float)" or not given:
            raise DataCorrupt(
                f"{where} takes {len(taken)} inputs; allowed: one of 32-bit floats, and at least one output"
            )
        return cls(session)

    @property
    def rows(self) -> int | None:
        """The number of records that it takes at once, where the file fixes one."""
        wanted = self.session.get_inputs()[0].shape
        return wanted[0] if wanted and isinstance(wanted[0], int) else None

    def first_output(self, inputs: Float32[ndarray, "records ..."]) -> Shaped[ndarray, "..."]:
        """The first output. Raises InvalidInput for inputs that it cannot take; the message shows none of their values,
        as onnxruntime's own may."""
        if self.rows is None or not len(inputs):
            return self._once(inputs)
        chunks = []
        for start in range(0, len(inputs), self.rows):
            chunk = inputs[start : start + self.rows]
            short = self.rows - len(chunk)
            filled = np.concatenate([chunk, np.repeat(chunk[-1:], short, axis=0)]) if short else chunk
            chunks.append(self._once(filled)[: len(chunk)])
        return np.concatenate(chunks)

    def _once(self, inputs: Float32[ndarray, "records ..."]) -> Shaped[ndarray, "..."]:
        try:
            output = self.session.run(
                [self.session.get_outputs()[0].name],
                {self.session.get_inputs()[0].name: np.ascontiguousarray(inputs)},
            )[0]
        except _FAILURES as error:
            taken = [each if isinstance(each, int) else "any" for each in self.session.get_inputs()[0].shape]
            raise InvalidInput(
                f"the ONNX model cannot take inputs of shape {inputs.shape}, or what they hold "
                f"({type(error).__name__}); allowed: of shape ({', '.join(map(str, taken))})"
            ) from None
        return np.asarray(output)
