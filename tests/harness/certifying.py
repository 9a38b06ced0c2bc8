"""An authority of a consortium of tests, and the certificates that it signs."""

import datetime

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from protocols.crypto.identity import issue, new_authority, new_key
from tests.harness.studies import NOW


class Certifying:
    """Who has an authority. days: that a certificate holds, unless it is said."""

    days = 30

    def make_authority(self) -> None:
        self.authority_key = new_key()
        self.authority = new_authority(self.authority_key, name="test", now=NOW, days=100)

    def certify(
        self,
        key: ec.EllipticCurvePrivateKey,
        name: str,
        role: str = "party",
        *,
        days: int | None = None,
        now: datetime.datetime = NOW,
    ) -> x509.Certificate:
        """A certificate of the authority for a key."""
        return issue(
            authority=self.authority,
            authority_key=self.authority_key,
            public_key=key.public_key(),
            name=name,
            role=role,
            now=now,
            days=days or self.days,
        )
