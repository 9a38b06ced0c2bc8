"""Parties that ask about records of their own, simulated."""
