"""Cryptography and exact sampling; no file here knows about studies."""
