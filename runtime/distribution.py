"""The distribution of these packages: its name on the Python index, its version, and how to install an extra.

The index has another project called conclave, so the name to install differs from the name to import.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from protocols.errors import InvalidInput

if TYPE_CHECKING:
    from protocols.plugins import Parts

T = TypeVar("T")

DISTRIBUTION: Final = "conclave-pate"
# The extra that brings a package.
_EXTRAS: Final = {
    "torch": "torch", "safetensors": "torch", "sklearn": "sklearn", "skops": "sklearn", "pyarrow": "parquet",
    "PIL": "images", "onnx": "onnx", "onnxruntime": "onnx",
}  # fmt: skip


def installed_version() -> str:
    """The version that is installed, as pyproject.toml has it."""
    from importlib.metadata import version  # slow to import, and not needed by --help

    return version(DISTRIBUTION)


def install(*extras: str) -> str:
    """The command that installs these extras."""
    return f"pip install '{DISTRIBUTION}[{','.join(extras)}]'"


def installed_part(parts: Parts[T], name: str) -> T:
    """The part of that name. Raises InvalidInput as `parts` does, and, with the command, where an extra is missing."""
    try:
        return parts[name]
    except ModuleNotFoundError as missing:
        extra = _EXTRAS.get((missing.name or "").partition(".")[0])
        if extra is None:
            raise
        raise InvalidInput(
            f"{parts.what} {name!r} needs {missing.name}, which is not installed: {install(extra)}"
        ) from missing
