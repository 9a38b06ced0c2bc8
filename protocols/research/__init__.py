"""Data-dependent figures, which are private themselves: nothing that charges a budget imports this."""
