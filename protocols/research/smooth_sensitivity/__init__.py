"""Releasing a data-dependent cost by its smooth sensitivity."""
