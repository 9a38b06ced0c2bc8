"""No integer of a protobuf message is read that is outside its range, wherever it stands in the message."""

import re
from collections.abc import Iterator
from contextlib import suppress

import pytest

from protocols.errors import MalformedMessage
from tests.harness.outside_ranges import INTEGERS, SAMPLES, Elsewhere, elsewhere, is_inside, of_protobuf, values_around
from tests.harness.refusals import refuses


def places(message, path=()) -> Iterator[tuple[tuple, str, str]]:
    """The way to each integer in a message, and what it is."""
    for field, value in message.ListFields():
        elements_of = enumerate(value) if field.is_repeated else [(None, value)]
        for position, each in elements_of:
            step = (*path, (field.name, position))
            if field.message_type is not None:
                yield from places(each, step)
            elif field.cpp_type in INTEGERS:
                yield step, message.DESCRIPTOR.name, field.name


def changed(kind, data: bytes, path: tuple, value: int) -> bytes | None:
    """The message with one integer changed; None for a value that protobuf itself cannot carry there."""
    message = kind.FromString(data)
    inner = message
    for name, position in path[:-1]:
        inner = getattr(inner, name) if position is None else getattr(inner, name)[position]
    name, position = path[-1]
    try:
        if position is None:
            setattr(inner, name, value)
        else:
            getattr(inner, name)[position] = value
    except ValueError:
        return None
    return message.SerializeToString()


PLACES = [
    (kind, data, reader, path, where, field)
    for kind, data, reader in SAMPLES
    for path, where, field in places(kind.FromString(data))
]


def test_the_samples_hold_every_integer_of_the_wires_messages():
    assert {(where, field) for *_, where, field in PLACES} == of_protobuf()


@pytest.mark.parametrize(
    "place", PLACES, ids=lambda place: f"{place[0].DESCRIPTOR.name}:{'.'.join(name for name, _ in place[3])}"
)
def test_a_message_with_an_integer_outside_its_range_is_malformed_and_inside_it_is_read(place):
    kind, data, reader, path, where, field = place
    refused = 0
    for value in values_around(where, field):
        made = changed(kind, data, path, value)
        if made is None:
            continue
        if is_inside(where, field, value):
            with suppress(Elsewhere), elsewhere(re.compile(f"{field} is {value}")):
                reader(made)
        else:
            refused += 1
            with refuses(MalformedMessage, where, field, value):
                reader(made)
    assert refused or where == "Hello"
