"""Figures computed from private votes and records."""
