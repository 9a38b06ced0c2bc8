"""Feature maps: what private records are compared by; public, the same bits on every machine."""
