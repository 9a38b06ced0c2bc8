"""The ledger, its audit log, and SQLite transactions."""
