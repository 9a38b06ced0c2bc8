"""A server that deviates where labels are computed: the other one notices, and no label but the agreed ones comes out.

Each attack is made by either server, against the real program of the other. What must not happen is a false label that
nobody notices: how often it does is counted, and is 0.
"""

import numpy as np
import pytest

from protocols.crypto.channel import pair
from protocols.crypto.edwards import POINT_BYTES
from protocols.crypto.garbling import GATE_BYTES, conjunctions_a_query
from protocols.crypto.oblivious_transfer import CHALLENGE_BYTES, TRANSFER_TAG_BYTES, CorrelatedSender
from protocols.errors import ChannelClosed, MalformedMessage, Refused
from protocols.levels.two_server.noisy_argmax import coordinator_evaluates, guardian_evaluates
from tests.harness import label_attacks as attacks
from tests.harness.label_attacks import Changing, claiming, garbling
from tests.harness.seeded import seeded_source
from tests.harness.two_server_sides import converse, coordinator_side, guardian_side, inputs_of, split

QUERIES, CLASSES, THRESHOLD = 4, 3, 20
COUNTS = np.array([[30, 2, 1], [4, 25, 9], [7, 8, 9], [1, 0, 40]])
LABELS = [0, 1, -1, 2]
ZERO = np.zeros((QUERIES, CLASSES), dtype=np.int64)
SERVERS = ("coordinator", "guardian")
# The sizes of messages that attackers change.
MATRIX = CorrelatedSender.message_bytes(31 * CLASSES * QUERIES)
MASKS = -(-3 * QUERIES // 8)
QUESTION, ANSWER = MASKS + POINT_BYTES, POINT_BYTES + TRANSFER_TAG_BYTES


def attacked(attacker, *, evaluates=None, seed=1, masked=False, **changed):
    """(the honest server's result or error, the attacker's, both shares); changed: as for Changing."""
    real = {"coordinator": coordinator_evaluates, "guardian": guardian_evaluates}
    if evaluates is not None:
        real[attacker] = evaluates
    coordinators, guardians = split(COUNTS, np.random.default_rng(seed))
    found = {}

    def kept(server, side):
        def run(channel):
            end = Changing(channel, **changed) if changed and server == attacker else channel
            try:
                found[server] = side(end)
            except (Refused, MalformedMessage, ChannelClosed) as error:
                found[server] = error

        return run

    converse(
        kept("coordinator", lambda channel: coordinator_side(
            channel, coordinators, noise=ZERO, threshold=THRESHOLD,
            total_units=50, masked=masked, source=seeded_source(seed, 1), evaluates=real["coordinator"],
        )),
        kept("guardian", lambda channel: guardian_side(
            channel, guardians, noise=ZERO, threshold=THRESHOLD, total_units=50, masked=masked,
            source=seeded_source(seed, 2), evaluates=real["guardian"],
        )),
        channels=pair(wait_s=300.0),
    )  # fmt: skip
    honest = next(server for server in SERVERS if server != attacker)
    return found[honest], found[attacker], coordinators, guardians


def is_noticed(result):
    """Whether an honest server has no labels; wrong ones are no answer to that."""
    if isinstance(result, Exception):
        return True
    assert result.labels.tolist() == LABELS
    return False


@pytest.mark.parametrize("masked", [False, True])
def test_honest_servers_agree_on_the_labels(masked) -> None:
    guardian, coordinator, *_ = attacked("coordinator", masked=masked)
    assert coordinator.labels.tolist() == LABELS
    assert guardian.signed.tolist() == coordinator.signed.tolist()
    assert (guardian.signed.tolist() == LABELS) != masked
    assert ((guardian.signed < 0) == (coordinator.labels < 0)).all()


@pytest.mark.parametrize("garbler", [attacks.OtherGates, attacks.FlippedOutputs])
@pytest.mark.parametrize("attacker", SERVERS)
def test_a_server_that_garbles_another_circuit_is_noticed(attacker, garbler) -> None:
    """An attacking coordinator that finds the guardian's tag wrong has none to send."""
    result, own, *_ = attacked(attacker, evaluates=getattr(garbling(garbler), f"{attacker}_evaluates"))
    assert is_noticed(result)
    assert "labels_differ" in {getattr(each, "code", "") for each in (result, own)}


@pytest.mark.parametrize(
    ("attacker", "garbler"),
    [("guardian", attacks.SelectiveFailure), ("coordinator", attacks.SelectiveFailureOfTheGuardian)],
)
def test_selective_failure_tells_the_one_bit_whether_it_was_noticed_and_never_falsifies_a_label(
    attacker, garbler
) -> None:
    """It is noticed exactly if the bit that the attacker picked is zero, which is the one bit that a batch leaks."""
    seen = set()
    evaluates = getattr(garbling(garbler), f"{attacker}_evaluates")
    for seed in range(6):
        result, _, coordinators, guardians = attacked(attacker, evaluates=evaluates, seed=seed)
        leads = attacker == "guardian"
        share = coordinators if leads else guardians
        inputs = inputs_of(share, noise=ZERO, leads=leads, threshold=THRESHOLD, total_units=50)
        bit = bool(inputs.bits(slice(0, 1))[0, 0, 0])
        assert is_noticed(result) == (not bit)
        seen.add(bit)
    assert seen == {True, False}


@pytest.mark.parametrize("attacker", SERVERS)
def test_a_wrong_table_is_noticed_or_changes_nothing(attacker) -> None:
    """A table's ciphertext is used for some colours only, so that a change may touch nothing."""
    tables = GATE_BYTES * QUERIES * conjunctions_a_query(classes=CLASSES, threshold=True)
    noticed = [is_noticed(attacked(attacker, size=tables, at=997 * seed, seed=seed)[0]) for seed in range(5)]
    assert any(noticed)


@pytest.mark.parametrize("attacker", SERVERS)
def test_flipped_masks_of_outputs_are_noticed(attacker) -> None:
    result, own, *_ = attacked(attacker, size=QUESTION if attacker == "coordinator" else MASKS)
    assert is_noticed(result)
    assert "labels_differ" in {getattr(each, "code", "") for each in (result, own)}


@pytest.mark.parametrize("attacker", SERVERS)
def test_a_server_that_claims_other_labels_than_it_evaluated_is_noticed(attacker) -> None:
    evaluates = {"coordinator": coordinator_evaluates, "guardian": guardian_evaluates}[attacker]
    result, own, *_ = attacked(attacker, evaluates=claiming(evaluates))
    assert is_noticed(result)
    assert "labels_differ" in {getattr(each, "code", "") for each in (result, own)}


@pytest.mark.parametrize(
    ("attacker", "changed"),
    [
        # The guardian's first message of the size of its answer holds a digest and a point.
        ("guardian", {"size": ANSWER, "number": 1, "at": POINT_BYTES + 3}),
        ("coordinator", {"size": TRANSFER_TAG_BYTES, "at": 3}),
    ],
)
def test_a_server_that_lies_in_the_test_of_equality_is_noticed(attacker, changed) -> None:
    result, *_ = attacked(attacker, **changed)
    assert isinstance(result, Refused)
    assert result.code == "labels_differ"


@pytest.mark.parametrize("attacker", SERVERS)
def test_an_inconsistent_matrix_of_transfers_is_noticed_unless_a_bit_of_the_secret_was_guessed(attacker) -> None:
    """A flip in one column passes where the other server's secret has a zero: half the time, and changes nothing."""
    ends = []
    before, column = CHALLENGE_BYTES if attacker == "guardian" else 0, MATRIX // 128
    for seed in range(6):
        result, *_ = attacked(attacker, size=before + MATRIX, at=before + column * (seed + 1), seed=seed)
        ends.append(is_noticed(result))
        assert not ends[-1] or "inconsistent" in str(result)
    assert set(ends) == {True, False}
