"""The commands of conclave-simulate."""
