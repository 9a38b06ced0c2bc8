"""Budgets: what a query costs each party, what a budget affords, and what it guarantees."""
