"""The meanings of codes: by section of docs/reference/errors.md, and of one code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from protocols.refusals.code import Code
from protocols.refusals.connections import CONNECTIONS
from protocols.refusals.meaning import Meaning
from protocols.refusals.requests import REQUESTS
from protocols.refusals.studies import STUDIES

SECTIONS: Final[Mapping[str, Mapping[Code, Meaning]]] = CONNECTIONS | REQUESTS | STUDIES
_MEANINGS: Final = {code: meaning for section in SECTIONS.values() for code, meaning in section.items()}


def meaning_of(code: str) -> Meaning:
    """The meaning of a code; for an unknown code of other software, that of any refusal."""
    return _MEANINGS[Code(code) if code in _MEANINGS else Code.REFUSED]
