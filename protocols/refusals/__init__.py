"""Codes of refusals, failures and findings, and what each means; docs/reference/errors.md is generated from it."""
