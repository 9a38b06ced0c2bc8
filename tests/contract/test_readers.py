"""Whatever lies where a file is expected: out comes a value or an error of the project, in bounded time and memory.

Held over the table of readers.py; the calls that go round its readers are found in test_reader_calls.py.
"""

import contextlib
import functools
import io
import os
import signal
import tracemalloc
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest

from protocols.errors import ConclaveError
from tests.harness.failing_disk import scratch
from tests.harness.file_contents import npy, npz
from tests.harness.readers import INPUTS, readers

# A reader that hangs is ended; a slow machine is not told from one.
_GUARD_S = 300
# Of a file of a few hundred KiB at most.
_MEMORY = 2**26
_MUTATIONS = 12


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return readers(tmp_path_factory.mktemp("readers"))


@pytest.fixture
def tmp_path():
    """In memory: thousands of files are written, and none need reach a platter."""
    with scratch() as folder:
        yield Path(folder)


@pytest.fixture(autouse=True)
def guard():
    def ended(*_):
        raise AssertionError(f"a reader did not return within {_GUARD_S} s")

    before = signal.signal(signal.SIGALRM, ended)
    signal.alarm(_GUARD_S)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def attempt(reader, path):
    """Reads; an error that is not of the project fails the test."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what libraries think of a hostile file
        with contextlib.suppress(ConclaveError):
            reader.read(path)


def at(tmp_path, reader, content=None):
    path = tmp_path / reader.name
    path.parent.mkdir(parents=True, exist_ok=True)
    if content is not None:
        path.write_bytes(content)
    return path


def names():
    return [
        "npy", "npy mapped", "npz", "npz names", "archive", "archive of a home", "bytes", "text", "toml", "json",
        "node.toml", "mapping.toml", "invitation", "study", "coordinator.toml", "guardian.toml", "denied", "key",
        "certificate", "private key", "request", "records csv", "records csv.gz", "records npz", "records parquet",
        "records jsonl", "records images", "queries npy", "queries npz", "queries csv",
        "pool of a node", "pool npy", "pool npz", "pool csv", "pool stored", "private model", "manifest of teachers",
        "onnx", "bounds", "statement", "release json", "release labels", "release manifest", "evidence", "student",
        "own schema", "own csv", "budgets", "config", "summary", "votes npy",
        "network of a student", "data npz", "data lines", "logistic_regression", "random_forest", "small_cnn",
        "queries of records", "queries of a study", "votes of records", "guardian's signatures", "sums", "soft labels",
    ]  # fmt: skip


# What these take is made by a whole release or run, and read in the tests of those.
OF_A_RELEASE = {"statement", "evidence", "student", "summary"}


def test_the_table_is_all_there_is(table):
    assert sorted(names()) == sorted(table)
    assert {name for name in names() if not table[name].content} == OF_A_RELEASE


@pytest.mark.parametrize("name", sorted(set(names()) - OF_A_RELEASE))
def test_a_file_that_is_whole_is_read(table, tmp_path, name):
    reader = table[name]
    reader.read(at(tmp_path, reader, reader.content))


@pytest.mark.parametrize("name", names())
def test_what_is_random_cut_short_or_flipped_is_read_or_refused_with_an_error_of_the_project(table, tmp_path, name):
    reader, rng = table[name], np.random.default_rng(7)
    whole = np.frombuffer(reader.content, np.uint8)
    for _ in range(_MUTATIONS):
        changed = whole.copy()
        for place in rng.integers(0, max(1, len(whole)), size=min(len(whole), int(rng.integers(1, 8)))):
            changed[place] ^= 1 << rng.integers(8)
        attempt(reader, at(tmp_path, reader, changed.tobytes()))
        attempt(reader, at(tmp_path, reader, reader.content[: rng.integers(0, len(whole) + 1)]))
        attempt(reader, at(tmp_path, reader, rng.bytes(int(rng.integers(0, 200)))))


def header(descr, shape, version=(1, 0)):
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY" + bytes(version) + len(text).to_bytes(2 if version[0] == 1 else 4, "little") + text


def arrays():
    """Hostile .npy files."""
    yield header("'<f4'", "(4611686018427387904,)")
    yield header("'<f4'", "(4611686018427387904, 4611686018427387904)") + bytes(64)
    yield header("'<f4'", "(2, 274877906944)") + bytes(64)
    yield header("'<f4'", "(0, 4611686018427387904, 4611686018427387904)")
    yield header("'<f4'", "(-1,)")
    yield header("'<f4'", "(1e9,)")
    yield header("'<f4'", "(True,)") + bytes(4)
    yield header("'|O'", "(1,)") + b"\x80\x04N."
    yield header("[('a', '|O'), ('b', '<f8')]", "(1,)") + bytes(16)
    yield header("'<U99999999'", "(1,)")
    yield header("'<f4'", "(" * 3000)
    yield header("'" + "<" * 5000 + "f4'", "(1,)")
    yield header("'<f4'", "(1,)" + " + (1,)" * 1000)
    yield header("'<ü4'", "(1,)")
    yield header("'\\q'", "(1,)")
    yield header("'<f4'", "(1,)", version=(3, 0)) + bytes(4)
    yield header("'<f4'", "(1,)", version=(9, 9)) + bytes(4)
    yield b"\x93NUMPY\x02\x00\xff\xff\xff\xff{"
    yield b"\x93NUMPY\x01\x00\xff\xff" + b"{" * 65535
    yield npy(INPUTS) + b"more"
    yield b"\x80\x04N."


def archives():
    """Hostile .npz files."""
    for content in arrays():
        for member in ("inputs", "weights", "1-dense", "pool", "bit"):
            yield zipped({f"{member}.npy": content})
    zeros = np.zeros(2**22, np.float64)
    yield npz(inputs=zeros, labels=zeros, pool=zeros, input_shape=zeros)
    for kind in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        yield zipped({"inputs.npy": npy(INPUTS), "input_shape.npy": npy(np.array([2]))}, kind)
    plain = zipped({"inputs.npy": npy(INPUTS), "input_shape.npy": npy(np.array([2]))})
    for at_local, at_central, value in ((6, 8, 1), (8, 10, 99), (4, 6, 255)):  # encrypted, unknown packing, version
        yield edited(plain, at_local, at_central, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zipfile warns of what is made here
        doubled = io.BytesIO()
        with zipfile.ZipFile(doubled, "w") as archive:
            for value in (1.0, 2.0):
                archive.writestr("inputs.npy", npy(np.full((2, 2), value)))
        yield doubled.getvalue()
    packed = bytearray(npz(inputs=INPUTS, labels=np.arange(6), input_shape=np.array([2])))
    packed[60:70] = b"\xff" * 10  # within the compressed bytes
    yield bytes(packed)


def zipped(members, kind=zipfile.ZIP_DEFLATED):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", kind) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def edited(content, at_local, at_central, value):
    """The same archive with a byte of each entry's two headers set."""
    data = bytearray(content)
    for mark, place in ((b"PK\x03\x04", at_local), (b"PK\x01\x02", at_central)):
        start = data.find(mark)
        while start >= 0:
            data[start + place] = value
            start = data.find(mark, start + 4)
    return bytes(data)


def tomls():
    """Hostile TOML, at the top and where settings have a number."""
    for value in (
        b"1e400", b"-1e400", b"nan", b"inf", b"1" + b"0" * 400, b"-9223372036854775809", b"9223372036854775807",
        b"0x" + b"f" * 5000, b"1" + b"0" * 5000, b"true", b"[1, 'a', {}]", b"9999-99-99", b"'text'",
    ):  # fmt: skip
        for key in (b"idle_s", b"epsilon", b"seed", b"certificate_days", b"metrics_port", b"parties"):
            yield key + b" = " + value + b"\n"
        for section, key in (
            (b"[teachers]\n", b"seed"), (b"[teachers]\n", b"idle_s"), (b"[lifetime.record]\n", b"epsilon"),
            (b"[[party]]\n", b"epsilon"), (b"[[feature]]\n", b"centre"), (b"[node]\n", b"metrics_port"),
        ):  # fmt: skip
            yield section + key + b" = " + value + b"\n"
    for value in (
        b"[" * 10_000, b"[" * 10_000 + b"]" * 10_000, b"{a=" * 10_000, b"[" * 90 + b"]" * 90, b"'" + b"x" * 2**20,
        b'"\xff"', b'"\\ud800"', b"{" + b"a." * 100_000 + b"a = 1}",
    ):  # fmt: skip
        yield b"a = " + value + b"\n"
    yield b"a." * 400_000 + b"a = 1\n"
    yield b"[" + b"a." * 400_000 + b"a]\n"
    yield b'"a".' * 100_000 + b"a = 1\n"
    yield b"a . " * 100_000 + b"a = 1\n"
    yield b"\xff\xfe\x00"


def jsons():
    """Hostile JSON."""
    for value in (
        b"[" * 90 + b"]" * 90, b"NaN", b"-Infinity", b"1e400", b"1" + b"0" * 400, b"1" + b"0" * 5000, b'"\\ud800"',
        b'"\xff"', b"null", b"[]", b"0", b'{"\\udfff": 1}', b"9223372036854775808", b"[" * 100_000,
    ):  # fmt: skip
        yield value
        for key in (b"created", b"files", b"teachers", b"study", b"seed", b"run", b"batches", b"caps"):
            yield b'{"' + key + b'": ' + value + b"}"
    yield b"[" * 100_000 + b"]" * 100_000
    yield b'{"a":' * 100_000


@functools.cache
def made(hostile):
    """What one of the above yields, made once: packing it takes longer than what reads it."""
    return tuple(hostile())


@pytest.mark.parametrize("name", names())
def test_a_hostile_file_costs_neither_time_nor_memory(table, tmp_path, name):
    reader = table[name]
    whole = reader.content
    hostile = {b"\x93N": arrays, b"PK": archives}.get(whole[:2]) or (jsons if reader.name.endswith("json") else None)
    if reader.name.endswith("toml"):
        hostile = tomls
    given = [*(made(hostile) if hostile else ()), *texts()]
    if hostile is tomls:
        given += [whole + each for each in given[:100]]
    tracemalloc.start()
    try:
        for content in given:
            tracemalloc.reset_peak()
            attempt(reader, at(tmp_path, reader, content))
            assert tracemalloc.get_traced_memory()[1] < _MEMORY, content[:80]
    finally:
        tracemalloc.stop()


def texts():
    """What is hostile everywhere."""
    yield b""
    yield b"\x00" * 1000
    yield b"\xff" * 1000
    yield b'"' * 200_000
    yield b"," * 200_000
    yield b"a,b,label\n" + b"9" * 200_000
    yield b"a,b,label\n1e999,nan,no\n\x00,,yes\n"
    yield b"query,label,status,reinforced\n" + b"1" * 30 + b",1,answered,\n"
    yield b"party,epsilon,delta\np0," + b"9" * 5000 + b",1e-5\n"
    yield b"party,epsilon,delta\np0\n"


@pytest.mark.parametrize("name", names())
def test_what_is_no_file_of_ours_is_refused_and_nothing_waits_for_it(table, tmp_path, name):
    reader = table[name]
    for number, make in enumerate(
        (Path.mkdir, os.mkfifo, lambda path: path.symlink_to("/dev/zero"), lambda path: None)
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        path = at(folder, reader)
        make(path)
        try:
            reader.read(path)
        except ConclaveError:
            continue
        # Without a list nothing is denied; without sums nothing was released; without a mapping nothing is mapped.
        assert (name, number) in {("denied", 3), ("sums", 3), ("mapping.toml", 3)}


@pytest.mark.parametrize("name", names())
def test_a_file_that_may_not_be_read_is_refused(table, tmp_path, name):
    reader = table[name]
    path = at(tmp_path, reader, reader.content)
    path.chmod(0)
    if os.access(path, os.R_OK):  # by root with all of its capabilities
        os.seteuid(65534)
    try:
        with pytest.raises(ConclaveError):
            reader.read(path)
    finally:
        os.seteuid(os.getuid())
        path.chmod(0o600)
