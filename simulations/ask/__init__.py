"""Simulations in which parties ask about their own records."""
