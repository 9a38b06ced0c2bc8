"""A guardian's folder: keys for their owner alone, a certificate for this name and key alone, and whom it denies."""

import datetime
import stat

import pytest

from coordinator.members import Authority, authority_pem
from coordinator.serving import DenyList
from coordinator.store.store import Store
from guardian.home import GuardianHome, GuardianSettings, accept_certificate, create_guardian
from protocols.crypto.identity import (
    certificate_from_pem,
    certificate_request,
    identify,
    issue,
    key_to_pem,
    may_dial,
    new_authority,
    new_key,
    phrase,
    request_fingerprint,
    to_pem,
)
from protocols.errors import DataCorrupt, DataUnavailable, InvalidInput, Refused
from runtime.files import write_atomically
from tests.harness.operators import enrol, make_home
from tests.harness.refusals import refused_for, refuses

SETTINGS = GuardianSettings(name="notary", coordinator="centre", listen="127.0.0.1:0", metrics_port=0)


def now():
    return datetime.datetime.now(datetime.UTC)


@pytest.fixture
def home(tmp_path):
    made = GuardianHome(tmp_path / "guardian")
    made.print_of_key = create_guardian(made, SETTINGS)
    return made


@pytest.fixture
def store(tmp_path):
    with Store(make_home(tmp_path)) as opened:
        yield opened


@pytest.fixture
def authority(store):
    return Authority(store.home, store, store.home.settings())


def certified(home, authority):
    return authority.certify_guardian(home.request_file.read_bytes(), key_fingerprint=home.print_of_key)


def test_keys_are_their_owners_alone_and_come_back_as_they_were_made(home):
    for file in (home.key_file, home.sealing_file, home.signing_file):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(home.folder.stat().st_mode) == 0o700
    assert home.public_keys()["sealing_key"] == home.sealing_key().public_key().public_bytes_raw().hex()
    assert home.public_keys()["signing_key"] == home.signing_key().public_key().public_bytes_raw().hex()
    assert len(set(home.public_keys().values())) == 2
    assert home.settings() == SETTINGS


def test_a_home_that_holds_a_guardian_gets_no_other_keys(home):
    before = home.public_keys()
    with refuses(InvalidInput, "guardian"):
        create_guardian(home, SETTINGS)
    assert home.public_keys() == before


def test_a_key_file_that_was_cut_is_named(home):
    home.sealing_file.write_bytes(b"short")
    with refuses(InvalidInput, "sealing.pem", 5):
        home.sealing_key()
    home.sealing_file.write_bytes(home.signing_file.read_bytes())
    with refuses(InvalidInput, "sealing.pem", "X25519"):
        home.sealing_key()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('colour = "red"', ("colour",)),
        ("metrics_port = 70000", (0, 65535)),
        ("metrics_port = true", ("metrics_port", "True")),
        ('listen = "nowhere"', ("HOST", "PORT")),
        ('name = "../x"', ("is not allowed",)),
        ('name = "centre"', ("same_organisation",)),
        ("= 1", ("TOML",)),
        ("name", ("TOML",)),
    ],
)
def test_a_wrong_setting_is_named(home, line, said):
    key = line.partition(" ")[0]
    kept = [each for each in home.settings_file.read_text().splitlines() if not each.startswith(f"{key} =")]
    write_atomically(home.settings_file, "\n".join([*kept, line]))
    with refuses((InvalidInput, Refused), *said):
        home.settings()


def test_a_missing_setting_home_and_certificate_are_told_apart(home, tmp_path):
    with refuses(DataUnavailable, "guardian accept"):
        home.identity(now=now())
    write_atomically(home.settings_file, 'name = "notary"')
    with refuses(InvalidInput, "coordinator"):
        home.settings()
    with refuses(DataUnavailable, "guardian init"):
        GuardianHome(tmp_path / "nothing").settings()


def test_a_certificate_is_issued_for_the_fingerprint_that_was_read_out_and_accepted(home, store, authority):
    with refused_for("fingerprint_mismatch"):
        authority.certify_guardian(home.request_file.read_bytes(), key_fingerprint="0" * 64)
    issued = certified(home, authority)
    assert (issued.name, issued.role) == ("notary", "guardian")
    identity = accept_certificate(home, issued.pem, authority_pem(store.home), now=now())
    assert identity == home.identity(now=now())
    assert DenyList(store)(identity) is None
    again = certified(home, authority)  # renews it
    assert again.serial != issued.serial
    assert accept_certificate(home, again.pem, authority_pem(store.home), now=now()).serial == int(again.serial)
    assert "fingerprint_mismatch" in [entry.event for entry in store.entries()]


def test_a_guardian_that_is_revoked_stays_denied_and_gets_no_certificate_for_that_key(home, store, authority):
    issued = certified(home, authority)
    identity = accept_certificate(home, issued.pem, authority_pem(store.home), now=now())
    assert authority.revoke(party="notary", serial=None, reason="left") == [issued.serial]
    assert DenyList(store)(identity) == "left"
    with refused_for("revoked_key"):
        certified(home, authority)


def test_the_coordinator_is_no_guardian_by_name_or_by_key(store, authority, tmp_path):
    other = new_key()
    named = certificate_request(other, name="centre")
    with refused_for("same_organisation"):
        authority.certify_guardian(to_pem(named), key_fingerprint=request_fingerprint(named))
    keyed = certificate_request(store.home.key(), name="notary")
    with refused_for("same_organisation"):
        authority.certify_guardian(to_pem(keyed), key_fingerprint=request_fingerprint(keyed))


def test_a_party_is_no_guardian_and_a_guardian_no_party(home, store, authority):
    key, _ = enrol(store.home, store, "hospital-a")
    for asks in (certificate_request(new_key(), name="hospital-a"), certificate_request(key, name="notary")):
        with refused_for("same_organisation"):
            authority.certify_guardian(to_pem(asks), key_fingerprint=request_fingerprint(asks))
    certified(home, authority)
    for name, party_key in (("notary", new_key()), ("hospital-b", home.key())):
        with refused_for("same_organisation"):
            enrol(store.home, store, name, party_key)


def test_a_certificate_of_another_role_name_key_or_consortium_is_not_accepted(home, store, authority):
    root_key, signer = new_key(), new_key()
    root = new_authority(root_key, name="heart", now=now(), days=9)

    def made(*, key=None, name="notary", role="guardian", authority_key=root_key, days=5, at=None):
        public = (key or home.key()).public_key()
        return to_pem(
            issue(authority=root, authority_key=authority_key, public_key=public, name=name, role=role, now=at or now(),
                  days=days)
        )  # fmt: skip

    past = now() - datetime.timedelta(days=9)
    for pem, code in (
        (made(role="coordinator"), "wrong_role"),
        (made(role="party"), "wrong_role"),
        (made(name="another"), "bad_certificate"),
        (made(key=new_key()), "bad_certificate"),
        (made(authority_key=signer), "wrong_authority"),
        (made(days=3, at=past), "certificate_expired"),
    ):
        with pytest.raises(Refused) as refused:
            accept_certificate(home, pem, to_pem(root), now=now())
        assert refused.value.code == code
        assert not home.certificate_file.exists()
    with refuses(InvalidInput, "certificate"):
        accept_certificate(home, b"no", to_pem(root), now=now())
    accept_certificate(home, made(), to_pem(root), now=now())
    with refused_for("other_authority"):
        accept_certificate(home, certified(home, authority).pem, authority_pem(store.home), now=now())


def test_a_guardian_that_is_given_the_coordinators_key_and_certificate_does_not_start(home, store, authority):
    accept_certificate(home, certified(home, authority).pem, authority_pem(store.home), now=now())
    home.key_file.write_bytes(key_to_pem(store.home.key()))
    with refused_for("bad_certificate"):
        home.identity(now=now())
    home.certificate_file.write_bytes(to_pem(store.home.certificate()))
    with refused_for("wrong_role"):
        home.identity(now=now())


def test_a_key_that_is_denied_stays_denied_however_its_fingerprint_was_typed(home):
    assert home.denied() == frozenset()
    print_of_key = request_fingerprint(certificate_request(new_key(), name="centre"))
    assert home.deny(print_of_key.replace(":", "").lower()) == print_of_key
    home.deny("ab" * 32)
    assert home.denies(print_of_key)
    other = request_fingerprint(certificate_request(new_key(), name="centre"))
    assert not home.denies(other)
    home.deny(phrase(other).replace("-", " "))
    assert home.denies(other)
    home.denied_file.write_text(f"{print_of_key}\n{'AB' * 32}\n")
    assert home.denied() == {print_of_key, ":".join(["AB"] * 32)}
    with refuses(InvalidInput, 64):
        home.deny("centre")
    home.denied_file.write_text("centre")
    with refuses(DataCorrupt, "fingerprints"):
        home.denied()


def test_a_coordinators_certificate_from_before_guardians_is_renewed_so_that_it_may_dial(store, authority):
    certificate = authority.own_certificate()
    assert may_dial(certificate)
    assert authority.own_certificate() == certificate
    # One that is for servers alone, as coordinators had them.
    old = issue(
        authority=authority.certificate,
        authority_key=store.home.authority_key(),
        public_key=store.home.key().public_key(),
        name="centre",
        role="guardian",
        now=now(),
        days=300,
    )
    write_atomically(store.home.certificate_file, to_pem(old))
    renewed = authority.own_certificate()
    assert may_dial(renewed)
    assert certificate_from_pem(store.home.certificate_file.read_bytes()) == renewed
    assert identify(renewed, authority=authority.certificate, now=now(), role="coordinator").name == "centre"
