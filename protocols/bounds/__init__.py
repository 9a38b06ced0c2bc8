"""Bounds of a mechanism's cost: a number in, a number out."""
