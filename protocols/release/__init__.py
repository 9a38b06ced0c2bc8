"""What is in a release, as its coordinator writes it and a hospital reads it."""
