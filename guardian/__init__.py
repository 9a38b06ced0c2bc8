"""The guardian: the second server of two_server, run by another organisation."""
