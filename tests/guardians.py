"""A guardian's port on loopback for tests, and stand-ins for what speaks there."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from coordinator.guardian_dialling import GuardianLine
from coordinator.guardian_greeting import Guarded
from coordinator.guardian_port import GuardianPort
from protocols.confidentiality import Confidentiality
from protocols.errors import Refused
from protocols.identity import issue, new_authority, new_key
from protocols.study import Study
from tests.consortium import NOW, deployed_study

SEALING, SIGNING = X25519PrivateKey.generate(), Ed25519PrivateKey.generate()


def guarded_study(parties: int = 3, *, guardian: str = "notary", sealing=SEALING, signing=SIGNING, **more) -> Study:
    """A study of level two_server."""
    terms = Confidentiality(
        level="two_server",
        units=64,
        abstention=False,
        guardian=guardian,
        sealing_key=sealing.public_key().public_bytes_raw().hex(),
        signing_key=signing.public_key().public_bytes_raw().hex(),
    )
    return deployed_study(parties, confidentiality=terms, **more)


class Echo:
    """Says back what it hears, until it hears "end" or what makes it fail."""

    def __init__(self, errors: dict[bytes, Exception] | None = None) -> None:
        self.errors = errors or {}
        self.heard = 0

    def serve(self, channel) -> None:
        while (data := channel.recv(2**28)) != b"end":
            if data in self.errors:
                raise self.errors[data]
            self.heard += 1
            channel.send(data)


@dataclass
class Guardianship:
    """An authority, a guardian's port that knows one study, and the line of a coordinator to it."""

    study: Study = field(default_factory=guarded_study)
    guardian: Echo = field(default_factory=Echo)
    role: str = "guardian"
    denied: dict[str, str] = field(default_factory=dict)
    denied_there: dict[str, str] = field(default_factory=dict)
    events: list = field(default_factory=list)
    silence_s: float = 20.0

    def __post_init__(self) -> None:
        self.authority_key, self.key, self.guardian_key = new_key(), new_key(), new_key()
        self.authority = new_authority(self.authority_key, name="test", now=NOW, days=100)
        self.busy = threading.Lock()

    def certify(self, key, name, role, *, days=30, now=NOW):
        return issue(
            authority=self.authority,
            authority_key=self.authority_key,
            public_key=key.public_key(),
            name=name,
            role=role,
            now=now,
            days=days,
        )

    @contextmanager
    def open(self, *, key=None, name="notary", listen="127.0.0.1:0") -> Iterator[GuardianLine]:
        """The port is open; the coordinator's line to it. key: of the guardian."""
        key = key or self.guardian_key
        port = GuardianPort(
            key=key,
            certificate=self.certify(key, name, self.role),
            authority=self.authority,
            denied=lambda identity: self.denied_there.get(identity.name),
            find=self.find,
            on_event=lambda event, fields: self.events.append((event, fields)),
            silence_s=self.silence_s,
        )
        number = port.start(listen)
        try:
            yield self.line(f"127.0.0.1:{number}")
        finally:
            port.stop()

    def line(self, address, *, name="centre", role="coordinator", **more) -> GuardianLine:
        """A line with the coordinator's key, under any name and role."""
        line = GuardianLine(
            address=address,
            key=self.key,
            certificate=self.certify(self.key, name, role),
            authority=self.authority,
            denied=lambda identity: self.denied.get(identity.name),
            silence_s=self.silence_s,
        )
        return replace(line, **more)

    def find(self, digest: bytes) -> Guarded:
        if digest != self.study.digest:
            raise Refused("unknown_study", f"study {digest.hex()[:16]} is not approved here")
        return Guarded(self.study, self.guardian, self.busy)

    def codes(self) -> list[str]:
        """What happened at the port, in order."""
        return [str(fields.get("code", event)) for event, fields in self.events]
