import datetime
import stat
import time

import pytest

from coordinator.home import CoordinatorHome
from coordinator.members import Authority, authority_pem, create_consortium, invitation_toml
from coordinator.serving import DenyList
from coordinator.store.store import Store
from protocols.crypto.identity import (
    certificate_from_pem,
    certificate_request,
    identify,
    new_key,
    phrase,
    request_fingerprint,
    to_pem,
)
from protocols.errors import InvalidInput
from protocols.wire.enrolment import Enrol
from tests.harness.operators import SETTINGS, enrol, make_home
from tests.harness.refusals import refused_for, refuses


def now():
    """The clock, when it is looked at: the suite takes longer than clocks may differ."""
    return datetime.datetime.now(datetime.UTC)


@pytest.fixture
def home(tmp_path):
    return make_home(tmp_path)


class Clock:
    """Nanoseconds since 1970, days ahead of the machine's."""

    days = 0

    def __call__(self):
        return time.time_ns() + self.days * 86_400 * 10**9

    @property
    def now(self):
        return datetime.datetime.fromtimestamp(self() / 1e9, datetime.UTC)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def store(home, clock):
    with Store(home, clock=clock, steady=lambda: clock() / 1e9) as opened:
        yield opened


@pytest.fixture
def authority(home, store):
    return Authority(home, store, SETTINGS)


def party_of(pem, home, at):
    """Whom a certificate of the consortium names at a time."""
    return identify(certificate_from_pem(pem), authority=home.authority(), now=at, role="party")


def request_of(party, key=None):
    return certificate_request(key or new_key(), name=party)


def test_a_new_consortium_has_a_coordinator_that_its_authority_vouches_for(home):
    made = identify(home.certificate(), authority=home.authority(), now=now(), role="coordinator")
    assert made.name == "centre"
    for private in (home.key_file, home.authority_key_file, home.store_file):
        assert stat.S_IMODE(private.stat().st_mode) == 0o600
    with refuses(InvalidInput, "already"):
        create_consortium(home, SETTINGS)


def test_an_init_that_was_interrupted_may_be_run_again(home):
    home.settings_file.unlink()
    create_consortium(home, SETTINGS)
    assert identify(home.certificate(), authority=home.authority(), now=now(), role="coordinator").name == "centre"


def test_a_party_that_was_approved_gets_its_certificate_and_only_its_key_does(home, store):
    key, pem = enrol(home, store, "hospital-0")
    identity = party_of(pem, home, now())
    assert identity.name == "hospital-0"
    assert identity.fingerprint == request_fingerprint(request_of("hospital-0", key))


def test_the_invitation_file_holds_what_a_hospital_needs(home):
    import base64
    import tomllib

    text = invitation_toml(SETTINGS, party="a", token=bytes(range(32)), authority=authority_pem(home))
    read = tomllib.loads(text)
    assert set(read) == {"consortium", "party", "coordinator", "address", "enrol_address", "token", "authority"}
    assert base64.urlsafe_b64decode(read["token"]) == bytes(range(32))
    assert certificate_from_pem(read["authority"].encode()) == home.authority()


def test_a_token_is_for_one_party_and_one_key(authority):
    token = authority.invite("a")
    first = to_pem(request_of("a"))
    assert authority.enrol(Enrol("a", token, first)).code == "pending"
    assert authority.enrol(Enrol("a", token, first)).code == "pending"
    assert authority.enrol(Enrol("a", token, to_pem(request_of("a")))).code == "invitation_used"
    assert authority.enrol(Enrol("b", token, to_pem(request_of("b")))).code == "unknown_invitation"
    assert authority.enrol(Enrol("b", token, first)).code == "wrong_name"
    assert authority.enrol(Enrol("a", bytes(32), first)).code == "unknown_invitation"
    assert authority.enrol(Enrol("a", token, b"junk")).code == "invalid_input"
    assert authority.enrol(Enrol("../a", token, first)).code == "invalid_input"


def test_a_fingerprint_is_compared_however_it_was_typed(authority, store):
    request = request_of("a")
    authority.enrol(Enrol("a", authority.invite("a"), to_pem(request)))
    digits = request_fingerprint(request)
    other = digits[:-1] + ("0" if digits[-1] != "0" else "1")
    with refused_for("fingerprint_mismatch"):
        authority.approve("a", key_fingerprint=other)
    assert store.members.certificates()[-1].role == "coordinator"
    misheard = "-".join([*phrase(digits).split("-")[:-1], "zoo" if not phrase(digits).endswith("zoo") else "abandon"])
    with refused_for("fingerprint_mismatch", misheard) as refused:
        authority.approve("a", key_fingerprint=misheard)
    assert digits not in str(refused.value)
    assert phrase(digits) not in str(refused.value)
    assert authority.approve("a", key_fingerprint=digits.replace(":", "").lower()).name == "a"
    with refused_for("no_request"):
        authority.approve("a", key_fingerprint=digits)
    with refuses(InvalidInput, 64):
        authority.approve("a", key_fingerprint="AA:BB")
    assert [e.event for e in store.entries()][-3:] == ["fingerprint_mismatch"] * 2 + ["approved"]


def test_a_fingerprint_may_be_typed_in_words(authority):
    request = request_of("a")
    authority.enrol(Enrol("a", authority.invite("a"), to_pem(request)))
    words = phrase(request_fingerprint(request))
    with refuses(InvalidInput, "fingerprint", 8, "abandn", "abandon"):
        authority.approve("a", key_fingerprint=words.rpartition("-")[0] + " abandn")
    assert authority.approve("a", key_fingerprint=words.upper().replace("-", "  ")).name == "a"


def test_a_renewal_keeps_name_and_key(home, store, authority, clock):
    key, pem = enrol(home, store, "a")
    identity = party_of(pem, home, now())
    clock.days = 80
    renewed = certificate_from_pem(authority.renew(identity, to_pem(request_of("a", key))))
    again = identify(renewed, authority=home.authority(), now=clock.now, role="party")
    assert (again.name, again.fingerprint) == (identity.name, identity.fingerprint)
    assert again.serial != identity.serial
    for other in (request_of("a"), request_of("b", key)):
        with refused_for("other_key"):
            authority.renew(identity, to_pem(other))
    with refused_for("bad_request"):
        authority.renew(identity, b"junk")


def test_a_renewal_is_refused_while_more_than_half_of_the_time_is_left(home, store, authority, clock):
    key, pem = enrol(home, store, "a")
    identity = party_of(pem, home, now())
    for days in (0, 44):
        clock.days = days
        with refused_for("too_early"):
            authority.renew(identity, to_pem(request_of("a", key)))
    clock.days = 46
    first = authority.renew(identity, to_pem(request_of("a", key)))
    # The new one is lost on the way: the node asks again with the old one, and no further one is issued.
    assert authority.renew(identity, to_pem(request_of("a", key))) == first
    again = party_of(first, home, clock.now)
    with refused_for("too_early"):
        authority.renew(again, to_pem(request_of("a", key)))
    assert len([each for each in store.members.certificates() if each.name == "a"]) == 2


def test_a_revoked_party_is_denied_with_all_its_certificates_and_gets_no_more(home, store, authority, clock):
    denied = DenyList(store)
    key, pem = enrol(home, store, "a")
    identity = party_of(pem, home, now())
    clock.days = 80
    renewed = certificate_from_pem(authority.renew(identity, to_pem(request_of("a", key))))
    assert denied(identity) is None
    open_token = authority.invite("a")
    assert len(authority.revoke(party="a", serial=None, reason="laptop stolen")) == 2
    denied.look()
    assert denied(identity) == "laptop stolen"
    assert denied(identify(renewed, authority=home.authority(), now=clock.now, role="party")) == "laptop stolen"
    with refused_for("revoked"):
        authority.renew(identity, to_pem(request_of("a", key)))
    assert authority.enrol(Enrol("a", open_token, to_pem(request_of("a")))).code == "invitation_withdrawn"
    # A new invitation brings the party back with a new key, never with the old one.
    assert authority.enrol(Enrol("a", authority.invite("a"), to_pem(request_of("a", key)))).code == "revoked_key"
    _, fresh = enrol(home, store, "a")
    denied.look()
    assert denied(party_of(fresh, home, clock.now)) is None


@pytest.mark.parametrize("which", [0, 1])
def test_a_serial_that_is_revoked_denies_every_certificate_of_its_key(home, store, authority, clock, which):
    denied = DenyList(store)
    key, pem = enrol(home, store, "a")
    _, other = enrol(home, store, "a")
    first = party_of(pem, home, now())
    bystander = party_of(other, home, now())
    clock.days = 80
    renewed = certificate_from_pem(authority.renew(first, to_pem(request_of("a", key))))
    second = identify(renewed, authority=home.authority(), now=clock.now, role="party")
    serial = str((first, second)[which].serial)
    assert set(authority.revoke(party=None, serial=serial, reason="key lost")) == {
        str(first.serial),
        str(second.serial),
    }
    denied.look()
    assert (denied(first), denied(second), denied(bystander)) == ("key lost", "key lost", None)
    clock.days = 160
    for identity in (first, second):
        with refused_for("revoked"):
            authority.renew(identity, to_pem(request_of("a", key)))


def test_a_key_that_two_parties_use_is_denied_to_both(home, store, authority):
    key, _ = enrol(home, store, "a")
    enrol(home, store, "b", key)
    assert len(authority.revoke(party="a", serial=None, reason="r")) == 2


def test_one_certificate_can_be_revoked_by_its_serial(home, store, authority):
    enrol(home, store, "a")
    serial = next(each.serial for each in store.members.certificates() if each.role == "party")
    assert authority.revoke(party=None, serial=serial, reason="r") == [serial]
    with refuses(InvalidInput, "1"):
        authority.revoke(party=None, serial="1", reason="r")
    with refuses(InvalidInput, "nobody"):
        authority.revoke(party="nobody", serial=None, reason="r")


def test_a_certificate_that_the_store_forgot_is_denied(home, tmp_path):
    """A store restored from a backup has forgotten whom it denied."""
    with Store(home) as store:
        _, pem = enrol(home, store, "a")
    other = CoordinatorHome(tmp_path / "other")
    create_consortium(other, SETTINGS)
    with Store(other) as forgetful:
        identity = party_of(pem, home, now())
        assert "not in this coordinator's records" in DenyList(forgetful)(identity)


def test_a_certificate_that_was_approved_a_moment_ago_is_known_at_once(home, store):
    denied = DenyList(store)
    _, pem = enrol(home, store, "a")
    assert denied(party_of(pem, home, now())) is None


def test_refusals_are_in_the_audit_log_without_the_token_and_do_not_fill_it(authority, store, monkeypatch):
    monkeypatch.setattr("coordinator.members._LOGGED_REFUSALS", 3)
    token = bytes(range(32))
    for _ in range(5):
        authority.enrol(Enrol("a", token, to_pem(request_of("a"))))
    refused = [entry for entry in store.entries() if entry.event == "enrol_refused"]
    assert [dict(entry.fields) for entry in refused] == [{"party": "a", "code": "unknown_invitation"}] * 3
    whole = b"".join(path.read_bytes() for path in store.home.folder.glob("store.sqlite*"))
    assert token not in whole
    kept = authority.invite("a")
    whole = b"".join(path.read_bytes() for path in store.home.folder.glob("store.sqlite*"))
    assert kept not in whole


def test_the_coordinators_certificate_is_renewed_when_little_is_left(home, authority, clock):
    before = home.certificate()
    clock.days = 330
    assert authority.own_certificate() == before
    clock.days = 340
    renewed = authority.own_certificate()
    assert renewed.serial_number != before.serial_number
    assert home.certificate() == renewed
    assert identify(renewed, authority=home.authority(), now=clock.now, role="coordinator").name == "centre"


@pytest.fixture
def jumping(home, clock):
    """An authority whose clock is held against one that only goes on."""
    with Store(home, clock=clock) as store:
        yield Authority(home, store, SETTINGS)


def test_nothing_is_issued_while_the_clock_is_where_it_jumped_to(home, store, authority, jumping, clock):
    key = new_key()
    old = party_of(enrol(home, store, "hospital-0", key)[1], home, clock.now)
    mine, request = home.certificate(), to_pem(request_of("hospital-0", key))
    clock.days = 360
    with refused_for("clock_jumped"):
        jumping.renew(old, request)
    assert not jumping.renewal_due(mine)
    clock.days = 0
    assert store.members.certificates() == jumping._store.members.certificates()
    assert home.certificate() == mine


def test_a_certificate_dated_by_a_clock_that_was_ahead_is_neither_given_again_nor_kept(home, store, authority, clock):
    key = new_key()
    old = party_of(enrol(home, store, "hospital-0", key)[1], home, clock.now)
    request = to_pem(request_of("hospital-0", key))
    clock.days = 88
    ahead = certificate_from_pem(authority.renew(old, request))
    clock.days = 60
    assert ahead.not_valid_before_utc > clock.now
    again = party_of(authority.renew(old, request), home, clock.now)
    assert again.serial not in (old.serial, ahead.serial_number)


def test_who_enrolled_under_a_clock_that_was_ahead_is_given_one_that_is_valid(home, authority, clock):
    key, token = new_key(), authority.invite("hospital-0")
    message = Enrol("hospital-0", token, to_pem(request_of("hospital-0", key)))
    assert authority.enrol(message).code == "pending"
    clock.days = 100
    authority.approve("hospital-0", key_fingerprint=request_fingerprint(request_of("hospital-0", key)))
    clock.days = 0
    first = authority.enrol(message).certificate
    given = party_of(first, home, clock.now)
    assert given.name == "hospital-0"
    assert authority.enrol(message).certificate == first


def test_a_certificate_of_the_coordinator_dated_by_a_clock_that_was_ahead_is_renewed(home, authority, clock):
    clock.days = 340
    ahead = authority.own_certificate()
    assert home.certificate() == ahead
    clock.days = 0
    assert authority.renewal_due(ahead)
    made = authority.own_certificate()
    assert identify(made, authority=home.authority(), now=clock.now, role="coordinator").name == "centre"
