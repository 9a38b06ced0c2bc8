"""Pages and terminal output made of results."""
