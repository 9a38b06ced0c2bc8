"""A membership inference attack on the released student, and its ceiling."""
