"""One hospital that deals wrong masks cannot make servers leave batches open: after three they take no other."""

from protocols.levels.two_server.batch_notes import MOST_OPENED
from protocols.wire.messages import ConcealedVotes
from tests.harness.guardian_attempts import NAMES, STUDY, World

SMALL = STUDY.voting(batch_limit=1)
# Of what a hospital sends the coordinator: see CoordinatorShare.arrays().
MASKS = (1, 2, 2, 1)


def spoilt(name, reply):
    """The first hospital's reply, with another product of a mask and a key."""
    if name != NAMES[0] or not isinstance(reply, ConcealedVotes):
        return reply
    arrays = [each.copy() for each in reply.arrays]
    (masks,) = (each for each in arrays if each.shape == MASKS)
    masks[0, 0, 1, 0] ^= 1
    return ConcealedVotes(reply.batch_digest, tuple(arrays))


def test_wrong_masks_in_more_batches_than_may_be_left_open_stop_nothing_and_name_their_dealer_alone():
    world = World(study=SMALL, tamper=spoilt)
    got = world.label(queries=MOST_OPENED + 1)
    assert len(got.batches) == MOST_OPENED + 1
    assert got.refusals == {NAMES[0]: "bad_votes"}
    for ledger in (world.own, world.guardians):
        assert ledger.unsettled() == []
        entries = [each for each in ledger.log.entries() if each.event in ("votes_refused", "labels_broken_off")]
        assert [(each.event, each.fields["parties"]) for each in entries] == [("votes_refused", NAMES[0])] * 4
    world.close()
