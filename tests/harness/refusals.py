"""What a refusal is held to: type, code, and the names and figures that its message gives; never its sentence."""

import contextlib
import re
from collections.abc import Iterator

import pytest

from protocols.errors import Refused


def says(message: str, given: object) -> bool:
    """Whether the message gives that name or figure, not as a part of a longer one (8 is not in 18, nor in 1.8)."""
    text = str(given)
    before = {True: r"(?<![\w.])", False: r"(?<!\w)"}[text[:1].isdigit()] if text[:1].isalnum() else ""
    after = r"(?!\w|\.\d)" if text[-1:].isalnum() else ""
    return re.search(before + re.escape(text) + after, message) is not None


@contextlib.contextmanager
def refuses(error: type[BaseException], *given: object) -> Iterator[pytest.ExceptionInfo[BaseException]]:
    """Asserts that the block raises the error, and that its message gives each of those names and figures."""
    with pytest.raises(error) as caught:
        yield caught
    missing = [each for each in given if not says(str(caught.value), each)]
    assert not missing, f"{missing} not in: {caught.value}"


@contextlib.contextmanager
def refused_for(code: str, *given: object) -> Iterator[pytest.ExceptionInfo[Refused]]:
    """Asserts that the block is refused with that code, and that the message gives each of those names and figures."""
    with refuses(Refused, *given) as caught:
        yield caught
    assert caught.value.code == code, caught.value
