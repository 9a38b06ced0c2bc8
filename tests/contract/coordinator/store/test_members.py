"""Invitations, certificates and the deny list under any order of steps, and under a kill at any statement."""

import hashlib
import shutil
import sqlite3
import tempfile
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from coordinator.home import CoordinatorHome
from coordinator.store.members import Issued
from coordinator.store.store import Store
from protocols.errors import InvalidInput, Refused, StorageFailed
from protocols.ledger.database import Database
from tests.harness.dying import Deaths, Killed, what_the_disk_has
from tests.harness.refusals import refuses

PARTIES = ["a", "b"]
KEYS = [f"K{number}" for number in range(3)]


def token(number: int) -> bytes:
    return hashlib.sha256(bytes([number])).digest()


def issued(serial: int, party: str, key: str) -> Issued:
    return Issued(str(serial), party, "party", key, 10**9, b"pem")


def refusal(step) -> tuple[str | None, object]:
    """The code with which a step is refused, or None, and what it returned."""
    try:
        return None, step()
    except Refused as error:
        return error.code, None
    except InvalidInput:
        return "invalid", None


class MembersMachine(RuleBasedStateMachine):
    """The store against a model of what each token, key and serial may do."""

    @initialize()
    def open(self):
        self.folder = Path(tempfile.mkdtemp())
        self.store = Store(CoordinatorHome(self.folder), clock=lambda: 10**9)
        self.now = 0
        self.tokens: dict[int, dict] = {}
        self.serials: dict[int, dict] = {}
        self.denied: dict[str, str] = {}

    def teardown(self):
        if hasattr(self, "store"):
            self.store.__exit__()
            shutil.rmtree(self.folder)

    @rule(party=st.sampled_from(PARTIES), life=st.integers(0, 2))
    def invite(self, party, life):
        for each in self.tokens.values():
            if each["party"] == party and each["serial"] is None:
                each["withdrawn"] = True
        number = len(self.tokens)
        if number > 250:
            return
        self.store.members.invite(party=party, token_hash=token(number), expires_s=self.now + life)
        self.tokens[number] = {
            "party": party,
            "expires": self.now + life,
            "key": None,
            "serial": None,
            "withdrawn": False,
        }

    @precondition(lambda self: self.tokens)
    @rule(pick=st.integers(0, 3), own=st.integers(0, 4), key=st.sampled_from(KEYS))
    def request(self, pick, own, key):
        """With one of the last tokens, mostly for its party."""
        number = max(len(self.tokens) - pick, 0)  # pick 0: a token that nobody has given out
        known = self.tokens.get(number)
        party = known["party"] if known and own else "a"
        code, got = refusal(
            lambda: self.store.members.request(
                party=party, token_hash=token(number), fingerprint=key, pem=b"csr", now_s=self.now
            )
        )
        if known is None or known["party"] != party:
            assert code == "unknown_invitation"
        elif known["withdrawn"]:
            assert code == "invitation_withdrawn"
        elif known["key"] is None and self.now > known["expires"]:
            assert code == "invitation_expired"
        elif known["key"] is None and self.key_revoked(key):
            assert code == "revoked_key"
        elif known["key"] not in (None, key):
            assert code == "invitation_used"
        elif known["serial"] in self.denied:
            assert code == "revoked"
        else:
            assert code is None
            known["key"] = key
            assert (got.serial if got else None) == known["serial"]

    @rule(party=st.sampled_from(PARTIES), key=st.sampled_from(KEYS), pending=st.booleans())
    def approve(self, party, key, pending):
        open_keys = [
            t["key"] for t in self.tokens.values() if t["party"] == party and t["serial"] is None and not t["withdrawn"]
        ]
        key = next((each for each in open_keys if each), key) if pending else key
        waiting = [
            each
            for each in self.tokens.values()
            if (each["party"], each["key"], each["serial"], each["withdrawn"]) == (party, key, None, False)
        ]
        serial = len(self.serials)
        code, _ = refusal(lambda: self.store.members.approve(party, issued(serial, party, key)))
        assert code == ("no_request" if not waiting else "revoked_key" if self.key_revoked(key) else None)
        if code is not None:
            return
        assert len(waiting) == 1
        waiting[0]["serial"] = str(serial)
        self.serials[serial] = {"party": party, "key": key}

    @rule(back=st.integers(0, 3))
    def renew(self, back):
        old = max(len(self.serials) - back, 0)  # back 0: one that was never issued
        known = self.serials.get(old)
        serial = len(self.serials)
        made = issued(serial, known["party"] if known else "a", known["key"] if known else "K0")
        code, _ = refusal(lambda: self.store.members.record(made, instead_of=str(old)))
        assert code == ("revoked" if known is None or self.key_revoked(known["key"]) else None)
        if known is not None and code is None:
            self.serials[serial] = dict(known)

    @rule(party=st.sampled_from(PARTIES))
    def revoke_party(self, party):
        mine = self.of_the_keys(serial for serial, each in self.serials.items() if each["party"] == party)
        open_tokens = [
            t for t in self.tokens.values() if t["party"] == party and t["serial"] is None and not t["withdrawn"]
        ]
        code, fresh = refusal(lambda: self.store.members.revoke(name=party, serial=None, reason="r", now_s=self.now))
        assert code == (None if mine or open_tokens else "invalid")
        if code is not None:
            return
        assert set(fresh) == mine - set(self.denied)
        for each in open_tokens:
            each["withdrawn"] = True
        self.denied.update(dict.fromkeys(fresh, "r"))

    @rule(back=st.integers(0, 3))
    def revoke_serial(self, back):
        serial = max(len(self.serials) - back, 0)
        code, _ = refusal(lambda: self.store.members.revoke(name=None, serial=str(serial), reason="s", now_s=self.now))
        assert code == (None if serial in self.serials else "invalid")
        if code is None:
            for each in self.of_the_keys([serial]):
                self.denied.setdefault(each, "s")

    @rule()
    def restart(self):
        self.store.__exit__()
        self.store = Store(CoordinatorHome(self.folder), clock=lambda: 10**9)

    @rule()
    def time_passes(self):
        self.now += 1

    @invariant()
    def what_is_revoked_stays_revoked_and_nothing_else_is(self):
        if hasattr(self, "store"):
            assert self.store.members.denied() == self.denied

    @invariant()
    def every_certificate_that_was_not_renewed_came_from_one_request(self):
        if hasattr(self, "store"):
            assert {each.serial for each in self.store.members.certificates()} == {str(s) for s in self.serials}
            pending = sorted((p.party, p.fingerprint) for p in self.store.members.pending())
            expected = [t for t in self.tokens.values() if t["key"] and t["serial"] is None and not t["withdrawn"]]
            assert pending == sorted((t["party"], t["key"]) for t in expected)

    @invariant()
    def the_audit_log_is_whole(self):
        if hasattr(self, "store"):
            self.store.entries()

    @invariant()
    def a_key_is_denied_as_a_whole(self):
        for each in self.serials.values() if hasattr(self, "store") else ():
            assert self.key_revoked(each["key"]) == (self.of_key(each["key"]) <= set(self.denied))

    def of_key(self, key):
        return {str(serial) for serial, each in self.serials.items() if each["key"] == key}

    def of_the_keys(self, serials):
        return set().union(*(self.of_key(self.serials[serial]["key"]) for serial in serials))

    def key_revoked(self, key):
        return any(each["key"] == key and str(serial) in self.denied for serial, each in self.serials.items())


TestMembersMachine = MembersMachine.TestCase
TestMembersMachine.settings = settings(max_examples=20, stateful_step_count=30, deadline=None)


def life_of_a_party(store: Store) -> None:
    """One party through all steps."""
    members = store.members
    members.invite(party="a", token_hash=token(1), expires_s=10)
    members.request(party="a", token_hash=token(1), fingerprint="K", pem=b"csr", now_s=1)
    members.approve("a", issued(1, "a", "K"))
    members.record(issued(2, "a", "K"), instead_of="1")
    members.revoke(name="a", serial=None, reason="r", now_s=2)
    members.invite(party="a", token_hash=token(2), expires_s=10)


EVENTS = ["invited", "requested", "approved", "issued", "revoked", "invited"]


def facts(store: Store) -> tuple:
    """What is stored, in numbers that rise together with the audit log."""
    members = store.members
    database = store._database
    count = lambda query: database.rows(f"SELECT count(*) FROM {query}")[0][0]  # noqa: E731
    return (
        count("invitation"),
        count("request"),
        len(members.certificates()),
        len(members.denied()),
        count("request WHERE serial IS NOT NULL"),
    )


def test_a_kill_before_any_statement_leaves_whole_steps_with_their_log(tmp_path, monkeypatch):
    deaths = Deaths(monkeypatch)
    with Store(CoordinatorHome(tmp_path), clock=lambda: 0) as store:
        after_step = [facts(store)]
        started = deaths.statements
        life_of_a_party(store)
        total = deaths.statements - started
        assert [entry.event for entry in store.entries()] == EVENTS
    expected = {0: (0, 0, 0, 0, 0), 1: (1, 0, 0, 0, 0), 2: (1, 1, 0, 0, 0), 3: (1, 1, 1, 0, 1), 4: (1, 1, 2, 0, 1),
                5: (1, 1, 2, 2, 1), 6: (2, 1, 2, 2, 1)}  # fmt: skip
    assert after_step == [expected[0]]
    seen = set()
    for at in range(total):
        folder = tmp_path / f"killed-{at}"
        folder.mkdir()
        deaths.disarm()
        store = Store(CoordinatorHome(folder), clock=lambda: 0)
        deaths.arm(at)
        with pytest.raises(Killed):
            life_of_a_party(store)
        deaths.disarm()
        left = what_the_disk_has(folder / "store.sqlite", folder / "left")
        store.__exit__()
        with Store(CoordinatorHome(left.parent)) as found:
            steps = len(found.entries())
            assert [entry.event for entry in found.entries()] == EVENTS[:steps]
            assert facts(found) == expected[steps]
            seen.add(steps)
    assert seen == set(range(6))


@pytest.mark.parametrize(
    "statement", ["DELETE FROM denied", "UPDATE denied SET reason = 'x'", "UPDATE invitation SET state = 'open'"]
)
def test_the_tables_themselves_refuse_to_take_a_step_back(tmp_path, statement):
    with Store(CoordinatorHome(tmp_path)) as store:
        life_of_a_party(store)
        with pytest.raises(StorageFailed, match="nothing was written"), store.together():
            store._database.execute(statement)
        assert len(store.members.denied()) == 2


def test_an_invitation_that_expired_is_refused_unless_it_was_used_in_time(tmp_path):
    with Store(CoordinatorHome(tmp_path)) as store:

        def ask(number, now_s):
            return refusal(
                lambda: store.members.request(
                    party="a", token_hash=token(number), fingerprint="K", pem=b"csr", now_s=now_s
                )
            )[0]

        store.members.invite(party="a", token_hash=token(1), expires_s=10)
        assert ask(1, 11) == "invitation_expired"
        assert ask(1, 10) is None
        assert ask(1, 11) is None


def test_a_key_that_was_revoked_is_never_taken_again(tmp_path):
    with Store(CoordinatorHome(tmp_path)) as store:
        life_of_a_party(store)
        again = refusal(
            lambda: store.members.request(party="a", token_hash=token(2), fingerprint="K", pem=b"csr", now_s=1)
        )
        assert again[0] == "revoked_key"


def test_a_token_is_stored_as_its_hash_alone(tmp_path):
    with refuses(StorageFailed, "CHECK"), Store(CoordinatorHome(tmp_path)) as store:
        store.members.invite(party="a", token_hash=b"short", expires_s=1)


def test_a_full_disk_says_so_writes_nothing_and_works_again_when_there_is_space(tmp_path):
    with Store(CoordinatorHome(tmp_path)) as store:
        life_of_a_party(store)
        before = facts(store)
        pages = store._database.connection.execute("PRAGMA page_count").fetchone()[0]
        store._database.connection.execute(f"PRAGMA max_page_count = {pages}")
        failure = None
        for number in range(3, 200):
            before = facts(store)
            try:
                store.members.invite(party="b", token_hash=token(number), expires_s=9)
            except StorageFailed as error:
                failure = str(error)
                break
        assert failure is not None
        assert "nothing was written: free space on its disk" in failure
        assert facts(store) == before
        store._database.connection.execute("PRAGMA max_page_count = 100000")
        store.members.invite(party="b", token_hash=token(200), expires_s=9)
        assert facts(store)[0] == before[0] + 1


def test_a_store_that_another_process_holds_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr("protocols.ledger.database._BUSY_S", 0.05)
    with Store(CoordinatorHome(tmp_path)) as store:
        other = sqlite3.connect(tmp_path / "store.sqlite")
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StorageFailed, match="another command holds it"):
            store.members.invite(party="a", token_hash=token(1), expires_s=1)
        other.rollback()
        other.close()


@pytest.mark.parametrize(("content", "said"), [(b"not a database" * 99, "restore it"), (None, "cannot be opened")])
def test_a_file_that_is_no_store_is_reported(tmp_path, content, said):
    if content is None:
        path = tmp_path / "nowhere" / "store.sqlite"
    else:
        path = tmp_path / "store.sqlite"
        path.write_bytes(content)
    with pytest.raises(StorageFailed, match=said):
        Database(path, "")
