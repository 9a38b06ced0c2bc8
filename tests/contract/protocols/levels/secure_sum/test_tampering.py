"""Messages that are replaced, replayed, swapped, truncated or forged: each refused and named, and the rest goes on."""

import numpy as np
import pytest

from protocols.errors import MalformedMessage, Refused
from protocols.levels.secure_sum import steps as party
from protocols.levels.secure_sum.batch_secret import seal, unseal
from protocols.levels.secure_sum.collecting import QuorumLost
from protocols.levels.secure_sum.wire import KEY_SHARE, NOT_OPENED, SEED_SHARE
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
        ("advertise", 0, lambda keys: keys[:2], "malformed"),
        ("share", 0, lambda sealed: sealed[:-1], "malformed"),
        ("share", 0, lambda sealed: sealed.astype(np.uint16), "malformed"),
        ("share", 1, lambda receipt: receipt[None], "malformed"),
        ("mask", 0, lambda masked: masked[:-1], "malformed"),
        ("mask", 0, lambda masked: masked.astype(np.uint64), "malformed"),
        ("mask", 0, lambda masked: masked.astype(np.float32), "malformed"),
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
        ("agree", 0, flipped, "bad_signature"),
        ("agree", 0, lambda signature: signature[1:], "malformed"),
        ("unmask", 0, flipped, "wrong_seed"),
        ("unmask", 1, lambda kinds: np.where(kinds == SEED_SHARE, KEY_SHARE, kinds).astype(np.uint8), "malformed"),
        ("unmask", 1, lambda kinds: kinds + np.uint8(4), "malformed"),
        ("unmask", 2, lambda shares: shares[:, :31], "malformed"),
    ],
)
def test_a_fault_after_the_votes_came_in_is_named_and_takes_nothing_from_the_sum(step, place, change, code) -> None:
    opened = Sum(CONTEXT, VALUES, tamper=tampering(step, 3, place, change)).run()
    assert (opened.faults, opened.left_out) == ({NAMES[3]: code}, {})
    np.testing.assert_array_equal(opened.sums, VALUES.sum(axis=0))


def test_a_wrong_share_among_spare_ones_is_found_and_named() -> None:
    """Four neighbours and a threshold of two: one wrong share is half of the spare ones."""
    liar = int(CONTEXT.graph.neighbours(7)[0])
    opened = Sum(
        CONTEXT, VALUES, absent={"mask": [7]}, tamper=tampering("unmask", liar, 2, lambda shares: shares ^ np.uint8(1))
    ).run()
    assert opened.left_out == {NAMES[7]: "absent"}
    assert opened.faults == {NAMES[liar]: "wrong_share"}
    np.testing.assert_array_equal(opened.sums, np.delete(VALUES, 7, axis=0).sum(axis=0))


def test_a_dealer_of_shares_that_fit_no_polynomial_is_named_when_they_are_needed(monkeypatch) -> None:
    dealt = party.Secrets.shares

    def scattered(self):
        shares = dealt(self)
        return np.random.default_rng(5).integers(0, 256, shares.shape, dtype=np.uint8) if self._index == 7 else shares

    monkeypatch.setattr(party.Secrets, "shares", scattered)
    np.testing.assert_array_equal(Sum(CONTEXT, VALUES).run().sums, VALUES.sum(axis=0))
    with pytest.raises(QuorumLost, match=NAMES[7]) as lost:
        Sum(CONTEXT, VALUES, absent={"mask": [7]}).run()
    assert lost.value.left_out[NAMES[7]] == "inconsistent_shares"


def test_a_mask_key_that_does_not_fit_the_advertised_one_is_detected(monkeypatch) -> None:
    """All its shares lie on one polynomial, of another key."""
    monkeypatch.setattr(
        party.Secrets,
        "mask_key_bytes",
        property(lambda self: self._derived(b"other" if self._index == 7 else b"mask key")),
    )
    monkeypatch.setattr(
        party.Secrets,
        "mask_key",
        lambda self: party.Secrets.sealing_key(self),
    )
    with pytest.raises(QuorumLost, match=NAMES[7]) as lost:
        Sum(CONTEXT, VALUES, absent={"mask": [7]}).run()
    assert lost.value.left_out[NAMES[7]] == "inconsistent_shares"


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
    with pytest.raises(MalformedMessage, match="neither tag nor signature is"):
        honest.members[4].answer("share", tuple(request))
    other = Member(make_context(12, 2, 1, batch=2), 4, VALUES[4])
    renamed = other.context.graph.neighbours(4)
    advertised, reverse = honest.advertised, other.context.graph.reverse
    rows = honest.keys.table[renamed], advertised.signatures[renamed], advertised.tags[renamed, reverse]
    with pytest.raises(MalformedMessage, match="neither tag nor signature is"):
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


@pytest.mark.parametrize("change", [swap, lambda sealed: np.repeat(sealed[:1], len(sealed), axis=0), flipped])
def test_swapped_or_replayed_sealed_shares_do_not_open(honest, change) -> None:
    request = changed(honest.agreed.request(4), 8, change)
    _, kinds, shares = honest.members[4].answer("unmask", request)
    good = honest.replies["unmask"][4][1]
    differs = (request[8] != honest.agreed.request(4)[8]).any(axis=1) & (good != 0)
    assert differs.any()
    assert (kinds[differs] == NOT_OPENED).all()
    assert not shares[differs].any()
    np.testing.assert_array_equal(kinds[~differs], good[~differs])


def test_sealed_shares_of_another_run_or_receiver_do_not_open(honest) -> None:
    again = Sum(make_context(12, 2, 1, run=b"again"), VALUES, absent={"mask": [7]})
    again.run()
    for sealed in (again.shared.sealed[4], honest.shared.sealed[4]):
        request = changed(honest.agreed.request(4), 8, lambda _, sealed=sealed: sealed)
        _, kinds, _ = honest.members[4].answer("unmask", request)
        assert not np.isin(kinds, [SEED_SHARE, KEY_SHARE]).any()


def test_sealed_shares_are_bound_to_batch_sender_and_receiver_besides_their_key() -> None:
    key, shares = bytes(range(32)), bytes(range(64))
    sealed = seal(shares, key, CONTEXT, sender=1, receiver=2)
    assert unseal(sealed, key, CONTEXT, sender=1, receiver=2) == shares
    assert unseal(sealed, key, CONTEXT, sender=2, receiver=1) is None
    assert unseal(sealed, key, CONTEXT, sender=1, receiver=3) is None
    assert unseal(sealed, key, make_context(12, 2, 1, batch=2), sender=1, receiver=2) is None
    assert unseal(sealed, key, make_context(12, 2, 1, run=b"2"), sender=1, receiver=2) is None


def test_a_sender_whose_sealed_shares_do_not_open_is_named() -> None:
    opened = Sum(CONTEXT, VALUES, tamper=tampering("share", 3, 0, lambda sealed: sealed ^ np.uint8(255))).run()
    assert opened.faults == {NAMES[3]: "unopened_shares"}
    np.testing.assert_array_equal(opened.sums, VALUES.sum(axis=0))


def test_another_set_of_sharers_is_refused_after_the_votes_were_masked(honest) -> None:
    member = honest.members[4]
    request = honest.shared.request(4)
    fewer = changed(request, 0, lambda sharers: np.where(np.arange(12) == 5, 0, sharers).astype(np.uint8))
    with pytest.raises(Refused, match="other_sharers"):
        member.answer("mask", fewer)
    np.testing.assert_array_equal(member.answer("mask", request)[0], honest.replies["mask"][4][0])


@pytest.mark.parametrize("step", ["agree", "unmask"])
def test_two_sets_of_survivors_are_refused(honest, step) -> None:
    """Party 7 did not mask; the coordinator now says that party 8 did not either."""
    member = honest.members[4]
    request = honest.masked.request if step == "agree" else honest.agreed.request(4)
    other = changed(request, 1, lambda left: np.where(np.arange(12) == 8, 0, left).astype(np.uint8))
    with pytest.raises(Refused, match="other_survivors"):
        party_answer(member, step, other, honest)
    party_answer(member, step, request, honest)


def party_answer(member, step, request, honest):
    """With the note that a ledger would keep, of what was signed first."""
    masked, noted = member.notes["masking"], member.notes["survivors"]
    if step == "agree":
        return party.agree(CONTEXT, 4, request, masked=masked, noted=noted, authenticator=member.authenticator)
    return party.unmask(*member.own, request, masked=masked, noted=noted, authenticator=member.authenticator)


def test_survivors_without_a_quorum_of_signatures_open_nothing(honest) -> None:
    """A party that signed nothing yet is shown another set, with the signatures of the real one."""
    fresh = Member(CONTEXT, 4, VALUES[4])
    fresh.notes["masking"] = honest.members[4].notes["masking"]
    request = honest.agreed.request(4)
    lied = changed(request, 1, lambda left: np.where(np.arange(12) == 11, 0, left).astype(np.uint8))
    with pytest.raises(MalformedMessage, match="neither tag nor signature of 'hospital-000' is"):
        fresh.answer("unmask", lied)


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
    with pytest.raises(Refused, match="not_a_survivor"):
        member.answer("agree", without)


def test_no_party_gives_both_shares_of_another(honest) -> None:
    for index, (_, kinds, shares) in honest.replies["unmask"].items():
        survivors = honest.masked.present[CONTEXT.graph.neighbours(index)]
        np.testing.assert_array_equal(kinds == SEED_SHARE, survivors)
        assert shares.shape == (CONTEXT.graph.degree, 32)


def test_nothing_secret_is_in_a_repr_or_a_message(honest) -> None:
    said = repr(honest.shared) + repr(honest.masked) + repr(honest.agreed)
    said += "".join(map(str, honest.errors.values()))
    secrets = party.Secrets(*honest.members[4].own)
    assert repr(secrets.seed)[2:-1] not in said
    assert secrets.seed.hex() not in said
    assert repr(honest.members[4].batch_secret)[2:-1] not in said + repr(secrets)
