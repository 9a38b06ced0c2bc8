"""What a simulation is: its experiment, budgets, levels and who holds which record."""
