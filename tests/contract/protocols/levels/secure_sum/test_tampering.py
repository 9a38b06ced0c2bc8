"""Messages that are replaced, replayed, swapped, truncated or forged: each refused and named, and the rest goes on."""

import numpy as np
import pytest

from protocols.errors import MalformedMessage, Refused
from protocols.levels.secure_sum import ballot as party
from protocols.levels.secure_sum.checking import kept_shares
from protocols.levels.secure_sum.dealing import sealed_to, unsealed
from protocols.levels.secure_sum.wire import MASK_KEY, NOT_VALID, SEED, VALID
from tests.harness.refusals import refused_for, refuses
from tests.harness.sum_parties import Member, Sum, make_context

CONTEXT = make_context(12, 2, 1)
VALUES = np.arange(60, dtype=np.int64).reshape(12, 5) - 30
NAMES = CONTEXT.members


def changed(arrays, place, change):
    arrays = [array.copy() for array in arrays]
    arrays[place] = change(arrays[place])
    return tuple(arrays)


def flipped(array):
    array.reshape(-1).view(np.uint8)[0] ^= 1
    return array


def tampering(step, index, place, change):
    return lambda at, who, reply: changed(reply, place, change) if (at, who) == (step, index) else reply


@pytest.fixture(scope="module")
def honest():
    running = Sum(CONTEXT, VALUES, absent={"mask": [7]})
    running.run()
    return running


@pytest.mark.parametrize(
    ("step", "place", "change", "code"),
    [
        ("advertise", 0, flipped, "bad_signature"),
        ("advertise", 1, np.zeros_like, "bad_signature"),
        ("advertise", 0, lambda keys: keys[:1], "malformed"),
        ("share", 0, lambda blinding: blinding ^ np.uint8(1), "bad_shares"),
        ("share", 1, lambda sealed: sealed[:-1], "malformed"),
        ("share", 1, lambda sealed: sealed.astype(np.uint16), "malformed"),
        ("share", 1, lambda sealed: sealed ^ np.uint8(255), "bad_shares"),
        ("share", 6, lambda receipt: receipt[None], "malformed"),
        ("check", 0, lambda verdicts: verdicts[:-1], "malformed"),
        ("check", 1, lambda values: values.view(np.int8), "malformed"),
        ("mask", 0, lambda masked: masked[:-1], "malformed"),
        ("mask", 0, lambda masked: masked.astype(np.uint64), "malformed"),
        ("mask", 0, lambda masked: masked.astype(np.float32), "malformed"),
        ("mask", 1, flipped, "bad_signature"),
        ("mask", 2, lambda tags: tags[:-1], "malformed"),
    ],
)
def test_a_malformed_reply_leaves_its_party_out_and_the_rest_goes_on(step, place, change, code) -> None:
    running = Sum(CONTEXT, VALUES, tamper=tampering(step, 3, place, change))
    opened = running.run()
    assert opened.left_out == {NAMES[3]: code}
    np.testing.assert_array_equal(opened.sums, np.delete(VALUES, 3, axis=0).sum(axis=0))


@pytest.mark.parametrize(
    ("step", "place", "change", "code"),
    [
        ("agree", 0, lambda tags: tags[1:], "malformed"),
        ("unmask", 0, flipped, "wrong_seed"),
        ("unmask", 1, lambda shares: shares[:, :31], "malformed"),
    ],
)
def test_a_fault_after_the_votes_came_in_is_named_and_takes_nothing_from_the_sum(step, place, change, code) -> None:
    opened = Sum(CONTEXT, VALUES, tamper=tampering(step, 3, place, change)).run()
    assert (opened.faults, opened.left_out) == ({NAMES[3]: code}, {})
    np.testing.assert_array_equal(opened.sums, VALUES.sum(axis=0))


def test_wrong_shares_of_a_drop_out_are_told_from_right_ones_and_their_holders_named() -> None:
    """Four neighbours and a threshold of two: as many are wrong as are right."""
    liars = CONTEXT.graph.neighbours(7)[:2].tolist()
    opened = Sum(
        CONTEXT, VALUES, absent={"mask": [7]},
        tamper=lambda at, who, reply: (reply[0], reply[1] ^ np.uint8(1)) if at == "unmask" and who in liars else reply,
    ).run()  # fmt: skip
    assert opened.left_out == {NAMES[7]: "absent"}
    assert opened.faults == {NAMES[liar]: "wrong_share" for liar in liars}
    np.testing.assert_array_equal(opened.sums, np.delete(VALUES, 7, axis=0).sum(axis=0))


def relay(step, index, place, change):
    return lambda at, who, arrays: changed(arrays, place, change) if (at, who) == (step, index) else arrays


@pytest.mark.parametrize("row", [0, 3])
def test_a_replaced_key_is_refused_and_its_owner_named(row) -> None:
    def replace(array):
        array[row].reshape(-1)[5] ^= 1
        return array

    running = Sum(CONTEXT, VALUES, relay=relay("share", 4, 1, replace))
    opened = running.run()
    owner = NAMES[CONTEXT.graph.neighbours(4)[row]]
    assert isinstance(running.errors["share", 4], MalformedMessage)
    assert repr(owner) in str(running.errors["share", 4])
    assert opened.left_out == {NAMES[4]: "absent"}


def test_keys_of_another_member_or_batch_do_not_pass_under_a_members_name(honest) -> None:
    request = [array.copy() for array in honest.advertised.request(4)]
    for array in request[1:]:
        array[[0, 1]] = array[[1, 0]]
    with refuses(MalformedMessage, "tag", "signature"):
        honest.members[4].answer("share", tuple(request))
    other = Member(make_context(12, 2, 1, batch=2), 4, VALUES[4])
    renamed = other.context.graph.neighbours(4)
    advertised, reverse = honest.advertised, other.context.graph.reverse
    rows = honest.keys.table[renamed], advertised.signatures[renamed], advertised.tags[renamed, reverse]
    with refuses(MalformedMessage, "tag", "signature"):
        other.answer("share", (honest.keys.present[renamed].astype(np.uint8), *rows))


@pytest.mark.parametrize("place", [1, 2, 3])
def test_keys_that_changed_after_they_were_verified_are_refused(honest, place) -> None:
    request = changed(honest.shared.request(4), place, flipped)
    member = Member(CONTEXT, 4, VALUES[4])
    with pytest.raises(MalformedMessage, match=r"receipt|keys"):
        member.answer("mask", request)


def swap(array):
    array[[0, 1]] = array[[1, 0]]
    return array


@pytest.mark.parametrize("place", [8, 9])
@pytest.mark.parametrize("change", [swap, lambda sealed: np.repeat(sealed[:1], len(sealed), axis=0), flipped])
def test_swapped_or_replayed_shares_are_not_valid(honest, change, place) -> None:
    request = changed(honest.dealt.request(4), place, change)
    verdicts, values, _ = honest.members[4].answer("check", request)
    differs = (request[place] != honest.dealt.request(4)[place]).any(axis=1)
    assert differs.any()
    assert (verdicts == np.where(differs, NOT_VALID, VALID)).all()
    assert not values[differs].any()
    np.testing.assert_array_equal(values[~differs], honest.replies["check"][4][1][~differs])


def test_sealed_shares_of_another_run_or_receiver_are_not_valid(honest) -> None:
    again = Sum(make_context(12, 2, 1, run=b"again"), VALUES, absent={"mask": [7]})
    again.run()
    for sealed in (again.dealt.sealed[4], honest.dealt.sealed[4]):
        request = changed(honest.dealt.request(4), 8, lambda _, sealed=sealed: sealed)
        verdicts, values, _ = honest.members[4].answer("check", request)
        assert (verdicts == NOT_VALID).all()
        assert not values.any()


def test_sealed_shares_are_bound_to_batch_sender_receiver_and_dealing_besides_their_key() -> None:
    key, shares, dealing = bytes(range(32)), bytes(range(96)), bytes(32)
    sealed = sealed_to(shares, key, CONTEXT, sender=1, receiver=2, blinding=dealing)
    assert unsealed(sealed, key, CONTEXT, sender=1, receiver=2, blinding=dealing) == shares
    assert unsealed(sealed, key, CONTEXT, sender=2, receiver=1, blinding=dealing) is None
    assert unsealed(sealed, key, CONTEXT, sender=1, receiver=3, blinding=dealing) is None
    assert unsealed(sealed, key, CONTEXT, sender=1, receiver=2, blinding=bytes([1]) * 32) is None
    assert unsealed(sealed, key, make_context(12, 2, 1, batch=2), sender=1, receiver=2, blinding=dealing) is None
    assert unsealed(sealed, key, make_context(12, 2, 1, run=b"2"), sender=1, receiver=2, blinding=dealing) is None


def test_no_key_seals_two_dealings_and_no_blinding_serves_two(honest) -> None:
    """A coordinator that asks for shares for other neighbours gets other polynomials, under other keys."""
    fewer = changed(honest.advertised.request(4), 0, lambda present: present * (np.arange(present.size) > 0))
    one = honest.members[4].answer("share", honest.advertised.request(4))
    other = honest.members[4].answer("share", fewer)
    assert (one[0] != other[0]).any()
    for left, right in ((one[1][1:, 32:], other[1][1:, 32:]), (one[2][1:], other[2][1:]), (one[3][1:], other[3][1:])):
        assert (left != right).mean() > 0.9


@pytest.mark.parametrize("place", [4, 5, 6])
def test_a_dealing_that_its_dealer_did_not_tag_is_answered_with_nothing(honest, place) -> None:
    """Answers to two challenges of one dealing would together give its shares away."""
    request = changed(honest.dealt.request(4), place, flipped)
    verdicts, values, _ = honest.members[4].answer("check", request)
    assert verdicts[0] == NOT_VALID
    assert not values[0].any()
    np.testing.assert_array_equal(values[1:], honest.replies["check"][4][1][1:])


@pytest.mark.parametrize("place", range(4, 9))
def test_a_key_is_shown_only_for_a_dealing_that_its_dealer_signed(honest, place) -> None:
    running = Sum(CONTEXT, VALUES, tamper=tampering("check", 4, 0, lambda verdicts: verdicts * 0 + NOT_VALID))
    running.run()
    request = running.checked.request(4)
    dealer = NAMES[CONTEXT.graph.neighbours(4)[0]]
    verdicts, _, points, proofs = running.members[4].answer("accuse", request)
    assert (verdicts == VALID).all()
    assert not points.any()
    assert not proofs.any()
    with refuses(MalformedMessage, f"{dealer!r}"):
        running.members[4].answer("accuse", changed(request, place, flipped))


def test_another_set_of_sharers_is_refused_after_the_votes_were_masked(honest) -> None:
    member = honest.members[4]
    request = honest.shared.request(4)
    fewer = changed(request, 0, lambda sharers: np.where(np.arange(12) == 5, 0, sharers).astype(np.uint8))
    with refused_for("other_sharers"):
        member.answer("mask", fewer)
    np.testing.assert_array_equal(member.answer("mask", request)[0], honest.replies["mask"][4][0])


@pytest.mark.parametrize("step", ["agree", "unmask"])
def test_two_sets_of_survivors_are_refused(honest, step) -> None:
    """Party 7 did not mask; the coordinator now says that party 8 did not either."""
    member = honest.members[4]
    request = honest.masked.request if step == "agree" else honest.agreed.request(4)
    other = changed(request, 1, lambda left: np.where(np.arange(12) == 8, 0, left).astype(np.uint8))
    with refused_for("other_survivors"):
        party_answer(member, step, other, honest)
    party_answer(member, step, request, honest)


def party_answer(member, step, request, honest):
    """With the note that a ledger would keep, of what was signed first."""
    masked, noted = member.notes["masking"], member.notes["survivors"]
    if step == "agree":
        return party.agree(CONTEXT, 4, request, masked=masked, noted=noted, authenticator=member.authenticator)
    return party.unmask(*member.own, request, masked=masked, noted=noted, authenticator=member.authenticator)


def test_survivors_without_a_quorum_of_tags_open_nothing(honest) -> None:
    """A party that agreed on nothing yet is shown another set, with the tags of the real one."""
    fresh = Member(CONTEXT, 4, VALUES[4])
    fresh.notes["masking"] = honest.members[4].notes["masking"]
    request = honest.agreed.request(4)
    lied = changed(request, 1, lambda left: np.where(np.arange(12) == 11, 0, left).astype(np.uint8))
    with refuses(Refused, 1, 7):
        fresh.answer("unmask", lied)


def test_one_tag_too_few_opens_nothing_and_one_is_not_counted_twice(honest) -> None:
    """The coordinator has the tags of a quorum less one, and gives one of them for several members."""
    request, enough = honest.agreed.request(4), CONTEXT.quorum
    there = np.flatnonzero(request[5]).tolist()
    for right in (enough - 1, enough):
        fresh = Member(CONTEXT, 4, VALUES[4], notes=dict(honest.members[4].notes))
        tags = request[6].copy()
        wrong = [row for row, other in enumerate(there) if other != 4][right - 1 :]
        tags[wrong] = tags[0]
        if right < enough:
            with refuses(Refused, right):
                fresh.answer("unmask", (*request[:6], tags))
        else:
            fresh.answer("unmask", (*request[:6], tags))


def test_too_few_parties_are_refused_by_each_party(honest) -> None:
    def only(count):
        return lambda array: (np.cumsum(array) <= count).astype(np.uint8) * array

    for step, request, place in [
        ("share", honest.advertised.request(4), 0),
        ("mask", honest.shared.request(4), 0),
        ("agree", honest.masked.request, 1),
    ]:
        member = Member(CONTEXT, 4, VALUES[4])
        member.notes["masking"] = honest.members[4].notes["masking"]
        few = 1 if step == "share" else 9
        with pytest.raises(Refused, match=r"too_few_parties: \d+ .*; allowed: at least"):
            member.answer(step, changed(request, place, only(few)))


def test_a_party_that_is_declared_lost_opens_and_signs_nothing(honest) -> None:
    member = Member(CONTEXT, 4, VALUES[4])
    member.notes["masking"] = honest.members[4].notes["masking"]
    without = changed(honest.masked.request, 1, lambda left: np.where(np.arange(12) == 4, 0, left).astype(np.uint8))
    with refused_for("not_a_survivor"):
        member.answer("agree", without)


def test_no_party_gives_both_shares_of_another(honest) -> None:
    for index, (_, shares) in honest.replies["unmask"].items():
        both = kept_shares(party.Secrets(*honest.members[index].own), honest.shared.kept[index].tobytes())
        survivors = honest.masked.present[CONTEXT.graph.neighbours(index)]
        np.testing.assert_array_equal(shares, both[np.arange(len(both)), np.where(survivors, SEED, MASK_KEY)])


def test_nothing_secret_is_in_a_repr_or_a_message(honest) -> None:
    said = repr(honest.shared) + repr(honest.masked) + repr(honest.agreed)
    said += "".join(map(str, honest.errors.values()))
    secrets = party.Secrets(*honest.members[4].own)
    assert str(secrets.seed()) not in said
    assert f"{secrets.shared_mask_key():x}" not in said
    assert repr(honest.members[4].batch_secret)[2:-1] not in said + repr(secrets)
