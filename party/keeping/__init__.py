"""A home that is backed up, moved, restored, or mended where something of it is lost."""
