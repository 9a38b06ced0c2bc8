"""Numbers as people's programs write them: a decimal comma, thousands apart; read by a stated form only."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from party.data.mapping import Form

# Blanks that spreadsheets put between thousands, and the apostrophes of Swiss ones.
_BLANKS: Final = str.maketrans({"\u00a0": " ", "\u202f": " ", "\u2009": " ", "\u2019": "'"})
_SIGN: Final = r"[+-]?"


def plain_number(text: str, form: Form) -> str:
    """The text of a number with a decimal point and no thousands signs; the text unchanged if it is no number in this
    form, so that whoever reads it next refuses it.

    "1,234" is a number in the form (",", "") and in (".", ","), and no number where nobody said which.
    """
    decimal, thousands = form.decimal or ".", form.thousands or ""
    stripped = text.strip().translate(_BLANKS)
    if not _pattern(decimal, thousands).fullmatch(stripped):
        # A point is no decimal sign where the form has another: "1.234" would be read as 1.234 silently.
        return f"{text.strip()} (not a number with {decimal!r})" if decimal != "." and "." in stripped else text
    return stripped.replace(thousands, "").replace(decimal, ".") if thousands else stripped.replace(decimal, ".")


def reads(text: str, form: Form) -> bool:
    """Whether a text is a number in this form."""
    stripped = text.strip().translate(_BLANKS)
    return _pattern(form.decimal or ".", form.thousands or "").fullmatch(stripped) is not None


@lru_cache
def _pattern(decimal: str, thousands: str) -> re.Pattern[str]:
    point, apart = re.escape(decimal), re.escape(thousands)
    whole = rf"(?:[0-9]+|[0-9]{{1,3}}(?:{apart}[0-9]{{3}})+)" if thousands else r"[0-9]+"
    return re.compile(rf"{_SIGN}(?:{whole}(?:{point}[0-9]*)?|{point}[0-9]+)(?:[eE]{_SIGN}[0-9]+)?", re.ASCII)
