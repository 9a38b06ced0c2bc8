"""Renewing a node's certificate in time, over its open session."""

from __future__ import annotations

import datetime
from collections.abc import Callable

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from protocols.crypto.identity import certificate_from_pem, certificate_request, identify, to_pem
from protocols.errors import InvalidInput, MalformedMessage, Refused
from protocols.refusals.code import Code
from protocols.wire.frames import Frame, Renew, Renewed


class Renewal:
    """A node's certificate, and its replacement by a newer one for the same name and key.

    save: called with a renewed certificate (PEM); days_left: a new one is asked for when fewer days are left.
    """

    def __init__(
        self,
        *,
        key: ec.EllipticCurvePrivateKey,
        certificate: x509.Certificate,
        authority: x509.Certificate,
        save: Callable[[bytes], None],
        on_event: Callable[[str, dict[str, str | int]], None],
        days_left: int,
    ) -> None:
        self.certificate = certificate
        self._key = key
        self._authority = authority
        self._save = save
        self._on_event = on_event
        self._left = datetime.timedelta(days=days_left)

    def check(self) -> None:
        """Raises Refused unless the certificate is signed by the authority, is a party's, and is valid now."""
        identify(self.certificate, authority=self._authority, now=_now(), role="party")

    def ask(self, send: Callable[[Frame], None]) -> None:
        """Asks for a new certificate if the present one expires soon."""
        if self.certificate.not_valid_after_utc - _now() < self._left:
            name = identify(self.certificate, authority=self._authority, now=_now(), role="party").name
            send(Renew(to_pem(certificate_request(self._key, name=name))))

    def take(self, renewed: Renewed) -> None:
        """Takes a renewed certificate if it is for the node's own name and key. Raises Refused otherwise.

        A certificate that is not valid now never replaces a valid one: a clock may have been wrong at issue.
        """
        try:
            certificate = certificate_from_pem(renewed.certificate)
        except InvalidInput as error:
            raise MalformedMessage(f"the renewed certificate cannot be read: {error}") from None
        try:
            new = identify(certificate, authority=self._authority, now=_now(), role="party")
        except Refused as error:
            if error.code != Code.CERTIFICATE_EXPIRED:
                raise
            self._on_event("renewal_not_valid", {"reason": str(error)[:200]})
            return
        old = identify(self.certificate, authority=self._authority, now=_now(), role="party")
        if (new.name, new.fingerprint) != (old.name, old.fingerprint):
            raise Refused(Code.BAD_CERTIFICATE, f"the renewed certificate is for {new.name!r} or another key")
        self._save(renewed.certificate)
        self.certificate = certificate
        self._on_event("renewed", {"until": str(certificate.not_valid_after_utc)})


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
