"""A release: what a study publishes, signed, with the evidence by which anybody can check it."""
