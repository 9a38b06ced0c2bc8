"""The tables of a ledger, and triggers that forbid deleting a charge, or lowering it except by settling.

Every statement that writes them is in ledger.py. The triggers repeat its rules, so that no later statement lowers a
charge or removes a log entry by mistake. Anyone who can write the file can drop the triggers;
`conclave-party verify` then finds sums that differ.
"""

LEDGER_SCHEMA = """
CREATE TABLE IF NOT EXISTS account (
    name TEXT PRIMARY KEY, cap INTEGER NOT NULL CHECK (cap >= 0),
    settled INTEGER NOT NULL DEFAULT 0, reserved INTEGER NOT NULL DEFAULT 0,
    CHECK (settled >= 0 AND reserved >= 0 AND settled + reserved <= cap)
) STRICT;
CREATE TABLE IF NOT EXISTS binding (
    one INTEGER PRIMARY KEY CHECK (one = 1), study BLOB NOT NULL, run BLOB NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS batch (
    number INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE, payload BLOB NOT NULL, settled INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE TABLE IF NOT EXISTS asked (
    query INTEGER PRIMARY KEY, number INTEGER NOT NULL REFERENCES batch
) STRICT;
CREATE INDEX IF NOT EXISTS asked_in_batch ON asked (number);
CREATE TABLE IF NOT EXISTS charge (
    number INTEGER NOT NULL REFERENCES batch, account TEXT NOT NULL REFERENCES account,
    reserved INTEGER NOT NULL CHECK (reserved >= 0), settled INTEGER,
    PRIMARY KEY (number, account), CHECK (settled BETWEEN 0 AND reserved)
) STRICT;
CREATE TABLE IF NOT EXISTS note (
    digest BLOB NOT NULL, kind TEXT NOT NULL, value BLOB NOT NULL, PRIMARY KEY (digest, kind)
) STRICT;
CREATE TRIGGER IF NOT EXISTS cap_stays BEFORE UPDATE OF cap, name ON account
    BEGIN SELECT RAISE(ABORT, 'a cap stands for ever'); END;
CREATE TRIGGER IF NOT EXISTS settled_only_grows BEFORE UPDATE ON account WHEN NEW.settled < OLD.settled
    BEGIN SELECT RAISE(ABORT, 'what was settled only grows'); END;
CREATE TRIGGER IF NOT EXISTS charge_settles_once BEFORE UPDATE ON charge
    WHEN OLD.settled IS NOT NULL OR NEW.settled IS NULL OR NEW.reserved != OLD.reserved OR NEW.number != OLD.number
        OR NEW.account != OLD.account
    BEGIN SELECT RAISE(ABORT, 'a charge settles once, and changes in nothing else'); END;
CREATE TRIGGER IF NOT EXISTS batch_stays_charged BEFORE UPDATE ON batch
    WHEN NEW.number != OLD.number OR NEW.digest != OLD.digest OR NEW.settled < OLD.settled
    BEGIN SELECT RAISE(ABORT, 'a batch stays as it was charged'); END;
CREATE TRIGGER IF NOT EXISTS asked_stays BEFORE UPDATE ON asked
    BEGIN SELECT RAISE(ABORT, 'a query that was asked stays asked'); END;
CREATE TRIGGER IF NOT EXISTS binding_stays BEFORE UPDATE ON binding
    BEGIN SELECT RAISE(ABORT, 'a ledger stays of its study'); END;
""" + "".join(
    f"CREATE TRIGGER IF NOT EXISTS {table}_is_never_deleted BEFORE DELETE ON {table} "
    f"BEGIN SELECT RAISE(ABORT, 'what was charged is never deleted'); END;\n"
    for table in ("account", "binding", "batch", "asked", "charge")
)
