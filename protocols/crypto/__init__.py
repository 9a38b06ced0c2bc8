"""Cryptography and exact sampling, of which no file knows a study."""
