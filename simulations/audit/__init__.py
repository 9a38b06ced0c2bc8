"""Empirical audit of mechanisms: lower bounds on epsilon from running them (`conclave-simulate audit`)."""
