"""The guardian: the second server of two_server, which another organisation runs."""
