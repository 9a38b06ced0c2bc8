"""What a run writes as figures and says in words."""
