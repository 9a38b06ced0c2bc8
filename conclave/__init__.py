"""The public Python interface of Conclave."""
