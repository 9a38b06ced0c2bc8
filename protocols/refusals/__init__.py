"""Codes of refusals, failures and findings, and what is said of each: docs/reference/errors.md is made of it."""
