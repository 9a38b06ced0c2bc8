"""Files in the place of a ledger, whose first bytes somebody else wrote."""

import tempfile
from functools import cache
from pathlib import Path

from protocols.ledger.ledger import Ledger

# The header of an SQLite file.
HEADER = 100


@cache
def empty_ledger() -> bytes:
    """The file of a ledger of nothing."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.sqlite"
        Ledger(path).close()
        return path.read_bytes()


def read_ledger(data: bytes) -> None:
    """Opens a ledger whose file begins with `data`, and reads its log."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.sqlite"
        path.write_bytes(data + empty_ledger()[len(data) :])
        with Ledger(path) as ledger:
            ledger.bind(study=bytes(32), run=b"")
            list(ledger.log.entries())
