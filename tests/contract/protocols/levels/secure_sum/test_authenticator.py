"""Tags of pairs: whom they convince, of what, and that signatures decide where they do not hold."""

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st

from protocols.errors import MalformedMessage, Refused
from protocols.levels.secure_sum.wire import (
    MASK_TAG_BYTES,
    PairwiseAuthenticator,
    direction_keys,
    keys_statement,
    survivors_statement,
    tagged,
)
from tests.harness.refusals import refuses
from tests.harness.sum_parties import Member, Sum, make_context

NAMES = ("a", "b", "c", "é")
KEYS = {name: ec.derive_private_key(7 + place, ec.SECP256R1()) for place, name in enumerate(NAMES)}
PUBLICS = {name: key.public_key() for name, key in KEYS.items()}
STUDY = bytes(range(32))


def member(name, *, study=STUDY, key=None):
    return PairwiseAuthenticator(study, name, key=key or KEYS[name], publics=PUBLICS)


MEMBERS = {name: member(name) for name in NAMES}


@given(statement=st.binary(max_size=300), pair=st.permutations(NAMES).map(lambda names: names[:2]))
def test_a_tag_convinces_its_receiver_and_nobody_else(statement, pair) -> None:
    sender, receiver = pair
    tag = MEMBERS[sender].tag(receiver, statement)
    assert len(tag) == MASK_TAG_BYTES
    convinced = {
        (reader, claimed) for reader in NAMES for claimed in NAMES if MEMBERS[reader].holds(claimed, statement, tag)
    }
    assert convinced == {(receiver, sender)}


@given(statement=st.binary(min_size=1, max_size=300), bit=st.integers(0, 2**16))
def test_any_flipped_bit_of_tag_or_statement_makes_a_tag_fail(statement, bit) -> None:
    tag = MEMBERS["a"].tag("b", statement)
    assert MEMBERS["b"].holds("a", statement, tag)
    assert not MEMBERS["b"].holds("a", flipped(statement, bit), tag)
    assert not MEMBERS["b"].holds("a", statement, flipped(tag, bit))
    assert not MEMBERS["b"].holds("a", statement + b"\0", tag)
    assert not MEMBERS["b"].holds("a", statement, tag[:-1])


@given(key=st.binary(min_size=32, max_size=32), bit=st.integers(0, 2**16), statement=st.binary(max_size=80))
def test_any_flipped_bit_of_a_key_makes_another_tag(key, bit, statement) -> None:
    assert tagged(key, statement) != tagged(flipped(key, bit), statement)
    assert len(tagged(key, statement)) == MASK_TAG_BYTES


def flipped(octets, bit):
    place = bit % (8 * len(octets))
    changed = bytearray(octets)
    changed[place // 8] ^= 1 << place % 8
    return bytes(changed)


@given(shared=st.binary(min_size=32, max_size=32), bit=st.integers(0, 255))
def test_keys_of_a_pair_depend_on_secret_study_names_and_direction(shared, bit) -> None:
    keys = [direction_keys(shared, STUDY, own="a", other="b")]
    assert direction_keys(shared, STUDY, own="b", other="a") == keys[0][::-1]
    keys.append(direction_keys(flipped(shared, bit), STUDY, own="a", other="b"))
    keys.append(direction_keys(shared, flipped(STUDY, bit), own="a", other="b"))
    # Names that run together, and names of which one is the beginning of the other.
    keys += [
        direction_keys(shared, STUDY, own=own, other=other) for own, other in (("a", "bc"), ("ab", "c"), ("", "ab"))
    ]
    assert len({key for both in keys for key in both}) == 2 * len(keys)


def test_a_tag_of_another_study_or_of_another_key_convinces_nobody() -> None:
    assert not MEMBERS["b"].holds("a", b"said", member("a", study=flipped(STUDY, 3)).tag("b", b"said"))
    assert not MEMBERS["b"].holds("a", b"said", member("a", key=KEYS["c"]).tag("b", b"said"))


def test_a_tag_is_what_it_was() -> None:
    """Members of different versions of this software stand in one sum."""
    assert MEMBERS["a"].tag("b", b"said").hex() == "3ae397b6828c8d9e659b288c3d374814"


def test_signatures_are_those_of_the_roster_and_of_one_statement() -> None:
    signature = MEMBERS["a"].sign(b"said")
    assert MEMBERS["b"].verify("a", b"said", signature)
    assert not MEMBERS["b"].verify("c", b"said", signature)
    assert not MEMBERS["b"].verify("a", b"other", signature)
    assert not MEMBERS["b"].verify("a", b"said", b"")


def test_no_two_statements_of_sums_are_the_same() -> None:
    """What a tag is about is in the statement alone: its step, the study, run and batch, its owner, the sets."""
    everyone, fewer = np.ones(6, dtype=bool), np.arange(6) != 5
    keys, statements = np.zeros((3, 32), dtype=np.uint8), []
    for context in (make_context(6, 1, 1), make_context(6, 1, 1, batch=2), make_context(6, 1, 1, run=b"2")):
        statements += [keys_statement(context.digest, index, keys) for index in range(6)]
        statements.append(keys_statement(context.digest, 0, keys + np.uint8(1)))
        sets = ((everyone, everyone), (everyone, fewer), (fewer, fewer))
        statements += [survivors_statement(context.digest, *both) for both in sets]
    assert len(set(statements)) == len(statements) == 30


CONTEXT = make_context(12, 2, 1)
VALUES = np.arange(60, dtype=np.int64).reshape(12, 5) - 30


def garbage(step, place, *, senders=range(12), rows=slice(None)):
    """A party whose array `place` of a step is nonsense, in some rows."""

    def tamper(at, who, reply):
        if at != step or who not in senders:
            return reply
        arrays = [array.copy() for array in reply]
        arrays[place][rows] ^= np.uint8(0x5A)
        return tuple(arrays)

    return tamper


def checked(running):
    """Whose signatures each party checked."""
    names = CONTEXT.members
    return {(index, names.index(name)) for index in range(12) for name in running.members[index].authenticator.checked}


def test_without_a_fault_no_party_checks_a_signature() -> None:
    running = Sum(CONTEXT, VALUES, absent={"mask": [7]})
    np.testing.assert_array_equal(running.run().sums, np.delete(VALUES, 7, axis=0).sum(axis=0))
    assert checked(running) == set()


@pytest.mark.parametrize("step", ["advertise", "mask"])
@pytest.mark.parametrize("senders", [[3], range(12)])
@pytest.mark.parametrize("rows", [slice(None), slice(0, None, 3)])
def test_garbage_for_tags_to_some_or_to_all_costs_signatures_and_stops_nothing(step, senders, rows) -> None:
    running = Sum(CONTEXT, VALUES, absent={"mask": [7]}, tamper=garbage(step, 2, senders=senders, rows=rows))
    opened = running.run()
    np.testing.assert_array_equal(opened.sums, np.delete(VALUES, 7, axis=0).sum(axis=0))
    assert (opened.left_out, opened.faults, running.errors) == ({CONTEXT.members[7]: "absent"}, {}, {})
    told = {sender: CONTEXT.graph.neighbours(sender)[rows].tolist() for sender in senders}
    pairs = {(receiver, sender) for sender in told for receiver in told[sender]}
    there = {(at, by) for at, by in pairs if at != by and (step == "advertise" or at != 7)}
    assert checked(running) == {(at, by) for at, by in there if step != "mask" or by != 7}


def test_garbage_for_tags_of_survivors_by_as_many_as_may_drop_out_stops_nothing() -> None:
    running = Sum(CONTEXT, VALUES, tamper=garbage("agree", 0, senders=range(CONTEXT.dropouts)))
    np.testing.assert_array_equal(running.run().sums, VALUES.sum(axis=0))
    assert (running.opened.faults, running.errors, checked(running)) == ({}, {}, set())


def test_a_wrong_signature_under_right_tags_is_left_out_by_the_coordinator() -> None:
    opened = Sum(CONTEXT, VALUES, tamper=garbage("advertise", 1, senders=[3])).run()
    assert opened.left_out == {CONTEXT.members[3]: "bad_signature"}
    np.testing.assert_array_equal(opened.sums, np.delete(VALUES, 3, axis=0).sum(axis=0))


@pytest.fixture(scope="module")
def honest():
    running = Sum(CONTEXT, VALUES, absent={"mask": [7]})
    running.run()
    return running


def requests(running):
    """By step: the request to party 4, where its signatures and its tags are, and whose is row 1."""
    agreed = running.agreed.request(4)
    return {
        "share": (running.advertised.request(4), 2, 3, CONTEXT.members[CONTEXT.graph.neighbours(4)[1]]),
        "unmask: masked": (agreed, 3, 4, CONTEXT.members[CONTEXT.graph.neighbours(4)[1]]),
    }


@pytest.mark.parametrize("statement", ["share", "unmask: masked"])
@pytest.mark.parametrize("wrong", ["tags", "signatures", "both"])
def test_one_of_tag_and_signature_is_enough_and_without_both_the_member_is_named(honest, statement, wrong) -> None:
    request, signatures, tags, owner = requests(honest)[statement]
    step = statement.partition(":")[0]
    arrays = [array.copy() for array in request]
    for place in {"tags": [tags], "signatures": [signatures], "both": [tags, signatures]}[wrong]:
        arrays[place][1] ^= np.uint8(1)
    fresh = Member(CONTEXT, 4, VALUES[4], notes=dict(honest.members[4].notes))
    if wrong == "both":
        with pytest.raises(MalformedMessage, match=f"{owner!r}.*neither|neither.*{owner!r}"):
            fresh.answer(step, tuple(arrays))
        return
    for mine, theirs in zip(fresh.answer(step, tuple(arrays)), honest.replies[step][4], strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert (owner in fresh.authenticator.checked) == (wrong == "tags")


def test_tags_that_were_meant_for_another_member_do_not_hold(honest) -> None:
    """Party 4 gets the tags for other members, and signatures that are nobody's."""
    request, signatures, tags, _ = requests(honest)["share"]
    arrays = [array.copy() for array in request]
    arrays[tags] = honest.advertised.tags[CONTEXT.graph.neighbours(4)][:, 0]
    arrays[signatures] = np.zeros_like(arrays[signatures])
    fresh = Member(CONTEXT, 4, VALUES[4], notes=dict(honest.members[4].notes))
    with refuses(MalformedMessage, "neither"):
        fresh.answer("share", tuple(arrays))
    agreed = honest.agreed.request(4)
    with pytest.raises(Refused, match="1 members that agreed on the survivors"):
        fresh.answer("unmask", (*agreed[:6], honest.agreed.tags[:, 5][agreed[5] == 1]))
