"""Who belongs to the consortium: invitations, requests, certificates and the deny list, as rows of the store.

Each method is one atomic step, with its line in the audit log. The tables themselves refuse what must never happen:
using an invitation twice, or un-revoking a certificate.
"""

from __future__ import annotations

from dataclasses import dataclass

from protocols.errors import InvalidInput, Refused
from protocols.ledger.audit_log import AuditLog
from protocols.ledger.database import Database
from protocols.refusals.code import Code

SCHEMA = """
CREATE TABLE IF NOT EXISTS invitation (
    token BLOB PRIMARY KEY CHECK (length(token) = 32),
    party TEXT NOT NULL, expires_s INTEGER NOT NULL,
    state TEXT NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'used', 'withdrawn'))
) STRICT;
CREATE TRIGGER IF NOT EXISTS invitation_once BEFORE UPDATE OF state ON invitation
    WHEN old.state <> 'open' AND NOT (old.state = 'used' AND new.state = 'withdrawn')
    BEGIN SELECT RAISE(ABORT, 'an invitation is used once'); END;
CREATE TABLE IF NOT EXISTS request (
    token BLOB PRIMARY KEY REFERENCES invitation,
    party TEXT NOT NULL, fingerprint TEXT NOT NULL, pem BLOB NOT NULL, asked_s INTEGER NOT NULL,
    serial TEXT REFERENCES certificate
) STRICT;
CREATE TABLE IF NOT EXISTS certificate (
    serial TEXT PRIMARY KEY, name TEXT NOT NULL, role TEXT NOT NULL, fingerprint TEXT NOT NULL,
    not_after_s INTEGER NOT NULL, pem BLOB NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS denied (
    serial TEXT PRIMARY KEY REFERENCES certificate, reason TEXT NOT NULL, since_s INTEGER NOT NULL
) STRICT;
CREATE TRIGGER IF NOT EXISTS denied_stays BEFORE DELETE ON denied
    BEGIN SELECT RAISE(ABORT, 'what is revoked stays revoked'); END;
CREATE TRIGGER IF NOT EXISTS denied_stays_so BEFORE UPDATE ON denied
    BEGIN SELECT RAISE(ABORT, 'what is revoked stays revoked'); END;
"""


@dataclass(frozen=True)
class Issued:
    """A certificate as it is recorded. serial: decimal digits; not_after_s: seconds since 1970."""

    serial: str
    name: str
    role: str
    fingerprint: str
    not_after_s: int
    pem: bytes


@dataclass(frozen=True)
class Pending:
    """A request that waits for approval. fingerprint: of its key; asked_s: seconds since 1970."""

    party: str
    fingerprint: str
    pem: bytes
    asked_s: int


class Members:
    """The rows about members of the consortium. now_s: seconds since 1970, always passed in."""

    def __init__(self, database: Database, trail: AuditLog) -> None:
        self._database = database
        self._trail = trail

    def invite(self, *, party: str, token_hash: bytes, expires_s: int) -> None:
        """Records an invitation; the party's older unused ones are withdrawn."""
        with self._database.transaction():
            self._withdraw(party)
            self._database.execute(
                "INSERT INTO invitation (token, party, expires_s) VALUES (?, ?, ?)", (token_hash, party, expires_s)
            )
            self._trail.append("invited", party=party, expires_s=expires_s)

    def request(self, *, party: str, token_hash: bytes, fingerprint: str, pem: bytes, now_s: int) -> Issued | None:
        """Accepts one request under an invitation; the same key may ask again, and then gets its certificate.

        Returns None until the operator has approved. Raises Refused: "unknown_invitation", "invitation_withdrawn",
        "invitation_expired", "invitation_used", "revoked".
        """
        with self._database.transaction():
            rows = self._database.rows(
                "SELECT expires_s, state FROM invitation WHERE token = ? AND party = ?", (token_hash, party)
            )
            if not rows:
                raise Refused(Code.UNKNOWN_INVITATION, "there is no such invitation; ask the operator for a new one")
            expires_s, state = rows[0]
            if state == "withdrawn":
                raise Refused(Code.INVITATION_WITHDRAWN, "the invitation was withdrawn; ask the operator for a new one")
            if state == "open":
                if now_s > expires_s:
                    raise Refused(Code.INVITATION_EXPIRED, "the invitation expired; ask the operator for a new one")
                if self._revoked_key(fingerprint):
                    raise Refused(Code.REVOKED_KEY, "a certificate of this key was revoked; make a new key")
                self._database.execute("UPDATE invitation SET state = 'used' WHERE token = ?", (token_hash,))
                self._database.execute(
                    "INSERT INTO request (token, party, fingerprint, pem, asked_s) VALUES (?, ?, ?, ?, ?)",
                    (token_hash, party, fingerprint, pem, now_s),
                )
                self._trail.append("requested", party=party, fingerprint=fingerprint)
                return None
            ((known, serial),) = self._database.rows(
                "SELECT fingerprint, serial FROM request WHERE token = ?", (token_hash,)
            )
            if known != fingerprint:
                raise Refused(
                    Code.INVITATION_USED, "the invitation was used by another key; ask the operator for a new one"
                )
            if serial is None:
                return None
            if self._denied(serial):
                raise Refused(Code.REVOKED, "the certificate was revoked; ask the operator for a new invitation")
            return self.certificate(serial)

    def pending(self) -> list[Pending]:
        """Requests that wait for approval, oldest first."""
        rows = self._database.rows(
            "SELECT request.party, fingerprint, pem, asked_s FROM request JOIN invitation USING (token) "
            "WHERE serial IS NULL AND state = 'used' ORDER BY asked_s, request.party"
        )
        return [Pending(*row) for row in rows]

    def approve(self, party: str, issued: Issued) -> None:
        """Records the certificate for the party's pending request of that key.

        Raises Refused("no_request") if there is none, "revoked_key" for a revoked key.
        """
        with self._database.transaction():
            if not any((each.party, each.fingerprint) == (party, issued.fingerprint) for each in self.pending()):
                raise Refused(Code.NO_REQUEST, f"no request of {party!r} with the key {issued.fingerprint} is pending")
            if self._revoked_key(issued.fingerprint):
                raise Refused(Code.REVOKED_KEY, "a certificate of this key was revoked; the party must make a new key")
            self._insert(issued)
            self._database.execute(
                "UPDATE request SET serial = ? WHERE party = ? AND fingerprint = ? AND serial IS NULL",
                (issued.serial, party, issued.fingerprint),
            )
            self._trail.append("approved", party=party, fingerprint=issued.fingerprint, serial=issued.serial)

    def record(self, issued: Issued, *, instead_of: str | None) -> None:
        """Records a certificate without a pending request: the coordinator's, a guardian's, a renewal of `instead_of`.

        Raises Refused("revoked") if the renewed certificate is unknown, or any of its key is denied; "revoked_key" for
        another certificate of a denied key; "same_organisation" for a guardian that also has another role.
        """
        with self._database.transaction():
            if instead_of is not None:
                revoked = self._denied(instead_of) or self._revoked_key(issued.fingerprint)
                if revoked or self.certificate(instead_of) is None:
                    raise Refused(Code.REVOKED, "the certificate to be renewed is revoked, or is not in this store")
            elif self._revoked_key(issued.fingerprint):
                raise Refused(Code.REVOKED_KEY, "a certificate of this key was revoked; make a new key")
            self._insert(issued)
            self._trail.append("issued", name=issued.name, serial=issued.serial, until_s=issued.not_after_s)

    def revoke(self, *, name: str | None, serial: str | None, reason: str, now_s: int) -> list[str]:
        """Denies the key of one certificate, or all certificates of a name with its open invitations and requests.

        Whoever holds a key can use all of its certificates, so they are denied together, whatever their names, and no
        more are issued for it. A guardian is denied like a party. Returns the newly denied serials. Raises
        InvalidInput if nothing was issued with that name or serial.
        """
        with self._database.transaction():
            rows = self._database.rows(
                "SELECT serial, serial IN (SELECT serial FROM denied) FROM certificate "
                "WHERE role <> 'coordinator' AND fingerprint IN "
                "(SELECT fingerprint FROM certificate WHERE role <> 'coordinator' AND (name = ? OR serial = ?))",
                (name, serial),
            )
            withdrawn = 0 if name is None else self._withdraw(name)
            if not rows and not withdrawn:
                raise InvalidInput(
                    f"nothing was issued to {name or serial!r}; allowed: a party or a serial that `status` lists"
                )
            fresh = [each for each, denied in rows if not denied]
            for each in fresh:
                self._database.execute("INSERT INTO denied VALUES (?, ?, ?)", (each, reason, now_s))
            self._trail.append("revoked", party=name or "", serials=",".join(fresh), withdrawn=withdrawn, reason=reason)
            return fresh

    def certificate(self, serial: str) -> Issued | None:
        """The certificate with this serial, or None."""
        rows = self._database.rows("SELECT * FROM certificate WHERE serial = ?", (serial,))
        return Issued(*rows[0]) if rows else None

    def of_key(self, name: str, *, key_fingerprint: str) -> list[Issued]:
        """The certificates of this name and key, latest expiry first. Raises Refused("revoked") for a denied key."""
        rows = self._database.rows(
            "SELECT * FROM certificate WHERE name = ? AND fingerprint = ? ORDER BY not_after_s DESC",
            (name, key_fingerprint),
        )
        if self._revoked_key(key_fingerprint):
            raise Refused(Code.REVOKED, "a certificate of this key was revoked")
        return [Issued(*row) for row in rows]

    def certificates(self) -> list[Issued]:
        """All issued certificates, by name and validity."""
        return [Issued(*row) for row in self._database.rows("SELECT * FROM certificate ORDER BY name, not_after_s")]

    def serials(self) -> frozenset[str]:
        """The serials of all certificates."""
        return frozenset(row[0] for row in self._database.rows("SELECT serial FROM certificate"))

    def denied(self) -> dict[str, str]:
        """The serial of every denied certificate, and the reason."""
        return dict(self._database.rows("SELECT serial, reason FROM denied"))

    def invited(self) -> list[str]:
        """Parties with an unused invitation."""
        rows = self._database.rows("SELECT DISTINCT party FROM invitation WHERE state = 'open' ORDER BY party")
        return [row[0] for row in rows]

    def _insert(self, issued: Issued) -> None:
        """Inserts a certificate. Raises Refused("same_organisation") if a guardian has, or would have, another role
        too."""
        others = self._database.rows(
            "SELECT role FROM certificate WHERE role <> ? AND (name = ? OR fingerprint = ?) LIMIT 1",
            (issued.role, issued.name, issued.fingerprint),
        )
        if others and "guardian" in (issued.role, others[0][0]):
            raise Refused(
                Code.SAME_ORGANISATION,
                f"{issued.name!r}, or its key, has a certificate as a {others[0][0]}; allowed: a {issued.role} of "
                "another name and key, as a guardian is another organisation",
            )
        self._database.execute(
            "INSERT INTO certificate VALUES (?, ?, ?, ?, ?, ?)",
            (issued.serial, issued.name, issued.role, issued.fingerprint, issued.not_after_s, issued.pem),
        )

    def _withdraw(self, party: str) -> int:
        """Withdraws a party's open invitations, and those whose request is not approved; returns how many."""
        return self._database.execute(
            "UPDATE invitation SET state = 'withdrawn' WHERE party = ? AND (state = 'open' OR (state = 'used' AND "
            "token IN (SELECT token FROM request WHERE serial IS NULL)))",
            (party,),
        )

    def _denied(self, serial: str) -> bool:
        return bool(self._database.rows("SELECT 1 FROM denied WHERE serial = ?", (serial,)))

    def _revoked_key(self, fingerprint: str) -> bool:
        return bool(
            self._database.rows(
                "SELECT 1 FROM certificate JOIN denied USING (serial) WHERE fingerprint = ?", (fingerprint,)
            )
        )
