"""A database that somebody changed by hand, without the triggers that are against it."""

import sqlite3
from pathlib import Path


def changed_database(content: bytes, path: Path, change: str) -> Path:
    """Writes the database, drops its triggers and runs the statement, which must change a row; returns the path."""
    path.write_bytes(content)
    with sqlite3.connect(path) as database:
        for (name,) in database.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall():
            database.execute(f"DROP TRIGGER {name}")
        assert database.execute(change).rowcount > 0
    database.close()
    return path
