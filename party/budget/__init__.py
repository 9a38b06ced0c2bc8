"""What this hospital allowed, in plain words, and protection against rolling it back."""
