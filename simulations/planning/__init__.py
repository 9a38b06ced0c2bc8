"""What budgets afford, and which noise is best, before anything is trained."""
