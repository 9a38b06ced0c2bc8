"""Bounds on a mechanism's privacy cost: a number in, a number out."""
