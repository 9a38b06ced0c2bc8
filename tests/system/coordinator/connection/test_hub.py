"""Nodes and hub over real mutual TLS on loopback: the same labels as in one process, and who is turned away."""

import asyncio
import datetime
import shutil
import sqlite3
import threading
import time

import grpc
import numpy as np
import pytest

from coordinator.connection.sessions import UNASKED, Session
from coordinator.in_process import InProcessTransport
from party.party import Party
from protocols.crypto.identity import COORDINATOR_HOST, Identity, issue, key_to_pem, new_authority, new_key, to_pem
from protocols.errors import Refused
from protocols.labelling.coordinator import Coordinator
from protocols.ledger.ledger import Ledger
from protocols.levels.clear import ClearAggregation
from protocols.noise import simulated
from protocols.study.queries import QueryBatch
from protocols.wire.frames import NONCE_BYTES, SESSION_METHOD, Renew
from protocols.wire.messages import VoteRequest
from tests.harness.clocks import wait_until
from tests.harness.consortium import Consortium
from tests.harness.refusals import refused_for
from tests.harness.studies import NOW, deployed_study, pool_of, voter


@pytest.fixture
def consortium(tmp_path):
    with Consortium(deployed_study(4), tmp_path) as made:
        yield made


def in_one_process(study):
    parties = {
        seat.party: Party(seat.party, study=study, ledger=Ledger(":memory:"), voter=voter(seat.party), coins_from=None)
        for seat in study.roster
    }
    coordinator = Coordinator(
        study,
        ledger=Ledger(":memory:"),
        aggregation=ClearAggregation(simulated(np.random.default_rng(1))),
        exchange=InProcessTransport({name: party.handle for name, party in parties.items()}),
        run=b"run",
    )
    return coordinator.label(pool_of(study.terms.pool_size, study.terms.input_shape[0]))


def test_labels_and_spend_are_those_of_one_process(consortium):
    consortium.start_all()
    labelled, expected = consortium.label(), in_one_process(consortium.study)
    np.testing.assert_array_equal(labelled.labels, expected.labels)
    np.testing.assert_array_equal(labelled.spent, expected.spent)
    assert (labelled.labels >= 0).sum() > 5
    assert len(labelled.batches) > 1
    assert labelled.stop.reason == expected.stop.reason
    assert labelled.refusals == {}
    assert labelled.ledger_differences == {}
    for name, spent in zip(consortium.parties, expected.spent, strict=True):
        assert consortium.ledgers[name].balance(name).spent == spent


def test_a_party_that_asks_for_a_certificate_again_and_again_loses_its_session(consortium):
    party = Identity("hospital-0", "party", consortium.authority)
    session = Session(party, bytes(NONCE_BYTES), print, "", "", 1, renewed_s=time.monotonic())

    async def renew(times):
        for _ in range(times):
            await consortium.hub._renewal(session, Renew(b"request"))

    asyncio.run(renew(UNASKED))
    with refused_for("unasked_frames"):
        asyncio.run(renew(1))


def test_a_revoked_party_is_cut_off_at_once_and_its_node_says_so(consortium):
    consortium.start_all()
    consortium.denied["hospital-1"] = "key lost"
    wait_until(lambda: consortium.ended.get("hospital-1") == "revoked")
    assert "hospital-1" not in consortium.hub.connected()


def test_a_restored_backup_of_a_party_is_told_so_and_stops(consortium, tmp_path):
    consortium.start_all()
    consortium.stop_node("hospital-0")
    consortium.ledgers["hospital-0"].close()
    shutil.copy(tmp_path / "hospital-0.sqlite", tmp_path / "backup.sqlite")
    consortium.add_node("hospital-0")
    consortium.start_node("hospital-0")
    consortium.label()
    consortium.stop_node("hospital-0")
    consortium.ledgers["hospital-0"].close()
    consortium.add_node("hospital-0", file="backup.sqlite")
    consortium.start_node("hospital-0")
    wait_until(lambda: consortium.ended.get("hospital-0") == "ledger_rolled_back")
    assert consortium.ledgers["hospital-0"].balance("hospital-0").spent == 0


def test_a_copy_of_a_party_whose_log_went_another_way_stops(consortium, tmp_path):
    consortium.start_all()
    consortium.label()
    consortium.stop_node("hospital-0")
    # A copy that was used elsewhere: as long as the one that is known, or longer, and with other entries.
    ledger = consortium.ledgers["hospital-0"]
    ledger.close()
    with sqlite3.connect(tmp_path / "hospital-0.sqlite") as database:
        database.execute("DROP TRIGGER audit_is_never_deleted")
        database.execute("DELETE FROM audit WHERE count = (SELECT max(count) FROM audit)")
    consortium.add_node("hospital-0")
    for _ in range(3):
        consortium.ledgers["hospital-0"].log.append("elsewhere")
    consortium.start_node("hospital-0")
    consortium.unawaited.add("hospital-0")
    other = replace_pool(consortium)
    other.join()
    wait_until(lambda: consortium.ended.get("hospital-0") == "ledger_rolled_back")


def replace_pool(consortium):
    """Asks one party something by hand, as the next batch would."""
    study = consortium.study
    batch = QueryBatch(99, np.array([0]), pool_of(60, 4)[:1])
    request = VoteRequest(study.digest, b"run", batch)
    transport = consortium.hub.open_study(study, consortium.ledger)
    asking = threading.Thread(target=transport, args=({"hospital-0": request},))
    assert consortium.hub.wait_for(frozenset({"hospital-0"}), timeout_s=300) == frozenset()
    asking.start()
    return asking


def test_a_restored_backup_of_the_coordinator_is_found_out_by_its_parties(consortium, tmp_path):
    consortium.start_all()
    backup = tmp_path / "old.sqlite"
    with sqlite3.connect(tmp_path / "coordinator.sqlite") as source, sqlite3.connect(backup) as target:
        source.backup(target)
    consortium.label()
    consortium.stop_hub()
    consortium.events.clear()
    consortium.start_hub("old.sqlite")
    wait_until(lambda: "coordinator_rolled_back" in consortium.codes("seat_refused"))
    released = consortium.ledger.stored(0)
    with refused_for("coordinator_rolled_back"):
        consortium.label()
    assert released is None or not released.settled


def test_a_hospital_that_the_operator_goes_on_without_is_told_at_once_and_still_told_outcomes(consortium):
    consortium.start_all()
    busy = consortium.hub._sessions.open["hospital-2"]
    busy.waiting[b"of another study"] = None
    consortium.hub.go_on_without(consortium.study, {"hospital-2", "hospital-3"})
    wait_until(lambda: consortium.codes("asked_without") == {"asked_without"})
    assert consortium.hub._sessions.open["hospital-2"] is busy  # it is told when it next dials
    busy.waiting.clear()
    spent = consortium.label().spent
    assert consortium.ledgers["hospital-3"].balance("hospital-3").settled == spent[3] > 0
    (about,) = [fields for event, fields in consortium.events if event == "asked_without"]
    assert (about["node"], about["study"], about["seat"]) == ("hospital-3", consortium.study.name, "hospital-3")


def test_a_hub_that_starts_again_goes_on_and_releases_the_same_labels(consortium):
    consortium.start_all()
    first = consortium.label()
    consortium.stop_hub()
    consortium.start_hub()
    again = consortium.label()
    np.testing.assert_array_equal(again.labels, first.labels)
    np.testing.assert_array_equal(again.spent, first.spent)


def test_an_outcome_that_was_lost_is_told_when_the_party_comes_back(consortium):
    consortium.start_all()
    party = consortium.parties["hospital-3"]
    settle, party._settle = party._settle, lambda outcome: (_ for _ in ()).throw(Refused("lost", "on the way"))
    labelled = consortium.label()
    assert labelled.ledger_differences["hospital-3"] > 0
    reserved = consortium.ledgers["hospital-3"].balance("hospital-3").reserved
    assert reserved > 0
    party._settle = settle
    consortium.stop_node("hospital-3")
    consortium.start_node("hospital-3")
    wait_until(lambda: consortium.ledgers["hospital-3"].balance("hospital-3").reserved == 0)
    assert consortium.ledgers["hospital-3"].balance("hospital-3").spent == labelled.spent[3]


def test_a_certificate_near_its_end_is_renewed_over_the_stream(tmp_path):
    with Consortium(deployed_study(2), tmp_path, renew_days_left=60) as consortium:
        consortium.start_all()
        before = NOW + datetime.timedelta(days=60)
        wait_until(lambda: all(each.not_valid_after_utc > before for each in consortium.certificates.values()))
        assert consortium.label().refusals == {}


@pytest.mark.parametrize("fault", ["other authority", "expired", "a coordinator's", "another party's seat"])
def test_a_wrong_certificate_is_turned_away(consortium, fault):
    name = "hospital-0"
    consortium.add_node(name)
    key = consortium.keys[name]
    if fault == "other authority":
        stranger = new_key()
        consortium.certificates[name] = issue(
            authority=new_authority(stranger, name="test", now=NOW, days=9),
            authority_key=stranger,
            public_key=key.public_key(),
            name=name,
            role="party",
            now=NOW,
            days=9,
        )
    elif fault == "expired":
        consortium.certificates[name] = consortium.certify(key, name, now=NOW - datetime.timedelta(days=20), days=10)
    elif fault == "a coordinator's":
        consortium.certificates[name] = consortium.certify(key, name, role="coordinator")
    else:
        consortium.certificates[name] = consortium.certify(key, "hospital-1")
    consortium.start_node(name)
    expected = {"other authority": "wrong_authority", "expired": "certificate_expired", "a coordinator's": "wrong_role"}
    if fault in expected:
        wait_until(lambda: consortium.ended.get(name) == expected[fault])
    else:
        wait_until(lambda: "wrong_seat" in consortium.codes("seat_refused"))
    consortium.unawaited.update(seat.party for seat in consortium.study.roster)
    assert consortium.label().stop.reason == "quorum_lost"
    assert consortium.ledgers[name].balance(name).spent == 0


@pytest.mark.parametrize("how", ["plaintext", "no certificate", "self-signed", "another authority's"])
def test_who_has_no_certificate_of_the_consortium_gets_no_stream(consortium, how):
    authority = to_pem(consortium.authority)
    if how == "plaintext":
        channel = grpc.insecure_channel(consortium.address)
    else:
        key = new_key()
        mine = new_authority(key, name="hospital-0", now=NOW, days=9)
        if how == "another authority's":
            mine = issue(
                authority=mine,
                authority_key=key,
                public_key=key.public_key(),
                name="hospital-0",
                role="party",
                now=NOW,
                days=9,
            )
        pair = (None, None) if how == "no certificate" else (key_to_pem(key), to_pem(mine))
        channel = grpc.secure_channel(
            consortium.address,
            grpc.ssl_channel_credentials(authority, *pair),
            options=[("grpc.ssl_target_name_override", COORDINATOR_HOST)],
        )
    with channel:
        call = channel.stream_stream(SESSION_METHOD)(iter([b"anything"]), timeout=300)
        with pytest.raises(grpc.RpcError):
            next(call)
    assert consortium.hub.connected() == {}


def test_a_stream_that_stays_open_renews_its_certificate_all_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr("party.connection.node._RENEWAL_LOOK_S", 0.2)
    monkeypatch.setattr("coordinator.connection.hub._RENEWAL_PAUSE_S", 0.0)
    with Consortium(deployed_study(1), tmp_path, renew_days_left=200) as consortium:
        consortium.start_all()
        wait_until(lambda: len([1 for event, _ in consortium.events if event == "renewed"]) >= 3)
        assert len([1 for event, _ in consortium.events if event == "connected"]) == 2  # said by both sides, once


def test_a_receipt_that_was_lost_is_asked_for_again(consortium):
    consortium.start_all()
    labelled = consortium.label()
    last = len(labelled.batches) - 1
    with consortium.ledger.log.together():
        consortium.ledger._database.execute("DELETE FROM evidence WHERE number = ? AND name = 'hospital-2'", (last,))
    assert not consortium.ledger.log.kept(last, "hospital-2", "settled")
    spent = consortium.ledgers["hospital-2"].balance("hospital-2")
    consortium.stop_node("hospital-2")
    consortium.start_node("hospital-2")
    wait_until(lambda: consortium.ledger.log.kept(last, "hospital-2", "settled"))
    assert consortium.ledgers["hospital-2"].balance("hospital-2") == spent
