"""Pages and terminal output made from results."""
