"""This hospital asks the others about its own records."""
