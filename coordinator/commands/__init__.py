"""The commands of conclave-coordinator, one file per group."""
