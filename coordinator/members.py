"""The consortium's authority: who gets a certificate, for how long, and who is denied.

A certificate is issued once the operator has compared the fingerprint of a key with what the hospital, or a guardian,
read out. A hospital's certificate is renewed automatically for the same name and key; another key needs a new
invitation and a new approval.
"""

from __future__ import annotations

import base64
import datetime
import hashlib
import os

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from coordinator.home import CoordinatorHome, CoordinatorSettings, settings_toml
from coordinator.store.members import Issued, Pending
from coordinator.store.store import Store
from protocols.crypto.identity import (
    BACKDATED,
    Identity,
    Role,
    certificate_from_pem,
    check_name,
    fingerprint,
    issue,
    key_to_pem,
    may_dial,
    new_authority,
    new_key,
    normal_fingerprint,
    request_fingerprint,
    request_from_pem,
    same_fingerprint,
    to_pem,
)
from protocols.errors import InvalidInput, Refused
from protocols.refusals.code import Code
from protocols.wire.enrolment import Enrol, Enrolled
from runtime.files import read, write_atomically

AUTHORITY_DAYS = 3650
COORDINATOR_DAYS = 365
GUARDIAN_DAYS = 365
# The coordinator's own certificate is renewed when less than this is left, also while serve runs.
_RENEW_DAYS_LEFT = 30
_TOKEN_BYTES = 32
# Anybody who reaches the port may ask, so refusals beyond this many in one run are not logged one by one.
_LOGGED_REFUSALS = 1000


def create_consortium(home: CoordinatorHome, settings: CoordinatorSettings) -> Identity:
    """Creates authority, coordinator's certificate and store in a new home. Returns the coordinator's identity.

    Raises InvalidInput if the home holds a coordinator. coordinator.toml is written last: a home without it is left
    from an interrupted init, which may be run again.
    """
    if home.settings_file.exists():
        raise InvalidInput(f"{home.folder} already holds a coordinator; allowed: another --home")
    now = datetime.datetime.now(datetime.UTC)
    authority_key, key = new_key(), new_key()
    authority = new_authority(authority_key, name=settings.consortium, now=now, days=AUTHORITY_DAYS)
    certificate = _issue(authority, authority_key, key.public_key(), settings.coordinator, "coordinator", now,
                         COORDINATOR_DAYS)  # fmt: skip
    write_atomically(home.authority_key_file, key_to_pem(authority_key))
    write_atomically(home.authority_file, to_pem(authority))
    write_atomically(home.key_file, key_to_pem(key))
    write_atomically(home.certificate_file, to_pem(certificate))
    with Store(home) as store, store.together():
        store.trail.append("consortium_created", consortium=settings.consortium, coordinator=settings.coordinator)
        store.members.record(_issued(certificate, settings.coordinator, "coordinator"), instead_of=None)
    write_atomically(home.settings_file, settings_toml(settings))
    return Identity(settings.coordinator, "coordinator", certificate)


class Authority:
    """Issues, renews and revokes. Its methods may be called from several threads."""

    def __init__(self, home: CoordinatorHome, store: Store, settings: CoordinatorSettings) -> None:
        """Raises DataUnavailable before init, InvalidInput for invalid keys."""
        self._home = home
        self._store = store
        self._settings = settings
        self._refusals = 0
        self.certificate = home.authority()
        self._key = home.authority_key()

    def invite(self, party: str) -> bytes:
        """A new one-time token for a party; only its hash is stored."""
        check_name(party)
        token = os.urandom(_TOKEN_BYTES)
        expires_s = self._store.now_s + self._settings.invitation_days * 86_400
        self._store.members.invite(party=party, token_hash=_hash(token), expires_s=expires_s)
        return token

    def enrol(self, message: Enrol) -> Enrolled:
        """The answer to a request to enrol; "pending" until the operator approves. Never raises Refused."""
        try:
            party, pem = check_name(message.party), message.request
            request = request_from_pem(pem)
            if _common_name(request.subject) != party:
                raise Refused(Code.WRONG_NAME, "the request names another party than the invitation")
            issued = self._store.members.request(
                party=party,
                token_hash=_hash(message.token),
                fingerprint=request_fingerprint(request),
                pem=pem,
                now_s=self._store.now_s,
            )
            pem = b"" if issued is None else self._valid_now(issued)
        except InvalidInput as error:
            return Enrolled(b"", Code.INVALID_INPUT, str(error))
        except Refused as error:
            self._note_refusal("enrol_refused", message.party, error.code)
            return Enrolled(b"", error.code, str(error))
        if issued is None:
            reason = "the operator has not approved yet: read the fingerprint of your key out to them"
            return Enrolled(b"", Code.PENDING, reason)
        return Enrolled(pem, "", "")

    def approve(self, party: str, *, key_fingerprint: str) -> Issued:
        """Issues a certificate for the pending request of this key.

        key_fingerprint: as the hospital read it out, in digits or in words. Raises InvalidInput, and Refused:
        "no_request", "fingerprint_mismatch".
        """
        read_out = normal_fingerprint(key_fingerprint)
        requests = [each for each in self._store.members.pending() if each.party == party]
        if not requests:
            raise Refused(
                Code.NO_REQUEST, f"no request of {party[:80]!r} is pending; see conclave-coordinator requests"
            )
        match = next((each for each in requests if same_fingerprint(read_out, each.fingerprint)), None)
        if match is None:
            self._store.trail.append("fingerprint_mismatch", party=party)
            raise Refused(
                Code.FINGERPRINT_MISMATCH,
                f"the pending key of {party!r} has another fingerprint than {read_out}; allowed: the one that the "
                "hospital reads out. Somebody else may have used the invitation: nothing was approved",
            )
        certificate = self._certify(_public_key(match), party)
        issued = _issued(certificate, party, "party")
        self._store.members.approve(party, issued)
        return issued

    def certify_guardian(self, pem: bytes, *, key_fingerprint: str) -> Issued:
        """Issues a guardian's certificate for its request (PEM); a later request for the same key renews it.

        key_fingerprint: as the guardian read it out, in digits or in words. Raises InvalidInput, and Refused:
        "fingerprint_mismatch", "same_organisation", "revoked_key".
        """
        request = request_from_pem(pem)
        name, print_of_key = check_name(_common_name(request.subject)), request_fingerprint(request)
        read_out = normal_fingerprint(key_fingerprint)
        if not same_fingerprint(read_out, print_of_key):
            self._store.trail.append("fingerprint_mismatch", party=name)
            raise Refused(
                Code.FINGERPRINT_MISMATCH,
                f"the key in the request of {name!r} has another fingerprint than {read_out}; allowed: the one that "
                "the guardian reads out. Somebody may have replaced the file: nothing was certified",
            )
        if name == self._settings.coordinator:
            raise Refused(Code.SAME_ORGANISATION, f"{name!r} is this coordinator; allowed: another organisation")
        key = request.public_key()
        assert isinstance(key, ec.EllipticCurvePublicKey)  # checked by request_from_pem
        self._store.steady_clock.check()
        certificate = _issue(self.certificate, self._key, key, name, "guardian", self._now, GUARDIAN_DAYS)
        issued = _issued(certificate, name, "guardian")
        self._store.members.record(issued, instead_of=None)
        return issued

    def renew(self, identity: Identity, pem: bytes) -> bytes:
        """A new certificate (PEM) for the same name and key, once half of the old one's validity is over.

        One that was issued but did not arrive is returned again. Raises Refused: "bad_request", "other_key", "revoked",
        "too_early", "clock_jumped".
        """
        try:
            request = request_from_pem(pem)
        except InvalidInput as error:
            raise Refused(Code.BAD_REQUEST, str(error)) from None
        if (_common_name(request.subject), request_fingerprint(request)) != (identity.name, identity.fingerprint):
            self._note_refusal("renewal_refused", identity.name, Code.OTHER_KEY)
            raise Refused(
                Code.OTHER_KEY, "a renewal keeps name and key; for another key, ask the operator for a new invitation"
            )
        newest = self._newest(identity.name, identity.fingerprint)
        if newest is not None:
            latest = certificate_from_pem(newest.pem)
            made = latest.not_valid_before_utc + BACKDATED
            half = made + (latest.not_valid_after_utc - made) / 2
            if self._now < half and newest.serial != str(identity.serial):
                return newest.pem
            if self._now < half:
                raise Refused(
                    Code.TOO_EARLY, f"more than half of the certificate's validity is left; allowed: from {half} on"
                )
        key = request.public_key()
        assert isinstance(key, ec.EllipticCurvePublicKey)  # checked by request_from_pem
        certificate = self._certify(key, identity.name)
        issued = _issued(certificate, identity.name, "party")
        self._store.members.record(issued, instead_of=str(identity.serial))
        return issued.pem

    def revoke(self, *, party: str | None, serial: str | None, reason: str) -> list[str]:
        """Denies a certificate, or all of a party's; returns the newly denied serials."""
        return self._store.members.revoke(name=party, serial=serial, reason=reason, now_s=self._store.now_s)

    def own_certificate(self) -> x509.Certificate:
        """The coordinator's certificate; a new one for the same key if it is about to expire or unsuitable.

        Raises Refused: "authority_expired" if it expired and the authority has too little time left to issue another,
        and "clock_jumped".
        """
        certificate, now = self._home.certificate(), self._now
        # A certificate for the server role alone cannot dial guardians.
        fit = may_dial(certificate) and certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc
        if fit and not self.renewal_due(certificate):
            return certificate
        name = self._settings.coordinator
        self._store.steady_clock.check()
        renewed = _issue(self.certificate, self._key, self._home.key().public_key(), name, "coordinator", now,
                         COORDINATOR_DAYS)  # fmt: skip
        self._store.members.record(_issued(renewed, name, "coordinator"), instead_of=None)
        write_atomically(self._home.certificate_file, to_pem(renewed))
        return renewed

    def renewal_due(self, certificate: x509.Certificate) -> bool:
        """Whether a coordinator's certificate should be replaced, as it is about to expire or not valid yet.

        False while the clock cannot be trusted.
        """
        if self._store.steady_clock.jumped_s():
            return False
        ends = certificate.not_valid_after_utc
        if certificate.not_valid_before_utc > self._now:
            return True
        little = ends - self._now <= datetime.timedelta(days=_RENEW_DAYS_LEFT)
        return little and self.certificate.not_valid_after_utc - ends > datetime.timedelta(days=1)

    def _newest(self, name: str, key_fingerprint: str) -> Issued | None:
        """The certificate of this name and key that expires last, of those that are already valid.

        One that was dated by a clock ahead of time does not count until it is valid.
        """
        issued = self._store.members.of_key(name, key_fingerprint=key_fingerprint)
        begun = (each for each in issued if certificate_from_pem(each.pem).not_valid_before_utc <= self._now)
        return next(begun, None)

    def _valid_now(self, issued: Issued) -> bytes:
        """The certificate (PEM), or a newer one for the same name and key if it is not valid yet."""
        certificate = certificate_from_pem(issued.pem)
        if certificate.not_valid_before_utc <= self._now:
            return issued.pem
        newest = self._newest(issued.name, issued.fingerprint)
        if newest is None:
            key = certificate.public_key()
            assert isinstance(key, ec.EllipticCurvePublicKey)  # it was issued for one
            newest = _issued(self._certify(key, issued.name), issued.name, "party")
            self._store.members.record(newest, instead_of=issued.serial)
        return newest.pem

    def _certify(self, key: ec.EllipticCurvePublicKey, party: str) -> x509.Certificate:
        self._store.steady_clock.check()
        return _issue(self.certificate, self._key, key, party, "party", self._now, self._settings.certificate_days)

    @property
    def _now(self) -> datetime.datetime:
        """The store's time, in UTC."""
        return datetime.datetime.fromtimestamp(self._store.now_s, datetime.UTC)

    def _note_refusal(self, event: str, party: str, code: str) -> None:
        self._refusals += 1
        if self._refusals <= _LOGGED_REFUSALS:
            self._store.trail.append(event, party=party[:80], code=code)


def invitation_toml(settings: CoordinatorSettings, *, party: str, token: bytes, authority: bytes) -> str:
    """The invitation file for a hospital."""
    text = base64.urlsafe_b64encode(token).decode()
    return (
        "# An invitation to a Conclave consortium. The token works once: send this to the hospital alone.\n"
        f'consortium = "{settings.consortium}"\n'
        f'party = "{party}"\n'
        f'coordinator = "{settings.coordinator}"\n'
        f'address = "{settings.address}"\n'
        f'enrol_address = "{settings.enrol_address}"\n'
        f'token = "{text}"\n'
        f'authority = """\n{authority.decode()}"""\n'
    )


def authority_pem(home: CoordinatorHome) -> bytes:
    """The consortium's certificate as it is sent to hospitals."""
    return read(home.authority_file)


def _issue(
    authority: x509.Certificate,
    authority_key: ec.EllipticCurvePrivateKey,
    key: ec.EllipticCurvePublicKey,
    name: str,
    role: Role,
    now: datetime.datetime,
    days: int,
) -> x509.Certificate:
    """A certificate that expires no later than the authority's own."""
    left = (authority.not_valid_after_utc - now).days
    if left < 1:
        raise Refused(Code.AUTHORITY_EXPIRED, f"the consortium's certificate ended on {authority.not_valid_after_utc}")
    return issue(
        authority=authority,
        authority_key=authority_key,
        public_key=key,
        name=name,
        role=role,
        now=now,
        days=min(days, left),
    )


def _issued(certificate: x509.Certificate, name: str, role: Role) -> Issued:
    key = certificate.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)  # it was issued for one
    not_after_s = int(certificate.not_valid_after_utc.timestamp())
    return Issued(str(certificate.serial_number), name, role, fingerprint(key), not_after_s, to_pem(certificate))


def _public_key(pending: Pending) -> ec.EllipticCurvePublicKey:
    key = request_from_pem(pending.pem).public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)  # checked by request_from_pem
    return key


def _common_name(subject: x509.Name) -> str:
    names = subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[0].value) if len(names) == 1 else ""


def _hash(token: bytes) -> bytes:
    return hashlib.sha256(b"conclave invitation 1\n" + token).digest()
