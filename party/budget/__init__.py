"""What this hospital has allowed, in plain words, and protection against restoring an older state of it."""
