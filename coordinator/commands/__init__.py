"""The commands of conclave-coordinator, one file a group of them."""
