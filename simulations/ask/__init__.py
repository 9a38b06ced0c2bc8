"""Simulation of parties that ask about their own records."""
