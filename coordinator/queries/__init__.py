"""The features and queries of record votes that are fitted to a public pool, or drawn from constants."""
