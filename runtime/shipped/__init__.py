"""Data that come with the package, each with its licence and citation beside it."""
