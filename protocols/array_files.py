"""NumPy's .npy and .npz files from untrusted sources: only numbers and strings, and no more memory than the file
justifies.

A header is text chosen by the sender. So it is matched against a grammar, not evaluated as Python, and the size that it
declares is compared with the bytes present before anything is allocated.
"""

from __future__ import annotations

import io
import lzma
import math
import re
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from jaxtyping import Shaped
from numpy import ndarray

from protocols.errors import DataCorrupt
from protocols.reading import open_file

FILE_BYTES: Final = 16 * 2**30
_MAGIC: Final = b"\x93NUMPY"
_HEADER_BYTES: Final = 10_000
_RANK: Final = 8
_TEXT: Final = 4096
_MEMBERS: Final = 4096
# Zeros compress a thousandfold: the unpacked size is checked before unpacking.
_RATIO: Final = 100
_ALWAYS: Final = 2**24
_ENTRY: Final = (
    r"\s*'(?:(?P<{0}descr>descr)'\s*:\s*'(?P<{0}type>[<>|=]?[biufcUS]\d{{1,7}})'"
    r"|(?P<{0}order>fortran_order)'\s*:\s*(?P<{0}fortran>True|False)"
    r"|(?P<{0}shape>shape)'\s*:\s*\((?P<{0}sizes>[\s\dL,]*)\))\s*"
)
_HEADER: Final = re.compile(r"\{" + ",".join(_ENTRY.format(letter) for letter in "abc") + r",?\s*\}\s*", re.ASCII)
_SIZES: Final = re.compile(r"(?:\s*\d{1,18}L?\s*(?:,|$))*\s*", re.ASCII)
# What zipfile and its decompressors raise for a file that is not an archive, is encrypted, or of an unknown kind.
_NOT_ZIP: Final = (
    zipfile.BadZipFile,
    zipfile.LargeZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    NotImplementedError,
    RuntimeError,
    EOFError,
    OSError,
    ValueError,
    OverflowError,
    IndexError,
)


def read_array(path: Path, *, mapped: bool = False) -> Shaped[ndarray, "..."]:
    """The array of an .npy file of at most FILE_BYTES; mapped: from disk, read-only.

    Raises DataUnavailable if it is absent, DataCorrupt.
    """
    with open_file(path, most=FILE_BYTES) as file:
        size = file.seek(0, io.SEEK_END)
        file.seek(0)
        if not mapped:
            return _array(file, size, str(path))
        shape, fortran, dtype = _header(file, size, str(path))
        if not math.prod(shape):
            return np.empty(shape, dtype)
        order = "F" if fortran else "C"
        try:
            return np.memmap(file, dtype, "r", file.tell(), shape, order)  # type: ignore[call-overload]  # "F" or "C"
        except (OSError, ValueError) as error:
            raise DataCorrupt(f"{path} cannot be mapped: {str(error)[:200]}; allowed: an .npy file") from None


def parse_array(content: bytes, *, where: str) -> Shaped[ndarray, "..."]:
    """The array in the bytes of an .npy file; where: what they are, for the message. Raises DataCorrupt."""
    return _array(io.BytesIO(content), len(content), where)


def array_bytes(array: Shaped[ndarray, "..."]) -> bytes:
    """The bytes of an .npy file that parse_array reads."""
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def array_parts(array: Shaped[ndarray, "..."]) -> tuple[bytes, memoryview]:
    """The same bytes in two parts, of which the second is the array's own memory (copied if it is not contiguous)."""
    whole = np.asarray(array, order="C")
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, np.lib.format.header_data_from_array_1_0(whole))
    return header.getvalue(), whole.reshape(-1).view(np.uint8).data


def read_arrays(
    path: Path, names: Sequence[str] | None = None, *, most: int = FILE_BYTES
) -> dict[str, Shaped[ndarray, "..."]]:
    """The named arrays of an .npz file, or all of them; nothing else in it is unpacked.

    most: the largest size in bytes of the file and of the unpacked arrays, which may also be at most a hundred times
    the file. Raises DataUnavailable if it is absent, DataCorrupt.
    """
    with open_file(path, most=most) as file:
        size = file.seek(0, io.SEEK_END)
        file.seek(0)
        return _arrays(file, size, names, str(path), most)


def parse_arrays(content: bytes, *, where: str, most: int = FILE_BYTES) -> dict[str, Shaped[ndarray, "..."]]:
    """The arrays in the bytes of an .npz file, as read_arrays; where: what they are. Raises DataCorrupt."""
    return _arrays(io.BytesIO(content), len(content), None, where, most)


def typed_array(
    arrays: Mapping[str, Shaped[ndarray, "..."]], name: str, kind: tuple[str, int], where: str
) -> Shaped[ndarray, "..."]:
    """The array of this name. kind: its dtype and rank. Raises DataCorrupt where it is absent or another."""
    found = arrays.get(name)
    if found is None or found.dtype != np.dtype(kind[0]) or found.ndim != kind[1]:
        said = "absent" if found is None else f"{found.dtype} of rank {found.ndim}"
        raise DataCorrupt(f"{where}: {name} is {said}; allowed: {kind[0]} of rank {kind[1]}")
    return found


def array_names(path: Path) -> list[str]:
    """The names of the arrays in an .npz file. Raises as read_arrays."""
    with open_file(path, most=FILE_BYTES) as file, _archive(file, str(path)) as archive:
        return list(_members(archive, str(path)))


def _arrays(
    file: io.BufferedIOBase, size: int, names: Sequence[str] | None, where: str, most: int
) -> dict[str, ndarray]:
    with _archive(file, where) as archive:
        members = _members(archive, where)
        wanted = list(members) if names is None else list(names)
        missing = [name for name in wanted if name not in members]
        if missing:
            held = ", ".join(members)[:300]
            raise DataCorrupt(f"{where} has no array {missing[0]!r}; allowed: one; it has {held}")
        unpacked, allowed = sum(members[name].file_size for name in wanted), min(most, max(_ALWAYS, _RATIO * size))
        if unpacked > allowed:
            raise _bomb(where, size, unpacked, allowed)
        found = {}
        for name in wanted:
            what = f"{where}: array {name!r}"
            try:
                with archive.open(members[name]) as content:
                    found[name] = _array(content, members[name].file_size, what)  # type: ignore[arg-type]  # a ZipExtFile, which is one
                    content.read(1)  # the checksum is compared at the end
            except _NOT_ZIP as error:
                raise DataCorrupt(f"{what} cannot be read: {str(error)[:200]}; allowed: npz without pickles") from None
        return found


def check_archive(path: Path, *, most: int = FILE_BYTES) -> None:
    """Raises as read_arrays does, for an archive of arrays and other files that another library will read as a
    whole.
    """
    with open_file(path, most=FILE_BYTES) as file, _archive(file, str(path)) as archive:
        members = _members(archive, str(path))
        size, unpacked = path.stat().st_size, sum(each.file_size for each in members.values())
        if unpacked > min(most, max(_ALWAYS, _RATIO * size)):
            raise _bomb(str(path), size, unpacked, min(most, max(_ALWAYS, _RATIO * size)))
        for each in archive.infolist():
            if each.filename.endswith(".npy"):
                try:
                    with archive.open(each) as content:
                        wanted = _declared(content)  # type: ignore[arg-type]  # the same
                except (*_NOT_ZIP, TypeError, SyntaxError, MemoryError, tokenize.TokenError) as error:
                    raise DataCorrupt(f"{path} cannot be read: {str(error)[:200]}; allowed: a whole archive") from None
                if wanted > each.file_size:
                    raise DataCorrupt(
                        f"{path}: an array of {wanted} bytes; allowed: the {each.file_size} that are there"
                    )


def _declared(file: io.BufferedIOBase) -> int:
    """The bytes that the header of an .npy file declares, which may be of records with fields."""
    wide = np.lib.format.read_magic(file) != (1, 0)  # type: ignore[arg-type]  # NumPy's stub wants a file of Any
    read = np.lib.format.read_array_header_2_0 if wide else np.lib.format.read_array_header_1_0
    shape, _, dtype = read(file, max_header_size=_HEADER_BYTES)  # type: ignore[arg-type]
    return math.prod(shape) * dtype.itemsize


def check_unpacked(size: int, unpacked: int, *, where: str) -> None:
    """Raises DataCorrupt where a file of `size` bytes says that it unpacks to more than an archive of arrays may."""
    allowed = min(FILE_BYTES, max(_ALWAYS, _RATIO * size))
    if unpacked > allowed:
        raise _bomb(where, size, unpacked, allowed)


def _bomb(where: str, size: int, unpacked: int, allowed: int) -> DataCorrupt:
    return DataCorrupt(
        f"{where} unpacks {size} bytes to {unpacked}; allowed: a hundredfold, at most {allowed}; save it uncompressed"
    )


def _archive(file: io.BufferedIOBase, where: str) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(file)
    except _NOT_ZIP as error:
        raise DataCorrupt(f"{where} cannot be read: {str(error)[:200]}; allowed: npz without pickles") from None


def _members(archive: zipfile.ZipFile, where: str) -> dict[str, zipfile.ZipInfo]:
    """The arrays by name. Raises DataCorrupt for anything that no writer of npz files produces; nothing is unpacked."""
    listed = archive.infolist()
    if len(listed) > _MEMBERS:
        raise DataCorrupt(f"{where} holds {len(listed)} files; allowed: at most {_MEMBERS}")
    members = {each.filename.removesuffix(".npy"): each for each in listed}
    if len(members) != len(listed):
        raise DataCorrupt(f"{where} holds two arrays of the same name; allowed: each name once")
    for each in listed:
        if each.flag_bits & 1 or each.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise DataCorrupt(
                f"{where}: {each.filename[:80]!r} is encrypted or compressed in a way that npz files are not"
            )
    return members


def _header(file: io.BufferedIOBase, size: int, where: str) -> tuple[tuple[int, ...], bool, np.dtype[np.generic]]:
    """Shape, whether columns come first, and element type, once they fit the `size` bytes of the file."""
    start = file.read(8)
    wide = start[6:8] == b"\x02\x00"
    if start[:6] != _MAGIC or start[6:8] not in (b"\x01\x00", b"\x02\x00"):
        raise DataCorrupt(f"{where} is not an array of numbers; allowed: .npy of version 1.0 or 2.0")
    length = int.from_bytes(file.read(4 if wide else 2), "little")
    if length > _HEADER_BYTES:
        raise DataCorrupt(f"{where} has a header of {length} bytes; allowed: at most {_HEADER_BYTES}")
    text = file.read(length).decode("latin1")
    match = _HEADER.fullmatch(text)
    found: dict[str, str] = {}
    for key, value in (match.groupdict() if match else {}).items():
        if value is not None:
            found[key[1:]] = value
    sizes = found.get("sizes", "x")
    if not {"descr", "order", "shape"} <= found.keys() or not _SIZES.fullmatch(sizes):
        raise DataCorrupt(f"{where} declares {text[:80].strip()!r}; allowed: numbers or strings, and their shape")
    shape = tuple(int(each.strip().rstrip("L")) for each in sizes.split(",") if each.strip())
    try:
        dtype: np.dtype[np.generic] = np.dtype(found["type"])
    except (TypeError, ValueError):
        raise DataCorrupt(f"{where} has elements {found['type']!r}; allowed: NumPy's numbers and strings") from None
    if not 0 < dtype.itemsize <= 4 * _TEXT or len(shape) > _RANK:
        raise DataCorrupt(f"{where} is {dtype} of rank {len(shape)}; allowed: up to {_TEXT} characters, rank {_RANK}")
    left, wanted = size - file.tell(), math.prod(shape) * dtype.itemsize
    if wanted != left or any(each > max(left, 2**31) for each in shape):
        raise DataCorrupt(
            f"{where} declares shape {shape} of {dtype}, {wanted} bytes; allowed: the {left} bytes present"
        )
    return shape, found["fortran"] == "True", dtype


def _array(file: io.BufferedIOBase, size: int, where: str) -> ndarray:
    shape, fortran, dtype = _header(file, size, where)
    count = math.prod(shape)
    data = file.read(count * dtype.itemsize)
    if len(data) != count * dtype.itemsize:
        raise DataCorrupt(f"{where} ends early, after {len(data)} bytes; allowed: {count} values of {dtype}")
    try:
        return np.frombuffer(data, dtype, count).reshape(shape, order="F" if fortran else "C")
    except ValueError as error:  # a shape with a zero and other sizes that no array can have
        raise DataCorrupt(
            f"{where} has shape {shape}: {str(error)[:100]}; allowed: sizes that memory can address"
        ) from None
