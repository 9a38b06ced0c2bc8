"""Data-dependent figures, private themselves: nothing that charges a budget imports this."""
