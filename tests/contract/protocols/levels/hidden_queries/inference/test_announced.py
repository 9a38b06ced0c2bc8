"""Architectures as text: what is written is read again; all else is a MalformedMessage, never another exception."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.errors import InvalidInput, MalformedMessage
from protocols.levels.hidden_queries.dealing import announced, read_announced
from protocols.levels.hidden_queries.inference.architecture import Architecture, DenseShape, Precision, ReLUShape
from protocols.levels.hidden_queries.inference.computing import deal
from protocols.levels.hidden_queries.inference.model import quantise
from tests.harness.inference_parties import cnn, linear_model, mlp
from tests.harness.refusals import refuses
from tests.harness.seeded import seeded_source

CNN = quantise(cnn(np.random.default_rng(1)), Precision(input_bound=1.5)).architecture


@pytest.mark.parametrize("build", [linear_model, mlp, cnn])
def test_an_architecture_is_read_as_it_was_written(build) -> None:
    architecture = quantise(build(np.random.default_rng(2)), Precision()).architecture
    assert read_announced(announced(architecture)) == architecture
    assert announced(read_announced(announced(architecture))) == announced(architecture)


def paths(content, path=()):
    yield path
    children = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for name, child in children:
        yield from paths(child, (*path, name))


def replaced(path, value):
    content = json.loads(announced(CNN))
    if not path:
        return value
    place = content
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    return content


@pytest.mark.parametrize("path", list(paths(json.loads(announced(CNN)))), ids=str)
def test_every_field_with_a_wrong_value_is_refused(path) -> None:
    for value in (None, "x", -1, [], {}, True, 1e300, 10**40, [1, 2, 3], {"kind": "dense"}):
        with pytest.raises(MalformedMessage):
            read_announced(json.dumps(replaced(path, value)))


@given(
    st.text(max_size=60) | st.recursive(st.none() | st.integers() | st.text(), st.lists, max_leaves=9).map(json.dumps)
)
@settings(max_examples=25)
def test_any_text_is_an_architecture_or_malformed(text) -> None:
    with pytest.raises(MalformedMessage):
        read_announced(text)


def test_long_and_deep_texts_are_refused() -> None:
    for text in ("[" * 60_000, " " * 70_000, "NaN", '{"features":NaN,"layers":[],"precision":{}}'):
        with pytest.raises(MalformedMessage):
            read_announced(text)


def test_a_batch_that_would_take_too_much_memory_is_refused_before_it_is_dealt() -> None:
    wide = Architecture(4, (DenseShape(4, 2**18), ReLUShape(2**18, 12), DenseShape(2**18, 2)), Precision())
    with refuses(InvalidInput, 1000, "MiB", 250):
        deal(wide, 1000, source=seeded_source(1))
    with refuses(InvalidInput, "at most"):
        Architecture(2**13, (DenseShape(2**13, 2**13), DenseShape(2**13, 2)), Precision())
    with refuses(InvalidInput, 2, 30, 0, 29):
        Architecture(4, (DenseShape(4, 2), ReLUShape(2, 30)), Precision())
