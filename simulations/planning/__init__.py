"""What budgets can afford, and which noise serves best, before anything is trained."""
