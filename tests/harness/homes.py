"""A hospital's home for tests: records, an invitation, settings; the commands are run in this process."""

import base64
import csv
from dataclasses import replace
from pathlib import Path

import numpy as np

from party.commands.group import run_command
from party.home import PartyHome
from protocols.crypto.identity import to_pem
from protocols.study.deployed import DeployedStudy
from protocols.study.file import write_study
from protocols.study.study import Study
from protocols.study.terms import Feature

FEATURES = tuple(Feature(column=f"f{i}", kind="numeric", centre=0.0, scale=1.0) for i in range(4))


def tabled(study: DeployedStudy) -> DeployedStudy:
    """The study over the columns of `write_records`."""
    return replace(study, terms=replace(study.terms, features=FEATURES))


def write_invitation(path: Path, consortium, *, party: str = "hospital-0", enrol_port: int | None = None) -> Path:
    """What the operator sends."""
    path.write_text(
        f'consortium = "test"\nparty = "{party}"\ncoordinator = "centre"\naddress = "{consortium.address}"\n'
        f'enrol_address = "127.0.0.1:{enrol_port or consortium.enrol_port}"\n'
        f'token = "{base64.urlsafe_b64encode(bytes(range(32))).decode()}"\n'
        f'authority = """{to_pem(consortium.authority).decode()}"""\n'
    )
    return path


def write_records(path: Path, *, rows: int = 60, seed: int = 3) -> Path:
    """A table whose first feature says the class."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((rows, 4))
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["patient", "f0", "f1", "f2", "f3", "side"])
        for row, value in enumerate(values):
            writer.writerow([f"p{row // 2}", *value, "right" if value[0] > 0 else "left"])
    return path


def make_member(
    folder: Path, consortium, *, party: str = "hospital-0", epsilon: float = 12.0, **more: str
) -> PartyHome:
    """An initialised and certified home with records; its settings are complete."""
    folder.mkdir(exist_ok=True)
    invitation = write_invitation(folder / "invitation.toml", consortium, party=party)
    records = write_records(folder / "records.csv")
    code = run_command(
        ["init", str(invitation), "--home", str(folder / "home"), "--data", str(records), "--loader", "csv"]
        + ["--data-name", more.get("data_name", "ward"), "--patient", "patient"]
        + ["--teacher", more.get("teacher", "logistic_regression"), "--unit", more.get("unit", "record")]
        + ["--epsilon", str(epsilon), "--delta", "1e-5", *filter(None, [more.get("settle", "--settle")])]
    )
    assert code == 0
    home = PartyHome((folder / "home").resolve())
    from protocols.crypto.identity import private_key_from_pem

    certificate = consortium.certify(private_key_from_pem(home.key.read_bytes()), party)
    home.certificate.write_bytes(to_pem(certificate))
    return home


def study_file(folder: Path, study: Study, name: str = "study.toml") -> Path:
    path = folder / name
    path.write_text(write_study(study))
    return path
