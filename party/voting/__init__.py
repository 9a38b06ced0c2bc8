"""From trained teachers, or from records that vote, to votes."""
