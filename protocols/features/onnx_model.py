"""Running an ONNX file on the CPU, on one thread: the file that feature maps and teachers import onnxruntime by.

Whoever made the file decides what it computes, so memory and time have limits. All models of others share one arena of
memory of onnxruntime in a process; nothing is computed before a model is run, where that arena is used; and what takes
longer than anybody would wait is given up.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from functools import cache
from typing import Final, TypeVar

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

Result = TypeVar("Result")
# Of all models of others in a process together, with what they compute.
MOST_MEMORY_BYTES: Final = 2**32
# Records that are run at once where the file does not fix their number, and the largest number that it may fix.
BATCH: Final = 32
MOST_ROWS: Final = 4096
# For one batch, and for reading a file: no honest model comes near it.
LONGEST_S: Final = 300.0


@dataclass(frozen=True, eq=False)
class OnnxModel:
    """One input of 32-bit floats, records first."""

    session: onnxruntime.InferenceSession = field(repr=False)

    @classmethod
    def of(cls, content: bytes, *, where: str, own: bool) -> OnnxModel:
        """The model in a file that needs no other file and no custom operators. Raises DataCorrupt.

        where: what it is, for the message; own: whether whoever runs it made it, as a hospital its teachers: it may
        then draw at random, and so give other outputs each time, and have all the memory that there is.
        """
        check_onnx(content, where=where, own=own)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        # Not onnxruntime's own format, which was not checked.
        options.add_session_config_entry("session.load_model_format", "ONNX")
        if not own:
            _bound_memory()
            options.add_session_config_entry("session.use_env_allocators", "1")
        try:
            # Constants are not computed in advance, which would be outside the bounded memory.
            session = in_time(
                lambda: onnxruntime.InferenceSession(
                    content, options, providers=["CPUExecutionProvider"], disabled_optimizers=["ConstantFolding"]
                ),
                limit_s=LONGEST_S,
            )
            # The names in a model are bytes, decoded only when they are read.
            taken = [(each.name, each.type) for each in session.get_inputs()]
            given = [each.name for each in session.get_outputs()]
        except _FAILURES as error:
            raise DataCorrupt(f"{where} is not a readable ONNX model: {str(error)[:200]}") from None
        except TimeoutError:
            raise DataCorrupt(f"{where} was not read in {LONGEST_S:.0f} s; allowed: a model that is") from None
        if len(taken) != 1 or taken[0][1] != "tensor(float)" or not given:
            raise DataCorrupt(
                f"{where} takes {len(taken)} inputs; allowed: one of 32-bit floats, and at least one output"
            )
        made = cls(session)
        if made.rows is not None and not 1 <= made.rows <= MOST_ROWS:
            raise DataCorrupt(f"{where} takes {made.rows} records at once; allowed: 1 to {MOST_ROWS}, or any number")
        return made

    @property
    def rows(self) -> int | None:
        """The number of records that it takes at once, where the file fixes one."""
        wanted = self.session.get_inputs()[0].shape
        return wanted[0] if wanted and isinstance(wanted[0], int) else None

    def first_output(
        self, inputs: Float32[ndarray, "records ..."], *, name: str | None = None
    ) -> Shaped[ndarray, "..."]:
        """The first output, or the one of this name, computed in batches. Raises InvalidInput for a name that it does
        not have, for inputs that it cannot take, and where a batch needs more than MOST_MEMORY_BYTES or LONGEST_S; the
        message shows none of their values, as onnxruntime's own may."""
        if not len(inputs):
            return self._once(inputs, name)
        at_once = self.rows or BATCH
        chunks = []
        for start in range(0, len(inputs), at_once):
            chunk = inputs[start : start + at_once]
            short = (self.rows or len(chunk)) - len(chunk)
            filled = np.concatenate([chunk, np.repeat(chunk[-1:], short, axis=0)]) if short else chunk
            output = self._once(filled, name)
            chunks.append(output[: len(chunk)] if self.rows else output)
        if len({each.shape[1:] for each in chunks}) > 1:
            raise InvalidInput("the ONNX model gives outputs of several shapes; allowed: one")
        return chunks[0] if len(chunks) == 1 else np.concatenate(chunks)

    def _once(self, inputs: Float32[ndarray, "records ..."], name: str | None) -> Shaped[ndarray, "..."]:
        names, wanted = [each.name for each in self.session.get_outputs()], self.session.get_inputs()[0]
        if name is not None and name not in names:
            raise InvalidInput(f"the ONNX model has the outputs {names[:9]}; allowed: one named {name!r}")
        name = name or names[0]
        given = {wanted.name: np.ascontiguousarray(inputs)}
        how = onnxruntime.RunOptions()
        try:
            output = in_time(lambda: self.session.run([name], given, how)[0], limit_s=LONGEST_S)
        except TimeoutError:
            raise InvalidInput(
                f"the ONNX model has not finished inputs of shape {inputs.shape} after {LONGEST_S:.0f} s; allowed: a "
                "model that takes less, such as one of smaller images"
            ) from None
        except _FAILURES as error:
            taken = [each if isinstance(each, int) else "any" for each in wanted.shape]
            raise InvalidInput(
                f"the ONNX model cannot take inputs of shape {inputs.shape}, or what they hold "
                f"({type(error).__name__}); allowed: of shape ({', '.join(map(str, taken))}), computed in at most "
                f"{MOST_MEMORY_BYTES >> 30} GiB of memory"
            ) from None
        finally:
            how.terminate = True  # a run that was given up ends before its next operator
        found = np.asarray(output)
        if not found.ndim:
            raise InvalidInput("the ONNX model gives one number for all records; allowed: one row for each")
        return found


@cache
def _bound_memory() -> None:
    """Makes the arena that models of others take their memory from."""
    onnxruntime.create_and_register_allocator(
        onnxruntime.OrtMemoryInfo(
            "Cpu", onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, onnxruntime.OrtMemType.DEFAULT
        ),
        onnxruntime.OrtArenaCfg({"max_mem": MOST_MEMORY_BYTES, "arena_extend_strategy": 1}),  # by what is asked for
    )


def in_time(work: Callable[[], Result], *, limit_s: float) -> Result:
    """What `work` gives, or what it raises. Raises TimeoutError after limit_s; `work` then goes on, and is waited for
    by nobody, not even as the program ends."""
    done: Future[Result] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:  # noqa: BLE001  # it is raised again by the thread that waits
            done.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    if not wait([done], limit_s).done:
        raise TimeoutError(f"not done after {limit_s} s")
    return done.result()
