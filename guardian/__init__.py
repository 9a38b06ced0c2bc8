"""The guardian: the second server of the levels two_server and hidden_queries, run by another organisation."""
