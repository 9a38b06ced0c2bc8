"""What a damaged policy.sqlite shows: every reservation stands twice, in its table and in the log, and must agree.

SQLite keeps no checksums, so a disk that gives back other bits could make reservations smaller, and let studies pass a
lifetime cap.
"""

from __future__ import annotations

import sqlite3

from protocols.errors import DataCorrupt
from protocols.reading import parse_json

_TABLES = ("lifetime", "approval", "reservation")
_KEPT = """
SELECT hex(study), data_set, unit, nano, noise_distance FROM reservation JOIN approval USING (study, data_set)
"""
_LOGGED = 'SELECT entry FROM audit WHERE entry LIKE \'%"event": "approved"%\' OR entry LIKE \'%"event": "released"%\''
_ROWS = "SELECT count(*) FROM reservation"


def check_reservations(database: sqlite3.Connection) -> None:
    """Raises sqlite3.DatabaseError unless each reservation is what the log says: as approved, or as released."""
    try:
        for table in _TABLES:
            ((found, *_), *_) = database.execute(f"PRAGMA integrity_check({table})").fetchall()
            if found != "ok":
                raise sqlite3.DatabaseError(f"table {table} is damaged: restore it from a backup")
        logged: dict[tuple[str, str, str], tuple[int, float]] = {}
        for (text,) in database.execute(_LOGGED):
            entry = parse_json(text, where="an entry")
            key = str(entry["study"]), str(entry["data_set"]), str(entry["unit"])
            nano, noise = int(entry["nano"]), float(entry["noise_distance"])
            logged[key] = min(nano, logged[key][0]) if key in logged else nano, noise
        kept = {
            (study.lower(), data_set, unit): (nano, noise)
            for study, data_set, unit, nano, noise in database.execute(_KEPT)
        }
        ((rows,),) = database.execute(_ROWS).fetchall()
    except (DataCorrupt, ValueError, TypeError, KeyError):  # SQLite's and JSON's own messages quote what is damaged
        raise sqlite3.DatabaseError("its text is damaged: restore it from a backup") from None
    if kept != logged or rows != len(kept):
        raise sqlite3.DatabaseError("reservations are not what the log says: it is damaged; restore it from a backup")
