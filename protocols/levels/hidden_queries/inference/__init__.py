"""Confidential queries: a hospital's private records, labelled by other parties' private models.

Three roles, pairwise not colluding. The guardian deals correlated randomness beforehand and takes no further part; the
querying and the answering party then compute on additive shares. The answering party's vote comes out one-hot and
shared over F_p between the querying party and the guardian, as the two-server aggregation takes it. Departing from the
protocol changes for which class, and nothing else (vote.py). Input, model and vote stay with their owners; the
architecture and its precision are public.
"""
