"""guardian.sig: what a guardian signed of each batch that a release holds.

One line per batch: its number, and the signature in hexadecimal digits. Where records vote, it is of the noisy sums;
elsewhere of the labels.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from protocols.errors import DataCorrupt, DataUnavailable
from protocols.ranges import check
from protocols.reading import read_text

SIGNATURES_FILE = "guardian.sig"
_BYTES = 2**28
_LINE = re.compile("(-?[0-9]{1,20}) ([0-9a-f]{128})")


def signatures_text(signatures: Mapping[int, bytes]) -> str:
    """The content of guardian.sig. signatures: 64 bytes for each number of a batch."""
    return "".join(f"{number} {signatures[number].hex()}\n" for number in sorted(signatures))


def read_signatures(folder: Path) -> dict[int, bytes]:
    """The signature of each batch of a release. Raises DataCorrupt."""
    try:
        text = read_text(folder / SIGNATURES_FILE, most=_BYTES)
    except DataUnavailable as error:
        raise DataCorrupt(f"{SIGNATURES_FILE} cannot be read: {str(error)[:200]}") from None
    found = {}
    for position, line in enumerate(text.splitlines()):
        parts = _LINE.fullmatch(line)
        if parts is None:
            raise DataCorrupt(
                f"{SIGNATURES_FILE}: line {position} has {len(line)} characters; allowed: the number of a batch, a "
                "space, and 128 hexadecimal digits"
            )
        found[check(SIGNATURES_FILE, "batch", int(parts[1]))] = bytes.fromhex(parts[2])
    if signatures_text(found) != text:
        raise DataCorrupt(f"{SIGNATURES_FILE} differs from the form in which a release is written")
    return found
