"""Figures about private votes and records."""
