"""Teachers retrained with one record replaced: the privacy cost of a typical record."""
