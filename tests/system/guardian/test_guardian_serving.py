"""guardian serve in a thread, with the real protocol on its port: labels, ledgers, figures, and what is logged."""

import datetime
import io
import json
import stat
import threading
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pytest

from coordinator.serving import check_guardian
from guardian.serving import guardian_status, serve_guardian
from protocols.crypto.identity import fingerprint, issue, to_pem
from protocols.errors import ChannelClosed, ConclaveError, InvalidInput, Refused
from protocols.labelling.coordinator import Labelling
from protocols.ledger.ledger import Ledger
from runtime.address import free_port
from runtime.logs import FIELDS, Log
from tests.harness.clocks import wait_until
from tests.harness.guardians import TwoOrganisations
from tests.harness.refusals import refused_for

TWO_BATCHES = {"pool": 40}


@pytest.fixture
def world(tmp_path):
    made = TwoOrganisations(tmp_path, more=TWO_BATCHES)
    yield made
    made.close()


@contextmanager
def serving(world, *, listen=None):
    """serve in a thread; its log, line by line."""
    out, stop, failed = io.StringIO(), threading.Event(), []

    def run():
        try:
            serve_guardian(world.guardian, listen=listen, stop=stop, log=Log(out))
        except ConclaveError as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        wait_until(lambda: out.getvalue() or failed)
        if failed:
            raise failed[0]
        yield lambda: [json.loads(line) for line in out.getvalue().splitlines()]
    finally:
        stop.set()
        thread.join(300)
        assert not thread.is_alive()


@dataclass
class Served:
    """A study that was labelled once, and what could be seen of its guardian meanwhile."""

    world: TwoOrganisations
    labelling: Labelling
    status: dict
    lines: list
    health: bytes
    page: str
    seeds: dict


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    world = TwoOrganisations(tmp_path_factory.mktemp("served"), more=TWO_BATCHES)
    port = free_port()
    settings, seeds = world.guardian.settings_file, {}
    settings.write_text(settings.read_text().replace("metrics_port = 0", f"metrics_port = {port}"))
    world.on_message = lambda number: seeds.update(world.seeds(world.guardians_ledger()))
    with serving(world) as log:
        assert check_guardian(world.study, world.line()).name == "notary"
        labelling, status = world.label(), guardian_status(world.guardian)
        seen = []
        for path in ("healthz", "metrics"):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=300) as answer:
                seen.append(answer.read())
        world.guardian.deny(fingerprint(world.home.key().public_key()))
        with pytest.raises(Refused):
            check_guardian(world.study, world.line())
        lines = log()
    yield Served(world, labelling, status, lines, seen[0], seen[1].decode(), seeds)
    world.close()


def test_a_study_is_labelled_and_every_ledger_says_the_same(served):
    world, labelling = served.world, served.labelling
    assert labelling.stop.reason in ("pool_exhausted", "budget_exhausted")
    assert (labelling.labels >= 0).sum() > 5
    assert labelling.refusals == {}
    with Ledger(world.guardians_ledger()) as guardians:
        at_guardian = [guardians.balance(seat.party).spent for seat in world.study.roster]
    at_parties = [world.ledgers[seat.party].balance(seat.party).spent for seat in world.study.roster]
    assert labelling.spent.tolist() == at_guardian == at_parties
    (study,) = served.status["studies"]
    assert study["batches"] == len(labelling.batches)
    assert study["asked"] == sum(size for size, _ in labelling.batches)
    assert study["answered"] == sum(answered for _, answered in labelling.batches)
    assert study["unsettled"] == 0
    events = [line["event"] for line in served.lines]
    assert events.count("conversation_began") == events.count("conversation_ended") == len(labelling.batches)


def test_what_is_logged_has_allowed_fields_alone_and_no_secret(served):
    world, text = served.world, json.dumps(served.lines)
    for line in served.lines:
        assert set(line) <= {"time", "event", *FIELDS}
    secrets = [key.private_bytes_raw() for key in (world.guardian.sealing_key(), world.guardian.signing_key())]
    assert not world.seeds(world.guardians_ledger())  # forgotten when a batch is settled
    secrets += [*served.seeds.values()]
    assert len(secrets) > 2
    for secret in secrets:
        assert secret.hex() not in text.lower()
        assert repr(secret)[2:-1] not in text


def test_health_and_metrics_are_on_loopback(served):
    assert served.health == b"ok\n"
    figures = dict(line.rsplit(" ", 1) for line in served.page.splitlines() if not line.startswith("#"))
    (study,) = served.status["studies"]
    for key in ("batches", "asked", "answered", "unsettled"):
        assert float(figures[f'conclave_guardian_study_{key}{{study="test"}}']) == study[key]
    assert 360 < float(figures["conclave_guardian_certificate_days_left"]) < 366
    assert float(figures['conclave_events_total{event="conversation_ended"}']) == study["batches"]


def test_the_guardians_files_are_its_owners_alone(served):
    guardian = served.world.guardian
    for file in (guardian.key_file, guardian.sealing_file, guardian.signing_file):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(guardian.studies.stat().st_mode) == 0o700
    assert stat.S_IMODE((guardian.studies / "test").stat().st_mode) == 0o700


def test_a_key_that_the_guardian_denies_is_refused_while_it_serves(world):
    with serving(world) as log:
        assert check_guardian(world.study, world.line()).name == "notary"
        world.guardian.deny(fingerprint(world.home.key().public_key()))
        with refused_for("revoked"):
            check_guardian(world.study, world.line())
        world.guardian.denied_file.write_text("spoilt")
        with refused_for("data_corrupt"):
            check_guardian(world.study, world.line())
        assert [line.get("code") for line in log()][-2:] == ["revoked", "data_corrupt"]


def test_one_serve_a_home_and_an_address_that_is_free(world):
    with serving(world):
        with refused_for("already_serving"), serving(world, listen="127.0.0.1:0"):
            pass
        other = TwoOrganisations(world.folder / "other")
        with pytest.raises(InvalidInput, match="cannot listen"), serving(other, listen=world.address):
            pass
        other.close()
    with pytest.raises(ChannelClosed):
        check_guardian(world.study, world.line())
    with serving(world, listen="127.0.0.1:0") as log:
        line = world.line(address=f"127.0.0.1:{log()[0]['port']}")
        assert check_guardian(world.study, line).name == "notary"


def test_a_guardian_that_is_gone_stops_the_labelling_and_its_return_ends_it_with_nothing_charged_twice(world):
    assert world.label().stop.reason == "guardian_lost"
    spent = {name: ledger.balance(name).spent for name, ledger in world.ledgers.items()}
    assert world.label().stop.reason == "guardian_lost"
    assert {name: ledger.balance(name).spent for name, ledger in world.ledgers.items()} == spent
    with serving(world):
        labelling = world.label()
    assert labelling.stop.reason in ("pool_exhausted", "budget_exhausted")
    assert labelling.spent.tolist() == [
        world.ledgers[seat.party].balance(seat.party).spent for seat in world.study.roster
    ]


def label_through_breaks(world, *, every, check=lambda: None):
    """(labelling, the message it ended before) of a coordinator that breaks off before the first message, and again
    `every` messages later in each new conversation. Noise is never drawn again. check: is called after each.
    """
    seeds: dict[tuple[str, bytes], bytes] = {}
    broken, labelling = 0, None

    class Broken(Exception):
        pass

    def breaks(number):
        if number == broken:
            raise Broken

    world.on_message = breaks
    with serving(world) as log:
        while labelling is None:
            try:
                labelling = world.label()
            except Broken:
                broken += every
                wait_until(lambda: log()[-1]["event"] in ("conversation_broke", "conversation_ended", "serving"))
            for file in (world.guardians_ledger(), world.folder / "coordinator.sqlite"):
                for digest, seed in world.seeds(file).items():
                    assert seeds.setdefault((file.name, digest), seed) == seed, "noise was drawn again"
            check()
    return labelling, broken


def test_any_message_of_a_conversation_may_be_its_last(world):
    """The coordinator breaks off before some, from the first to the last, and goes on in a new conversation.

    That it may be each one is shown without a port, in tests/contract/protocols/levels/test_guardian_attempts.py.
    """
    seen: dict[int, np.ndarray] = {}

    def released_once():
        for number in range(20):
            stored = world.ledger.stored(number)
            if stored is not None and stored.settled:
                labels = np.frombuffer(stored.payload, dtype="<i8")
                np.testing.assert_array_equal(seen.setdefault(number, labels), labels)

    labelling, broken = label_through_breaks(world, every=5, check=released_once)
    assert broken > 5
    assert labelling.stop.reason in ("pool_exhausted", "budget_exhausted")
    with Ledger(world.guardians_ledger()) as guardians:
        at_guardian = [guardians.balance(seat.party).spent for seat in world.study.roster]
        assert guardians.unsettled() == []
    assert labelling.spent.tolist() == at_guardian


def test_a_certificate_that_is_accepted_while_it_serves_is_used_on_the_same_port(world):
    with serving(world) as log:
        before = check_guardian(world.study, world.line())
        world.accept()
        wait_until(lambda: [line["event"] for line in log()].count("serving") == 2)
        after = check_guardian(world.study, world.line())
        assert world.label().stop.reason in ("pool_exhausted", "budget_exhausted")
    assert after.serial != before.serial
    assert after.fingerprint == before.fingerprint


def test_a_certificate_that_ended_stops_serve_and_not_the_status(world):
    past = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=9)
    ended = issue(
        authority=world.home.authority(),
        authority_key=world.home.authority_key(),
        public_key=world.guardian.key().public_key(),
        name="notary",
        role="guardian",
        now=past,
        days=2,
    )
    world.guardian.certificate_file.write_bytes(to_pem(ended))
    with refused_for("certificate_expired"), serving(world):
        pass
    assert -7.1 < guardian_status(world.guardian)["days_left"] < -6.9
