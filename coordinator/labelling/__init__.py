"""From a pool of queries to labels and a student."""
