"""Teachers retrained with one record replaced: what a typical record costs."""
