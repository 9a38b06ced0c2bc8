"""The committed corpus is read again: every input is read, or refused with an error of the project."""

import warnings

import pytest

from protocols.errors import ConclaveError
from tests.contract.fuzz.corpus import FOLDER, corpus, file_of
from tests.harness.decoders import READERS


def test_every_reader_has_a_file_of_inputs_and_every_file_a_reader():
    assert {file_of(name) for name in READERS} == set(FOLDER.glob("*.txt"))


@pytest.mark.parametrize("name", list(READERS))
def test_every_input_of_the_corpus_is_read_or_refused_with_an_error_of_the_project(name):
    inputs = corpus(name)
    assert inputs
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of certificates with unusual numbers
        for number, data in enumerate(inputs):
            try:
                READERS[name](data)
            except ConclaveError:
                continue
            except Exception as error:
                raise AssertionError(f"input {number}, {data[:200]!r}: {type(error).__name__}: {error}") from error
