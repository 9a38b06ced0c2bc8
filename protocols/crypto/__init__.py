"""Cryptography and exact sampling; no file here knows what a study is."""
