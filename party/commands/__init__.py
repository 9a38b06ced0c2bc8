"""The commands of conclave-party."""
