"""Sums over protected units: one vector of bounded norm from each, in whole numbers."""
