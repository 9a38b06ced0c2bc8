"""This hospital asks the others about records of its own."""
