"""From trained teachers to votes."""
