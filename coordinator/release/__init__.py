"""A release: what a study publishes, signed, with the evidence that lets anybody check it."""
