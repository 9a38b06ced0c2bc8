"""A whole consortium on one machine."""
