"""Where records vote: two servers open one noisy sum, charge it once, and never another; what of it is refused."""

import numpy as np
import pytest

from coordinator.in_process import InProcessTransport
from protocols.crypto.channel import pair
from protocols.crypto.field import P, minus, plus, to_integers
from protocols.errors import MalformedMessage, Refused
from protocols.labelling import guardian as guardian_module
from protocols.ledger.audit_log import EMPTY
from protocols.levels.two_server import ballot as ballot_module
from protocols.levels.two_server import shared_sums
from protocols.levels.two_server.aggregation import opened_signature
from protocols.levels.two_server.conversation import Submission, send_arrays
from protocols.levels.two_server.one_time_masks import PinnedExchange
from protocols.levels.two_server.shared_sums import (
    SumShare,
    _expanded,
    check_sum_share,
    checks_sums,
    guardian_numbers,
    proofs_of,
    share_sum,
)
from protocols.levels.two_server.shares import GuardianShare
from protocols.levels.two_server.statement import Fate, check_opened
from protocols.refusals.code import Code
from protocols.study.votes import UnitSums
from protocols.wire.messages import ConcealedVotes
from simulations.stages.record_votes import contributions
from tests.harness.guardian_attempts import World
from tests.harness.kept_messages import Breaking
from tests.harness.levels import SIGNING_KEY, GuardianHere, two_server
from tests.harness.record_votes import HOLDINGS, QUERIES, UNITS, study_of
from tests.harness.refusals import refused_for, refuses
from tests.harness.seeded import seeded_source

STUDY = study_of(two_server(units=UNITS), quorum=2)
SUMS = contributions(STUDY, QUERIES, HOLDINGS)
SHAPE = (QUERIES.rows, 2)
PROOFS = proofs_of(STUDY, STUDY.seats, np.arange(QUERIES.rows))
SIZE = PROOFS[1].layout.size
VERIFYING_KEY = SIGNING_KEY.public_key().public_bytes_raw()
# Guardian's end: it takes the submission, accepts, checks in four messages, takes the coordinator's share, answers.
MESSAGES = 8


@pytest.fixture
def world():
    made = records_world()
    yield made
    made.close()


def records_world(**more):
    return World(study=STUDY, vote=lambda position, batch: SUMS[position], **more)


def without(world, *names):
    """The same parties, of whom some do not answer."""
    return InProcessTransport(
        {name: party.handle for name, party in world.parties.items()}, absent=lambda _: frozenset(names)
    )


def near(cells, *positions):
    """Whether the noisy sums are those of these parties: both servers' noise is within seven of its deviations."""
    sigma = np.sqrt(2) * STUDY.mechanism.sigma * UNITS
    return bool(np.abs(cells - sum(SUMS[at] for at in positions)).max() < 7 * sigma)


def test_shares_add_up_to_the_sum_of_all_parties() -> None:
    total = np.zeros(SHAPE, np.uint32)
    for at, (proof, each) in enumerate(zip(PROOFS, SUMS, strict=True)):
        own, share = share_sum(each, proof=proof, context=b"batch", source=seeded_source(at))
        assert own.numbers.nbytes == 4 * proof.layout.size
        assert share.seeds.nbytes == 16
        guardians, elsewhere = (_expanded(share.seeds[0], proof, context) for context in (b"batch", b"batcg"))
        assert (guardians != elsewhere).mean() > 0.99  # a seed opens nothing in another batch
        for numbers, leads in ((own.numbers, True), (guardians, False)):
            total = plus(total, proof.sums(proof.layout.parts(numbers).bits, leads=leads))
    np.testing.assert_array_equal(to_integers(total), np.sum(SUMS, axis=0))


@pytest.mark.parametrize(
    "arrays",
    [
        (),
        (np.zeros(SHAPE, "<u4"), np.zeros(SHAPE, "<u4")),
        (np.zeros(SHAPE, "<u8"),),
        (np.zeros(SHAPE, "<i4"),),
        (np.zeros((SHAPE[0], 3), "<u4"),),
        (np.zeros(SHAPE[0] * 2, "<u4"),),
        (np.full(SHAPE, P, "<u4"),),
    ],
    ids=["nothing", "two arrays", "other words", "signed words", "other classes", "flat", "no element"],
)
def test_a_share_of_another_form_is_malformed(arrays) -> None:
    with refuses(MalformedMessage):
        check_sum_share(arrays, shape=SHAPE)


def test_the_guardian_signs_what_was_opened_and_nothing_else(world) -> None:
    got = world.label()
    assert near(got.cells, 0, 1, 2)
    digest = world.own.stored(0).digest
    signature = opened_signature(world.own, digest)
    about = {"study": STUDY.digest, "request": digest, "key": VERIFYING_KEY}
    check_opened(signature, got.cells, **about)
    other = got.cells.copy()
    other[3, 1] += 1
    for cells, changes in ((other, {}), (got.cells, {"request": bytes(32)}), (got.cells.reshape(2, -1), {})):
        with refused_for("other_sums"):
            check_opened(signature, cells, **(about | changes))


@pytest.mark.parametrize("cut", range(MESSAGES))
def test_a_guardian_that_stops_at_any_message_opens_the_same_sums_when_it_is_back_and_all_is_charged_once(cut) -> None:
    unbroken = records_world()
    expected = unbroken.label()
    made = records_world()
    made.wrap = lambda channel: Breaking(channel, cut)
    assert made.label().stop.reason == "guardian_lost"
    made.wrap = lambda channel: channel
    # Another source: what decides the sums was drawn, and kept, before the stop, or was not drawn yet.
    again = made.label(source=7 if cut == 0 else 8)
    np.testing.assert_array_equal(again.cells, expected.cells)
    own, guardians, parties = made.spent()
    assert own == guardians == parties == again.spent.tolist() == STUDY.budgets.amount(1, 1).tolist()
    for each in (made, unbroken):
        each.close()


def test_a_sum_is_opened_again_as_often_as_the_line_breaks(world) -> None:
    for _ in range(20):
        world.wrap = lambda channel: Breaking(channel, MESSAGES - 1)
        assert world.label().stop.reason == "guardian_lost"
    world.wrap = lambda channel: channel
    assert near(world.label().cells, 0, 1, 2)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda arrays: (arrays[0][:20], arrays[1]), "bad_seal"),
        (lambda arrays: (arrays[0] ^ np.uint8(1), arrays[1]), "bad_seal"),
        (lambda arrays: (arrays[0], arrays[1][:-1]), "bad_votes"),
        (lambda arrays: (arrays[0], arrays[1].astype("<u8")), "bad_votes"),
        (lambda arrays: (arrays[0], arrays[1], arrays[1]), "bad_votes"),
        (lambda arrays: (arrays[0],), "bad_votes"),
        (lambda arrays: (), "bad_votes"),
    ],
    ids=["short seal", "altered seal", "part of the queries", "other words", "one array more", "no share", "nothing"],
)
def test_a_party_whose_shares_have_another_form_is_named_and_pays_nothing_and_the_rest_goes_on(change, code) -> None:
    made = records_world(
        tamper=lambda name, reply: (
            ConcealedVotes(reply.batch_digest, change(reply.arrays))
            if name == "b" and isinstance(reply, ConcealedVotes)
            else reply
        )
    )
    got = made.label()
    assert got.refusals == {"b": code}
    assert near(got.cells, 0, 2)
    own, guardians, _ = made.spent()
    assert own == guardians
    assert own[1] == 0 < own[0]
    made.close()


def more_records(proof):
    """The bits of one record more than are declared, with an honest proof, as far as there can be one."""
    sums = np.zeros(SHAPE, np.int64)
    sums[: proof.each, 0] = (proof.population + 1) * proof.step
    return proof.bits(sums)


def any_vector(proof):
    bits = proof.bits(SUMS[1])
    bits[0] = 2**24
    return bits


def part_of_a_record(proof):
    bits = proof.bits(SUMS[1])
    bits[0] ^= 1
    return bits


@pytest.mark.parametrize("cheated", [more_records, any_vector, part_of_a_record])
def test_a_sum_that_no_declared_units_could_send_is_refused_and_its_party_named(cheated, monkeypatch) -> None:
    """The rest goes on after any stop as it would have gone; the servers charge the party nothing."""

    def lie(ballot, request, cast):
        proof, seeds = PROOFS[STUDY.seats[ballot._seat]], np.frombuffer(ballot._source(32), np.uint8).reshape(2, 16)
        bits = cheated(proof) if ballot._seat == "b" else proof.bits(cast)
        whole = proof.layout.proved(bits, proof.squared(bits, leads=True), seed=seeds[1].tobytes())
        return SumShare(minus(whole, _expanded(seeds[0], proof, request.digest))), GuardianShare(seeds[:1].copy())

    monkeypatch.setitem(ballot_module._SHARED, UnitSums, lie)
    made = records_world()
    for cut in range(MESSAGES):
        made.wrap = lambda channel, cut=cut: Breaking(channel, cut)
        assert made.label().stop.reason == "guardian_lost"
    made.wrap = lambda channel: channel
    got = made.label()
    assert got.refusals == {"b": "bad_votes"}
    assert near(got.cells, 0, 2)
    own, guardians, parties = made.spent()
    assert own == guardians
    assert own[1] == 0 < own[0] == parties[0]
    assert [*made.parties["b"]._ledger.log.entries()][-1].fields["code"] == "bad_votes"
    for ledger in (made.own, made.guardians):
        named = [entry.fields for entry in ledger.log.entries() if entry.event == "votes_refused"]
        assert named == [{"batch": 0, "parties": "b"}]
    made.close()


def test_below_the_quorum_nothing_is_opened_and_the_batch_may_be_submitted_again(world) -> None:
    everybody = world.exchange
    world.exchange = without(world, "a", "b")
    got = world.label()
    assert got.stop.reason == "quorum_lost"
    assert got.cells is None
    world.exchange = everybody
    assert near(world.label().cells, 0, 1, 2)


def test_other_parties_are_not_opened_under_the_same_noise_by_an_honest_coordinator(world, monkeypatch) -> None:
    """A guardian that first takes all shares, and then says that one is faulty, would learn that one's sum."""
    world.wrap = lambda channel: Breaking(channel, MESSAGES - 1)
    assert world.label().stop.reason == "guardian_lost"
    opening = guardian_module.Guardian._open

    def choosy(self, submission):
        shares, taken = opening(self, submission)
        taken[1] = Fate.BAD_SEAL
        return shares[:1] + shares[2:], taken

    monkeypatch.setattr(guardian_module.Guardian, "_open", choosy)
    world.wrap = lambda channel: channel
    with refused_for("other_check"):
        world.label()


def test_other_parties_are_not_opened_under_the_same_noise_by_an_honest_guardian(world) -> None:
    world.wrap = lambda channel: Breaking(channel, MESSAGES - 1)
    assert world.label().stop.reason == "guardian_lost"
    digest = world.own.stored(0).digest
    for kind in ("submitted", "own_share"):
        world.own.forget(digest, kind)
    world.exchange = without(world, "b")
    world.wrap = lambda channel: channel
    with refused_for("guardian_refuses", "other_submission"):
        world.label()


def test_a_coordinator_that_opens_another_share_of_its_own_is_refused(world) -> None:
    world.wrap = lambda channel: Breaking(channel, MESSAGES - 1)
    assert world.label().stop.reason == "guardian_lost"
    for kind in ("noise_seed", "own_share"):
        world.own.forget(world.own.stored(0).digest, kind)
    world.wrap = lambda channel: channel
    assert world.label(source=9).stop.reason == "guardian_lost"
    assert isinstance(world.here.faults[-1], Refused)
    assert world.here.faults[-1].code == Code.OTHER_SUMS


def test_a_guardian_that_settled_has_no_noise_left_and_opens_the_same_share_again(world, monkeypatch) -> None:
    world.wrap = lambda channel: Breaking(channel, MESSAGES - 1)
    assert world.label().stop.reason == "guardian_lost"
    assert world.guardians.stored(0).settled
    assert world.guardians.noted(world.own.stored(0).digest, "noise_seed") is None
    monkeypatch.setattr(guardian_module, "noisy_share", None)
    world.wrap = lambda channel: channel
    assert world.label().stop.reason == "pool_exhausted"


def test_a_coordinator_that_asks_for_part_of_the_queries_is_refused_before_anything_is_charged(world) -> None:
    guardian = GuardianHere(STUDY, world.guardians, seeded_source(1)).guardian
    everyone = np.arange(3)
    submission = Submission(
        STUDY.digest, bytes(32), 0, np.arange(15), everyone, everyone, (b"sealed",) * 3, EMPTY, EMPTY
    )
    here, there = pair(wait_s=2.0)
    send_arrays(here, submission.arrays())
    with refuses(Refused, 16):
        guardian.serve(there)
    assert all(balance.spent == 0 for balance in world.guardians.balances().values())


@pytest.mark.parametrize(
    "answer",
    [(), (np.zeros(3),), (np.zeros(SHAPE, "<u4"),) * 4, (np.zeros((1, 2), "<u4"),) * 4],
    ids=["nothing", "one array", "no signatures", "another shape"],
)
def test_an_answer_of_the_guardian_that_is_none_releases_nothing(world, monkeypatch, answer) -> None:
    monkeypatch.setitem(guardian_module._ANSWER, UnitSums, lambda self, channel, *rest: send_arrays(channel, answer))
    with pytest.raises(MalformedMessage):
        world.label()
    assert not world.own.stored(0).settled


def test_a_batch_that_is_given_up_stays_charged_and_is_never_opened(world) -> None:
    world.wrap = lambda channel: Breaking(channel, 0)
    assert world.label().stop.reason == "guardian_lost"
    world.coordinator().give_up(0, world.pool)
    world.wrap = lambda channel: channel
    got = world.label()
    assert got.cells is None
    assert got.spent.tolist() == STUDY.budgets.amount(1, 1).tolist()
    assert not world.here.faults


@pytest.mark.parametrize("side", ["coordinator", "guardian"])
@pytest.mark.parametrize("wrong", ["other proofs", "short", "no elements"])
def test_a_message_of_the_check_that_is_none_ends_it_before_anything_is_opened(side, wrong) -> None:
    own, share = share_sum(SUMS[1], proof=PROOFS[1], context=b"batch", source=seeded_source(1))
    here, there = pair(wait_s=2.0)
    exchange = PinnedExchange(here, leads=side == "coordinator", pin=lambda step, value: None)
    agreed = shared_sums._agreed([PROOFS[1 if wrong != "other proofs" else 2]], b"batch")
    message = agreed + bytes(32)
    there.send(message[:-1] if wrong == "short" else message)
    there.send(b"\xff" * 4 * sum(shared_sums._sizes(PROOFS[1])))
    given = [own.numbers] if side == "coordinator" else guardian_numbers(share, [PROOFS[1]], b"batch")
    with refuses(MalformedMessage):
        checks_sums(exchange, given, [PROOFS[1]], context=b"batch", secret=bytes(32))
