"""Text messages as two publishers have them: the same lines, and other ones refused."""

import csv
import hashlib

import numpy as np

from benchmarks.sms_spam import load
from protocols.errors import DataCorrupt
from runtime.checked_files import line_digests
from simulations.datasets import sources
from simulations.datasets.dataset import DatasetRequest
from tests.harness.refusals import refuses

LINES = ['ham\tGo "until" jurong point', 'ham\tOk"', "spam\tFree entry £1.50!!", "ham\tOk lar...\x92"] + [
    f"{'spam' if number % 4 == 0 else 'ham'}\tmessage {number}" for number in range(8)
]


def folder_of(tmp_path, name, content):
    (tmp_path / "sms_spam").mkdir(exist_ok=True)
    for path in (tmp_path / "sms_spam").iterdir():
        path.unlink()
    (tmp_path / "sms_spam" / name).write_text(content, encoding="utf-8", newline="")
    return DatasetRequest(seed=0, data_dir=tmp_path, public_size=4, test_size=3)


def rows_of(lines):
    """A quotation mark that nobody closed has swallowed the third line."""
    rows = [[["0", "1"][line.startswith("spam")], line.partition("\t")[2]] for line in lines]
    rows[1:3] = [["0", f"{rows[1][1][:-1]}\n{lines[2]}"]]
    return [["", "spam", "text"], *([str(number), *row] for number, row in enumerate(rows))]


def digest_of(lines):
    plain = [line.replace('"', "") for line in lines]
    return hashlib.sha256(b"".join(sorted(line_digests(plain)))).hexdigest()


def test_both_files_hold_the_same_messages_and_another_is_refused(tmp_path, monkeypatch):
    monkeypatch.setitem(sources._published()["sms_spam"], "checksums", {"messages": digest_of(LINES)})
    first = load(folder_of(tmp_path, "SMSSpamCollection", "\n".join(LINES) + "\n"))
    with (tmp_path / "rows.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows_of(LINES))
    second = load(folder_of(tmp_path, "sms-spam.csv", (tmp_path / "rows.csv").read_text(encoding="utf-8")))
    assert (first.private_digest, first.test_digest) == (second.private_digest, second.test_digest)
    parts = [first.private_labels, first.public_labels, first.test_labels]
    assert np.concatenate(parts).sum() == 3
    with refuses(DataCorrupt, "rows"):
        load(folder_of(tmp_path, "SMSSpamCollection", "\n".join(LINES[:-1])))
