"""The graph of neighbours: connected whoever is missing, with enough of them left to open shares."""

import hashlib
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.crypto.masks import Graph, graph_parameters, survivors_quorum
from protocols.errors import InvalidInput
from tests.harness.refusals import refuses


def graph_of(parties, dropouts, colluders, seed=0):
    degree, threshold = graph_parameters(parties=parties, dropouts=dropouts, colluders=colluders)
    return Graph(parties, degree, hashlib.sha256(bytes([seed])).digest()), threshold


def connected(graph, left):
    """Depth first, among `left`."""
    seen, stack = set(), [left[0]]
    while stack:
        party = stack.pop()
        if party not in seen:
            seen.add(party)
            stack.extend(set(graph.neighbours(party).tolist()) & set(left))
    return seen == set(left)


sizes = st.tuples(st.integers(2, 60), st.integers(0, 12), st.integers(0, 12)).filter(
    lambda size: size[0] >= max(2 * size[1] + size[2] + 1, size[1] + size[2] + 2)
)


@given(size=sizes)
@settings(max_examples=25)
def test_neighbours_are_mutual_distinct_and_found_again(size) -> None:
    graph, threshold = graph_of(*size)
    assert graph.table.shape == (size[0], graph.degree)
    assert threshold > size[2]
    for party in range(size[0]):
        neighbours = graph.neighbours(party)
        np.testing.assert_array_equal(neighbours, graph.table[party])
        assert len({party, *neighbours.tolist()}) == graph.degree + 1
        for row, other in enumerate(neighbours.tolist()):
            assert graph.neighbours(other)[graph.reverse[row]] == party


@pytest.mark.parametrize(("parties", "dropouts", "colluders"), [(12, 2, 1), (11, 1, 2), (9, 2, 1), (14, 1, 0)])
def test_every_choice_of_the_missing_leaves_the_graph_connected(parties, dropouts, colluders) -> None:
    graph, threshold = graph_of(parties, dropouts, colluders)
    for missing in itertools.combinations(range(parties), dropouts + colluders):
        assert connected(graph, [party for party in range(parties) if party not in missing])
    # Those who are left open shares; those who collude do not.
    assert threshold == graph.degree - dropouts > colluders


@given(size=sizes, seed=st.integers(0, 255), data=st.data())
@settings(max_examples=40)
def test_runs_of_missing_neighbours_do_not_cut_the_ring(size, seed, data) -> None:
    """The worst the coordinator can choose, knowing the ring: two runs of parties that follow each other on it."""
    graph, _ = graph_of(*size, seed=seed)
    missing, at = size[1] + size[2], data.draw(st.integers(0, size[0] - 1))
    first = data.draw(st.integers(0, missing))
    apart = data.draw(st.integers(1, max(1, size[0] - missing)))
    places = [*range(at, at + first), *range(at + first + apart, at + missing + apart)]
    gone = {int(graph._ring[place % size[0]]) for place in places}
    assert connected(graph, [party for party in range(size[0]) if party not in gone])


def test_one_neighbour_fewer_would_not_do() -> None:
    graph = Graph(20, 4, bytes(32))
    gone = {int(graph._ring[place]) for place in (0, 1, 10, 11)}
    assert not connected(graph, [party for party in range(20) if party not in gone])


def test_250_parties_have_52_neighbours_and_few_parties_a_full_graph() -> None:
    assert graph_parameters(parties=250, dropouts=25, colluders=25) == (52, 27)
    assert graph_parameters(parties=5, dropouts=1, colluders=2) == (4, 3)
    assert graph_parameters(parties=2, dropouts=0, colluders=0) == (1, 1)
    assert graph_parameters(parties=10_000, dropouts=100, colluders=50) == (152, 52)


@given(size=sizes)
def test_two_quorums_share_an_honest_party_and_the_survivors_are_one(size) -> None:
    parties, dropouts, colluders = size
    quorum = survivors_quorum(parties=parties, colluders=colluders)
    assert 2 * quorum - parties > colluders
    assert quorum <= parties - dropouts


@pytest.mark.parametrize(
    "size", [(1, 0, 0), (2, 1, 0), (2, 0, 1), (4, 2, 0), (5, 2, 1), (9, -1, 0), (9, 0, -1), (600, 200, 100)]
)
def test_what_cannot_be_protected_is_refused(size) -> None:
    with refuses(InvalidInput, "allowed"):
        graph_of(*size)
