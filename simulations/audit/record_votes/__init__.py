"""An audit of record votes (`conclave-simulate audit --votes-by record`)."""
