"""A simulation's set-up: its experiment, budgets, levels and who holds which record."""
