"""Serve with a hub of one process, and with the real one and nodes over mutual TLS."""

import io
import threading
import time
import urllib.error
import urllib.request

import grpc
import pytest

from coordinator.home import CoordinatorSettings, settings_toml
from coordinator.members import Authority
from coordinator.serving import serve
from coordinator.status import alive, read_status
from coordinator.store.store import Store
from protocols.crypto.identity import COORDINATOR_HOST, certificate_from_pem, certificate_request, new_key, to_pem
from protocols.errors import InvalidInput, StorageFailed
from protocols.ledger.ledger import Ledger
from protocols.wire.enrolment import ENROL_METHOD, Enrol, decode_enrolled, encode_enrol
from runtime.address import free_port
from runtime.files import alone, serving_alone, write_atomically
from runtime.logs import Log
from runtime.loopback import Monitor
from tests.harness.clocks import wait_until
from tests.harness.operators import SETTINGS, FakeHub, add_study, make_home
from tests.harness.refusals import refused_for, refuses
from tests.harness.served_homes import Hospital, Served


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr("coordinator.labelling.jobs._FIRST_WAIT_S", 0.05)
    monkeypatch.setattr("coordinator.labelling.jobs._LOOK_S", 0.01)
    monkeypatch.setattr("coordinator.serving._LOOK_S", 0.02)


@pytest.fixture
def home(tmp_path):
    return make_home(tmp_path)


def test_a_job_that_is_asked_for_while_serve_runs_is_run(home, tmp_path):
    study = add_study(home, tmp_path)
    hub = FakeHub(study)
    with Served(home, hub) as served, Store(home) as store:
        store.ask_job("test", student=None)
        wait_until(lambda: store.job("test").ended)
        assert store.job("test").state == "finished"
        assert {each.party for each in store.sessions()} == {"hospital-0", "hospital-1", "hospital-2"}
    assert served.error is None
    assert hub.events == ["start", "stop"]
    names = [event["event"] for event in served.events()]
    assert names == ["serving", "job_started", "job_ended", "served"]
    with Store(home) as store:
        assert store.sessions() == []
        assert store.serving() is None


def test_a_study_that_is_created_while_serve_runs_is_opened(home, tmp_path):
    with Served(home, FakeHub(add_study(make_home(tmp_path / "x"), tmp_path))) as served:
        add_study(home, tmp_path)
        with Store(home) as store:
            store.ask_job("test", student=None)
            wait_until(lambda: store.job("test").ended)
            assert store.job("test").state == "finished"
    assert served.error is None


def test_a_job_that_was_under_way_goes_on_by_itself_with_the_same_questions(home, tmp_path):
    hub = FakeHub(add_study(home, tmp_path))
    hub.hold = threading.Event()
    with Store(home) as store:
        store.ask_job("test", student=None)
        with Served(home, hub) as first:
            hub.in_round.wait(300)
        assert first.error is None
        hub.hold.set()
        assert store.job("test").state == "running"
        with Served(home, hub):
            wait_until(lambda: store.job("test").ended)
        assert store.job("test").state == "finished"
    digests = {}
    for number, digest in hub.asked:
        assert digests.setdefault(number, digest) == digest


class Clock:
    """Nanoseconds since 1970, so many days from the machine's."""

    def __init__(self, days):
        self.days = days

    def __call__(self):
        return time.time_ns() + int(self.days * 86_400) * 10**9


def test_the_certificate_is_renewed_while_serve_runs_and_a_job_that_was_under_way_goes_on(home, tmp_path):
    hub, clock = FakeHub(add_study(home, tmp_path)), Clock(330)
    hub.hold = threading.Event()
    before = home.certificate()
    with Served(home, hub, clock) as served, Store(home) as store:
        store.ask_job("test", student=None)
        hub.in_round.wait(300)
        assert hub.callbacks["certificate"] == before
        clock.days = 340
        wait_until(lambda: hub.events == ["start", "stop", "start"])
        renewed = hub.callbacks["certificate"]
        assert renewed.not_valid_after_utc > before.not_valid_after_utc
        assert renewed.public_key() == before.public_key()
        hub.hold.set()
        wait_until(lambda: store.job("test").ended)
        assert store.job("test").state == "finished"
    assert served.error is None
    assert hub.events == ["start", "stop", "start", "stop"]
    assert home.certificate() == renewed
    assert "certificate_due" in {event["event"] for event in served.events()}


def test_a_certificate_that_ends_with_the_authority_is_not_renewed_for_ever(home, tmp_path, monkeypatch):
    monkeypatch.setattr("coordinator.members._RENEW_DAYS_LEFT", 10_000)
    monkeypatch.setattr("coordinator.members.COORDINATOR_DAYS", 10_000)
    hub = FakeHub(add_study(home, tmp_path))
    with Served(home, hub), Store(home) as store:
        since = store.serving().seen_s
        wait_until(lambda: store.serving().seen_s > since + 0.2)
    assert hub.events == ["start", "stop"]


def test_nodes_come_back_by_themselves_when_the_certificate_was_renewed(tmp_path, monkeypatch):
    monkeypatch.setattr("coordinator.members.COORDINATOR_DAYS", 30)
    home = make_home(tmp_path)
    before = home.certificate()
    study = add_study(home, tmp_path, quorum=1, parties=1)
    clock = Clock(-0.5)
    with Served(home, clock=clock) as served, Store(home) as store:
        hospital = Hospital("hospital-0", home, study, tmp_path, served.serving.port)
        try:
            wait_until(lambda: len(store.sessions()) == 1)
            assert home.certificate() == before
            monkeypatch.setattr("coordinator.members.COORDINATOR_DAYS", 365)
            since = store.sessions()[0].since_s
            clock.days = 0
            wait_until(lambda: [each.since_s > since for each in store.sessions()] == [True])
            assert home.certificate() != before
            assert store.serving().port == served.serving.port
            store.ask_job("test", student=None)
            wait_until(lambda: store.job("test").ended)
            assert store.job("test").state == "finished"
        finally:
            hospital.close()
    assert served.error is None


def test_a_second_serve_of_a_home_is_refused_and_the_first_goes_on(home, tmp_path):
    hub = FakeHub(add_study(home, tmp_path))
    with Served(home, hub) as first:
        with refused_for("already_serving"):
            serve(home, stop=threading.Event(), log=Log(io.StringIO()), hub_of=hub)
        assert first.error is None
        with Store(home) as store:
            assert alive(store, now_s=time.time()) is not None
    with alone(home.lock_file, serving_alone(home.lock_file)):
        pass


def test_a_full_disk_ends_serve_with_the_job_still_under_way(home, tmp_path, monkeypatch):
    hub = FakeHub(add_study(home, tmp_path))

    def full(*_, **__):
        raise StorageFailed("ledger: database or disk is full")

    with Store(home) as store:
        store.ask_job("test", student=None)
        with monkeypatch.context() as patched:
            patched.setattr(Ledger, "reserve", full)
            with Served(home, hub) as served:
                served.thread.join()
        assert isinstance(served.error, StorageFailed)
        assert store.job("test").state == "running"
        assert hub.events == ["start", "stop"]
        with Served(home, hub):
            wait_until(lambda: store.job("test").ended)
        assert store.job("test").state == "finished"


def test_a_study_that_was_changed_is_refused_and_the_others_are_served(home, tmp_path):
    study = add_study(home, tmp_path)
    file = home.study("test") / "study.toml"
    file.write_text(file.read_text().replace("quorum = 1", "quorum = 2"))
    with Store(home) as store:
        store.ask_job("test", student=None)
        with Served(home, FakeHub(study)) as served:
            wait_until(lambda: store.job("test").ended)
        assert store.job("test").state == "failed"
    assert "study_refused" in {event["event"] for event in served.events()}


def get(port, path):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=300) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_health_and_metrics_are_told_on_loopback(tmp_path):
    home = make_home(tmp_path, metrics_port=free_port())
    study = add_study(home, tmp_path)
    with Served(home, FakeHub(study, present={"hospital-0"})) as served, Store(home) as store:
        port = served.serving.metrics_port
        assert get(port, "/healthz") == (200, "ok\n")
        store.ask_job("test", student=None)
        wait_until(lambda: store.job("test").ended)
        wait_until(lambda: "conclave_parties_connected 1" in get(port, "/metrics")[1])
        page = get(port, "/metrics")[1]
        job = store.job("test")
        assert f'conclave_study_asked{{study="test"}} {job.asked}\n' in page
        assert f'conclave_study_answered{{study="test"}} {job.answered}\n' in page
        assert 'conclave_seat_connected{study="test",seat="hospital-1"} 0\n' in page
        assert 'conclave_events_total{event="job_ended"} 1\n' in page
        assert get(port, "/store.sqlite")[0] == 404
        with refuses(InvalidInput, "a free one"):
            Monitor(port, healthy=lambda: True, metrics=str)


def test_hospitals_are_enrolled_asked_and_revoked_over_mutual_tls(tmp_path):
    home = make_home(tmp_path)
    study = add_study(home, tmp_path, quorum=3)
    hospitals = []
    with Served(home) as served, Store(home) as store:
        try:
            hospitals += [Hospital(f"hospital-{n}", home, study, tmp_path, served.serving.port) for n in range(3)]
            wait_until(lambda: len(store.sessions()) == 3)
            store.ask_job("test", student=None)
            wait_until(lambda: store.job("test").ended)
            assert store.job("test").state == "finished"
            found = store.labelled("test")
            assert found.differences == {}
            shown = read_status(store, now_s=time.time())
            assert [seat["connected"] for seat in shown["studies"][0]["seats"]] == [True] * 3
            assert shown["studies"][0]["asked"] == store.job("test").asked
            Authority(home, store, home.settings()).revoke(party="hospital-1", serial=None, reason="key lost")
            wait_until(lambda: hospitals[1].ended == "revoked")  # though nothing more is sent
            wait_until(lambda: {each.party for each in store.sessions()} == {"hospital-0", "hospital-2"})
        finally:
            for hospital in hospitals:
                hospital.close()
    assert served.error is None
    log = served.out.getvalue()
    assert "BEGIN" not in log
    assert "left_out" not in log


def test_a_new_hospital_asks_for_its_certificate_over_tls(home, tmp_path):
    with Served(home) as served, Store(home) as store:
        authority = Authority(home, store, home.settings())
        key = new_key()
        request = certificate_request(key, name="hospital-7")
        message = encode_enrol(Enrol("hospital-7", authority.invite("hospital-7"), to_pem(request)))
        credentials = grpc.ssl_channel_credentials(to_pem(home.authority()))
        options = [("grpc.ssl_target_name_override", COORDINATOR_HOST)]
        with grpc.secure_channel(f"127.0.0.1:{served.serving.enrol_port}", credentials, options) as channel:
            call = channel.unary_unary(ENROL_METHOD)
            assert decode_enrolled(call(message, timeout=300)).code == "pending"
            (waiting,) = store.members.pending()
            authority.approve("hospital-7", key_fingerprint=waiting.fingerprint)
            answer = decode_enrolled(call(message, timeout=300))
        assert certificate_from_pem(answer.certificate).public_key() == key.public_key()


def test_a_port_that_is_taken_is_said_and_nothing_stays_open(tmp_path):
    import socket

    home = make_home(tmp_path)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        write_atomically(
            home.settings_file,
            settings_toml(CoordinatorSettings(**{**SETTINGS.__dict__, "listen": f"127.0.0.1:{port}"})),
        )
        with pytest.raises(InvalidInput, match="cannot listen"):
            serve(home, stop=threading.Event(), log=Log(io.StringIO()))
    with alone(home.lock_file, serving_alone(home.lock_file)):
        pass


def test_the_operator_is_told_once_that_a_hospital_withdrew_and_the_status_and_a_release_say_so(home, tmp_path):
    study = add_study(home, tmp_path)
    with Served(home) as served, Store(home) as store:
        ended = [study.digest, b"o" * 32]  # the other is none of this consortium's
        for _ in range(2):
            hospital = Hospital(
                "hospital-0", home, study, tmp_path, served.serving.port, withdrawn=lambda: ended
            )  # fmt: skip
            wait_until(lambda: served.count("connected") > served.count("disconnected"))
            hospital.close()
            wait_until(lambda: served.count("connected") == served.count("disconnected"))
        assert list(store.withdrawals.of("test")) == ["hospital-0"]
        seats = read_status(store, now_s=time.time())["studies"][0]["seats"]
        assert [each["withdrawn"] for each in seats] == [True, False, False]
    (told,) = [event for event in served.events() if event["event"] == "withdrawn"]
    assert (told["party"], told["study"]) == ("hospital-0", "test")
