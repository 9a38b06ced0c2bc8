"""The node's live page: what it is doing, and whether anything needs a person."""
