"""The coordinator's sessions with nodes, queriers and a guardian."""
