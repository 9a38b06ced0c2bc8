"""What a run writes, as figures and in words."""
