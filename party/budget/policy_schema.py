"""The tables of policy.sqlite: lifetime caps, approvals, and what each approval reserves of each cap."""

from __future__ import annotations

from typing import Final

POLICY_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS lifetime (
    data_set TEXT NOT NULL, unit TEXT NOT NULL, epsilon REAL NOT NULL, delta REAL NOT NULL, currency REAL,
    noise_room REAL NOT NULL CHECK (noise_room >= 0), PRIMARY KEY (data_set, unit)
) STRICT;
CREATE TABLE IF NOT EXISTS approval (
    study BLOB NOT NULL, data_set TEXT NOT NULL, home TEXT NOT NULL, place TEXT NOT NULL, party TEXT NOT NULL,
    name TEXT NOT NULL, approved_ns INTEGER NOT NULL, withdrawn_ns INTEGER,
    told_apart INTEGER NOT NULL, PRIMARY KEY (study, data_set)
) STRICT;
CREATE TABLE IF NOT EXISTS reservation (
    study BLOB NOT NULL, data_set TEXT NOT NULL, unit TEXT NOT NULL, nano INTEGER NOT NULL CHECK (nano >= 0),
    noise_distance REAL NOT NULL CHECK (noise_distance >= 0),
    PRIMARY KEY (study, data_set, unit), FOREIGN KEY (data_set, unit) REFERENCES lifetime,
    FOREIGN KEY (study, data_set) REFERENCES approval
) STRICT;
CREATE TRIGGER IF NOT EXISTS reservation_falls_when_withdrawn BEFORE UPDATE ON reservation
    WHEN NEW.nano > OLD.nano OR NEW.noise_distance != OLD.noise_distance OR NOT EXISTS (
        SELECT 1 FROM approval WHERE study = OLD.study AND data_set = OLD.data_set AND withdrawn_ns IS NOT NULL)
    BEGIN SELECT RAISE(ABORT, 'a reservation only falls, and only when its study was withdrawn'); END;
CREATE TRIGGER IF NOT EXISTS approval_is_withdrawn_once BEFORE UPDATE ON approval
    WHEN OLD.withdrawn_ns IS NOT NULL OR NEW.study != OLD.study OR NEW.data_set != OLD.data_set OR NEW.home != OLD.home
        OR NEW.told_apart != OLD.told_apart
    BEGIN SELECT RAISE(ABORT, 'an approval is withdrawn once, and changes in nothing else'); END;
CREATE TRIGGER IF NOT EXISTS lifetime_stands BEFORE UPDATE ON lifetime
    BEGIN SELECT RAISE(ABORT, 'a lifetime cap stands for ever'); END;
""" + "".join(
    f"CREATE TRIGGER IF NOT EXISTS {table}_is_never_deleted BEFORE DELETE ON {table} "
    f"BEGIN SELECT RAISE(ABORT, 'what was reserved is never deleted'); END;\n"
    for table in ("lifetime", "approval", "reservation")
)
