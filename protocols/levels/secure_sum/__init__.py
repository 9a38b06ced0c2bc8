"""Sums of integer vectors: the coordinator sees only the sum (Bonawitz et al. 2017; Bell et al. 2020).

A coordinator relays five steps; each is one request to every party and one reply. ballot.py has a party's side, and
what is hidden from whom; collecting.py and aggregation.py have the coordinator's. Messages are tuples of arrays.
"""
