"""The node's connections: it dials out, and nobody dials in."""
