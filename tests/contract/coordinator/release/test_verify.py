"""What verification catches: what was left out or dated otherwise, and what a coordinator forged and signed."""

import csv
import datetime
import json

import pytest

from coordinator.release.evidence import files_of
from coordinator.release.verify import verify_release
from protocols.crypto.identity import BACKDATED, issue, new_authority, new_key, to_pem
from tests.harness.released import FILES, failed, small_study
from tests.harness.studies import NOW


def test_an_honest_release_passes_every_check(signed, tmp_path):
    consortium, _, folder = signed
    (tmp_path / "authority.pem").write_bytes(to_pem(consortium.authority))
    assert failed(folder) == {}
    assert failed(folder, tmp_path / "authority.pem") == {}
    assert sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()) == FILES


def test_a_file_that_was_added_or_linked_fails(copy):
    (copy / "notes.txt").write_text("all is well")
    assert "notes.txt" in failed(copy)["files"]
    (copy / "notes.txt").unlink()
    (copy / "link").symlink_to(copy / "labels.csv")
    assert "files" in failed(copy)


def test_a_release_under_another_authority_fails(signed, tmp_path):
    other = new_authority(new_key(), name="test", now=NOW, days=10)
    (tmp_path / "other.pem").write_bytes(to_pem(other))
    assert "wrong_authority" in failed(signed[2], tmp_path / "other.pem")["signature"]


def test_a_certificate_counts_at_the_time_of_the_signing(signed, copy):
    consortium = signed[0]
    years_later = NOW + datetime.timedelta(days=3650)
    assert all(check.passed is not False for check in verify_release(copy, None, now=years_later))
    early = NOW - datetime.timedelta(days=60)
    ended = issue(
        authority=consortium.authority,
        authority_key=consortium.authority_key,
        public_key=consortium.key.public_key(),
        name="centre",
        role="coordinator",
        now=early,
        days=10,
    )
    (copy / "coordinator.pem").write_bytes(to_pem(ended))
    consortium.sign_again(copy)
    assert "certificate_expired" in failed(copy)["signature"]


def test_a_party_cannot_sign_a_release(signed, copy):
    consortium = signed[0]
    (copy / "coordinator.pem").write_bytes(to_pem(consortium.certificates["hospital-0"]))
    consortium.sign_again(copy)
    assert "wrong_role" in failed(copy)["signature"]


def test_a_release_dated_before_its_last_log_entry_fails(signed, copy):
    early = (NOW - datetime.timedelta(minutes=4) - BACKDATED).isoformat()
    rewrite(copy / "manifest.json", lambda made: made.update(created=early))
    signed[0].sign_again(copy)
    assert "valid from" in failed(copy)["signature"]  # its certificate was not yet made
    early = (NOW - datetime.timedelta(minutes=4)).isoformat()
    rewrite(copy / "manifest.json", lambda made: made.update(created=early))
    signed[0].sign_again(copy)
    assert "different times" in failed(copy)["statement"]


def test_a_release_of_the_future_fails(signed):
    early = NOW - datetime.timedelta(days=2)
    assert "clock" in {check.name: check.message for check in verify_release(signed[2], None, now=early)}["signature"]


def rewrite(path, change):
    value = json.loads(path.read_text())
    change(value)
    evidence = path.name == "ledger.json"
    path.write_text(json.dumps(value, indent=1 if evidence else 2, sort_keys=evidence) + "\n")


def flip_label(folder):
    rows = list(csv.reader((folder / "labels.csv").read_text().splitlines()))
    row = next(row for row in rows[1:] if row[2] == "answered")
    row[1:3] = ["", "refused"]
    (folder / "labels.csv").write_text("".join(",".join(row) + "\n" for row in rows))


def lower_charge(folder):
    def change(ledger):
        ledger["batches"][0]["settled"]["hospital-1"] -= 1

    rewrite(folder / "evidence/ledger.json", change)


def charge_nothing(folder):
    rewrite(folder / "evidence/ledger.json", lambda ledger: ledger["batches"][0]["settled"].update({"hospital-1": 0}))


def raise_cap(folder):
    rewrite(folder / "evidence/ledger.json", lambda ledger: ledger["caps"].update({"hospital-1": 10**12}))


def ask_fewer(folder):
    rewrite(folder / "evidence/ledger.json", lambda ledger: ledger["batches"].pop())


def leave_out_a_party(folder):
    def change(ledger):
        for amounts in ("reserved", "settled"):
            ledger["batches"][0][amounts].pop("hospital-1")

    rewrite(folder / "evidence/ledger.json", change)


def change_log(folder):
    lines = (folder / "evidence/audit.jsonl").read_text().splitlines()
    entry = json.loads(lines[1])
    entry["time_ns"] += 1
    lines[1] = json.dumps(entry, sort_keys=True)
    (folder / "evidence/audit.jsonl").write_text("\n".join(lines) + "\n")


def shorten_log(folder):
    lines = (folder / "evidence/audit.jsonl").read_text().splitlines()
    (folder / "evidence/audit.jsonl").write_text("\n".join(lines[:-2]) + "\n")


def frames_without(folder, drop):
    path = folder / "evidence/frames.jsonl"
    kept = [line for line in path.read_text().splitlines() if not drop(json.loads(line))]
    path.write_text("".join(line + "\n" for line in kept))


def drop_receipt(folder):
    frames_without(
        folder, lambda frame: (frame["number"], frame["seat"], frame["kind"]) == (0, "hospital-1", "settled")
    )


def drop_both(folder):
    frames_without(folder, lambda frame: (frame["number"], frame["seat"]) == (0, "hospital-1"))


def swap_seats(folder):
    path = folder / "evidence/frames.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        line["seat"] = {"hospital-0": "hospital-1", "hospital-1": "hospital-0"}.get(line["seat"], line["seat"])
    lines.sort(key=lambda line: (line["number"], line["seat"], line["kind"]))
    path.write_text("".join(json.dumps(line, sort_keys=True) + "\n" for line in lines))


def lower_epsilon(folder):
    rewrite(folder / "privacy.json", lambda made: made["seats"][0]["guarantee"].update(epsilon=0.5))


def hide_refusal(folder):
    rewrite(folder / "privacy.json", lambda made: made["during_the_study"].update(receipts_missing={"hospital-0": 1}))


def claim_earlier(folder):
    rewrite(folder / "privacy.json", lambda made: made["earlier_releases"].update(unit="party"))


def reword_page(folder):
    page = (folder / "privacy.html").read_text()
    (folder / "privacy.html").write_text(page.replace("record: one record", "party: one party"))


def change_study(folder):
    text = (folder / "study.toml").read_text()
    (folder / "study.toml").write_text(text.replace("sigma = 6.0", "sigma = 600.0"))


@pytest.mark.parametrize(
    ("forge", "caught_by"),
    [
        (flip_label, "charges"),
        (lower_charge, "charges"),
        (charge_nothing, "receipts"),
        (raise_cap, "charges"),
        (ask_fewer, "charges"),
        (leave_out_a_party, "charges"),
        (change_log, "audit log"),
        (shorten_log, "signed frames"),
        (drop_receipt, "signed frames"),
        (drop_both, "statement"),
        (swap_seats, "signed frames"),
        (lower_epsilon, "statement"),
        (hide_refusal, "statement"),
        (claim_earlier, "statement"),
        (reword_page, "pages"),
        (change_study, "study and labels"),
    ],
)
def test_what_the_coordinator_forged_and_signed_again_is_caught(signed, copy, forge, caught_by):
    forge(copy)
    signed[0].sign_again(copy)
    found = failed(copy)
    assert "signature" not in found
    assert "files" not in found
    assert next(iter(found)) == caught_by, found


def test_dropping_the_last_receipts_is_caught(signed, copy):
    last = max(json.loads(line)["number"] for line in (copy / "evidence/frames.jsonl").read_text().splitlines())
    frames_without(copy, lambda frame: (frame["number"], frame["seat"]) == (last, "hospital-1"))
    signed[0].sign_again(copy)
    assert next(iter(failed(copy))) == "receipts cover every charge"
    # To say afterwards that it was stated does not help: the figures no longer are those that were stated.
    rewrite(copy / "privacy.json", lambda made: made["stated_by_the_coordinator"].update(unproven=["hospital-1"]))
    signed[0].sign_again(copy)
    assert next(iter(failed(copy))) == "statement"


def test_a_seat_that_is_stated_as_unproven_without_need_fails(signed, copy):
    rewrite(copy / "privacy.json", lambda made: made["stated_by_the_coordinator"].update(unproven=["hospital-1"]))
    signed[0].sign_again(copy)
    assert "allowed" in failed(copy)["receipts cover every charge"]


def test_a_party_that_lets_reservations_stand_is_stated_and_passes(signed, tmp_path):
    consortium = signed[0]
    labelled = consortium.label(small_study(name="standing"), settles=False)
    folder = consortium.release(labelled, tmp_path / "standing")
    checks = {check.name: check for check in verify_release(folder, None)}
    assert all(check.passed is not False for check in checks.values())
    assert "that are higher" in checks["receipts"].message
    events = json.loads((folder / "privacy.json").read_text())["during_the_study"]
    assert set(events["ledgers_that_differ"]) == {"hospital-0", "hospital-1", "hospital-2"}
    assert min(events["ledgers_that_differ"].values()) > 0


def test_evidence_is_read_back_as_it_was_written(signed):
    from coordinator.release.evidence import collect, evidence_in

    _, labelled, folder = signed
    written = collect(labelled.ledger, study=labelled.study.digest)
    assert files_of(evidence_in(folder)) == files_of(written)
