"""What this hospital allowed, in its own words, and that it cannot be rolled back."""
