"""Sums of integer vectors of which a coordinator sees the sum alone (Bonawitz et al. 2017; Bell et al. 2020).

A coordinator relays five steps; each is one request to every party and one reply. party.py has a party's side, and what
is hidden from whom; coordinator.py and opening.py have the coordinator's. What travels is tuples of arrays.
"""
