"""What a hospital's words may mean in a study: proposals that a person confirms, from spelling and a list of words."""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Sequence
from typing import Final

from protocols.study.terms import Feature

# Words for the same thing, in lower case: of the sexes, and of yes and no. A digit is never one of them.
_SAME: Final = (
    frozenset({"male", "m", "man", "männlich", "maennlich", "mann", "homme", "masculin", "h", "hombre", "uomo"}),
    frozenset({"female", "f", "w", "woman", "weiblich", "frau", "femme", "féminin", "feminin", "mujer", "donna"}),
    frozenset({"yes", "y", "true", "t", "ja", "j", "oui", "o", "si", "sí", "positive", "pos", "+", "present"}),
    frozenset({"no", "n", "false", "f", "nein", "non", "negative", "neg", "-", "absent"}),
)
_ABSENT: Final = frozenset(
    {"", "-", "--", ".", "..", "?", "*", "/", "n/a", "na", "nan", "null", "none", "nil", "#n/a", "#na", "missing",
     "unknown", "unbekannt", "k.a.", "k. a.", "keine angabe", "nr", "n.d.", "nd", "not done", "inconnu"}
)  # fmt: skip
_DATE: Final = re.compile(r"\d{4}-\d{1,2}-\d{1,2}([T ].*)?|\d{1,2}[./-]\d{1,2}[./-](\d{2}|\d{4})([T ].*)?", re.ASCII)
_WHOLE: Final = re.compile(r"([+-]?\d+)[.,]0+", re.ASCII)


def means_absent(text: str) -> bool:
    """Whether people write this where there is no value."""
    return text.strip().casefold() in _ABSENT


def is_date(text: str) -> bool:
    """Whether a text looks like a day."""
    return _DATE.fullmatch(text.strip()) is not None


def meant(text: str, names: Sequence[str]) -> str | None:
    """The one of the study's names that a text seems to mean; None where none or several fit.

    By spelling (case, blanks, 1.0 for 1), or as another word for the same.
    """
    wanted = _folded(text)
    for same in (
        [name for name in names if _folded(name) == wanted],
        [name for name in names if any({wanted, name.casefold().strip()} <= group for group in _SAME)],
    ):
        if same:
            return same[0] if len(same) == 1 else None
    return None


def column_meant(column: str, header: Sequence[str]) -> str | None:
    """The hospital's column with the study's name but for case, blanks and signs; None unless one has it."""
    same = [name for name in header if _bare(name) == _bare(column)]
    return same[0] if len(same) == 1 else None


def columns_alike(column: str, header: Sequence[str]) -> list[str]:
    """Up to three of the hospital's columns with similar names, for a person to choose from."""
    bare = {_bare(name): name for name in header}
    return [bare[each] for each in difflib.get_close_matches(_bare(column), bare, n=3, cutoff=0.5)]


def absent_means(feature: Feature, texts: Sequence[str]) -> list[str]:
    """Those of the texts that mean no value in this column. "-" beside "+" is a result, not a missing value."""
    if feature.kind == "categorical" and any(text.strip() == "+" for text in texts):
        return []
    return [text for text in texts if means_absent(text)]


def _folded(text: str) -> str:
    plain = text.strip().casefold()
    whole = _WHOLE.fullmatch(plain)
    return whole.group(1) if whole else plain


def _bare(name: str) -> str:
    decomposed = unicodedata.normalize("NFKD", name.casefold())
    return "".join(letter for letter in decomposed if letter.isalnum())
