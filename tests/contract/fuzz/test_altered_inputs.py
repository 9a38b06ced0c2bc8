"""Every decoder of what travels, on altered inputs: it returns, or raises an error of protocols.errors.

More of them: CONCLAVE_FUZZ_INPUTS=20000 pytest tests/contract/fuzz
"""

import os
import random
import re
import warnings

import pytest

from protocols.errors import ConclaveError
from tests.harness.decoders import READERS, SEEDS, WIRE

INPUTS = int(os.environ.get("CONCLAVE_FUZZ_INPUTS", "150"))
# Machine integers at their ends, as protobuf, raw buffers and text write them.
EDGES = [2**bits + beside for bits in (0, 7, 8, 15, 16, 31, 32, 40, 52, 53, 62, 63, 64, 70) for beside in (-1, 0, 1)]
WORDS = ["Infinity", "-Infinity", "NaN", "1e400", "-0", "null", "true", '""', "[]", "{}", "9" * 5000, "0" * 20 + "9"]
DIGITS = re.compile(rb"-?\d+")


def varint(value: int) -> bytes:
    """A whole number from 0 as protobuf writes it."""
    parts = []
    while value >= 128:
        parts.append(value % 128 + 128)
        value //= 128
    return bytes([*parts, value])


def altered(seed: bytes, draw: random.Random) -> bytes:
    """The input with one to three changes."""
    data = bytearray(seed)
    for _ in range(draw.randint(1, 3)):
        at = draw.randrange(len(data) + 1)
        match draw.randrange(7):
            case 0:
                data[at : at + 1] = bytes([draw.randrange(256)])
            case 1:
                del data[at : at + draw.randint(1, 9)]
            case 2:
                data[at:at] = draw.randbytes(draw.randint(1, 9))
            case 3:
                data[at : at + 8] = (draw.choice(EDGES) % 2**64).to_bytes(8, draw.choice(["little", "big"]))
            case 4:
                data[at : at + draw.randint(0, 2)] = varint(draw.choice(EDGES) % 2**64)
            case 5:
                data[at:] = data[: draw.randrange(len(data) + 1)]
            case _:
                numbers = list(DIGITS.finditer(data))
                if numbers:
                    number = draw.choice(numbers)
                    sign = draw.choice(["", "-"])
                    said = draw.choice([*WORDS, *(f"{sign}{edge}" for edge in EDGES)])
                    data[number.start() : number.end()] = said.encode()
    return bytes(data)


def test_every_reader_of_what_travels_has_an_input_to_start_from():
    assert set(WIRE) <= set(SEEDS) <= set(READERS)


@pytest.mark.parametrize("name", list(WIRE))
def test_altered_inputs_are_read_or_refused_with_an_error_of_the_project(name):
    draw = random.Random(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of the certificates that are made here
        for number in range(INPUTS):
            data = altered(draw.choice(SEEDS[name]), draw)
            try:
                WIRE[name](data)
            except ConclaveError:
                continue
            except Exception as error:
                raise AssertionError(f"input {number}, {data[:2000]!r}: {type(error).__name__}: {error}") from error
