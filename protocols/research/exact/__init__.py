"""Exact per-instance costs of GNMax."""
