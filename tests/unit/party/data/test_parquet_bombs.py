"""Parquet files of a few hundred bytes that claim gigabytes."""

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from protocols.errors import DataCorrupt
from runtime.parquet_tables import read_parquet
from tests.harness.refusals import refuses

LONG = "x" * 20_000


def write(path, column):
    pyarrow.parquet.write_table(pyarrow.table({"a": column}), path, compression="zstd")
    return path.stat().st_size


@pytest.mark.parametrize("kind", ["as a dictionary", "as texts", "as large texts"])
def test_a_text_that_all_rows_repeat_is_in_memory_once(kind, tmp_path) -> None:
    """Up to 20 GB, if each row had its own."""
    indices = pyarrow.array(np.zeros(1_000_000, np.int32))
    repeated = pyarrow.DictionaryArray.from_arrays(indices, [LONG])
    if kind != "as a dictionary":  # which pyarrow has to hold as it is when it writes
        repeated = repeated.slice(0, 5_000).cast(pyarrow.string() if kind == "as texts" else pyarrow.large_string())
    file = tmp_path / "a.parquet"
    assert write(file, repeated) < 5000
    texts = read_parquet(file, ["a"], missing="")["a"]
    assert set(texts) == {LONG}
    assert len({id(text) for text in texts}) == 1


def test_a_text_that_is_itself_compressed_a_thousandfold_is_refused_before_it_is_unpacked(tmp_path) -> None:
    size = write(tmp_path / "a.parquet", pyarrow.array(["x" * 2**25]))
    with refuses(DataCorrupt, size, "a hundredfold"):
        read_parquet(tmp_path / "a.parquet", ["a"], missing="")


@pytest.mark.parametrize(
    "column",
    [
        pyarrow.array([[[1]]] * 3),
        pyarrow.array([{"b": "c"}] * 3),
        pyarrow.array([[("k", "v")]] * 3, pyarrow.map_(pyarrow.string(), pyarrow.string())),
        pyarrow.array([b"\xff"] * 3),
    ],
    ids=["lists of lists", "structures", "maps", "bytes that are no text"],
)
def test_what_is_no_column_of_texts_or_numbers_is_refused(column, tmp_path) -> None:
    write(tmp_path / "a.parquet", column)
    with pytest.raises(DataCorrupt, match="cannot be read"):
        read_parquet(tmp_path / "a.parquet", ["a"], missing="")
