"""What small files hold: arrays, a table, a picture, and the texts that a hospital or an operator writes."""

import base64
import io
import json
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
from PIL import Image

from party.keeping import Archive, write_archive

MAPPING = b"""
delimiter = ";"
decimal = ","
missing = ["-"]
[columns]
age = "Alter"
[values.sex]
m = "male"
[unusable]
age = "leave out"
"""
NODE = b"""
[data]
name = "ward"
path = "records.csv"
loader = "csv"
[teachers]
kind = "logistic_regression"
seed = 1
[lifetime.record]
epsilon = 3.0
delta = 1e-6
[node]
settle = true
"""
INVITATION = (
    b'consortium = "test"\nparty = "p0"\ncoordinator = "centre"\naddress = "127.0.0.1:1"\n'
    b'enrol_address = "127.0.0.1:2"\ntoken = "' + base64.urlsafe_b64encode(bytes(32)) + b'"\nauthority = "PEM"\n'
)
MANIFEST = json.dumps(
    {"study": "ab", "seat": "p0", "records": "cd", "kind": "onnx", "teachers": 1, "features": "", "silent": []}
).encode()
SIGNED = json.dumps(
    {"format": "conclave release 1", "study": "ab", "created": "2026-01-01T00:00:00+00:00", "files": {}},
    indent=1, sort_keys=True,
).encode() + b"\n"  # fmt: skip
SCHEMA = b"""
name = "own"
label = "label"
classes = ["no", "yes"]
[[feature]]
column = "a"
kind = "numeric"
"""


def home_archive(folder: Path) -> bytes:
    """The bytes of a small archive of a home without a passphrase, which is written into the folder."""
    parts = {"node.toml": NODE, "policy.sqlite": b"SQLite format 3\0"}
    path = folder / "home archive"
    write_archive(path, Archive("backup", "2026-01-01", "p0", "test", parts), passphrase=None)
    return path.read_bytes()


def npy(array: np.ndarray) -> bytes:
    """The bytes of an .npy file."""
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def npz(**arrays: np.ndarray) -> bytes:
    """The bytes of an .npz file."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


def parquet() -> bytes:
    buffer = io.BytesIO()
    table = pyarrow.table({"a": [1.0, 2.0], "b": [3, 4], "label": ["no", "yes"]})
    pyarrow.parquet.write_table(table, buffer)
    return buffer.getvalue()


def png() -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.arange(16, dtype=np.uint8).reshape(4, 4)).save(buffer, "PNG")
    return buffer.getvalue()
