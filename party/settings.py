"""A node's settings, node.toml, and the invitation that it was made from, read key by key.

A missing, unknown or mistyped key is refused with a message that names file, key and allowed values.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from party.data import source_kind
from party.data.mapping import folded, read_mapping
from party.data.records import DataSettings
from party.lifetime import LifetimeCap
from protocols.crypto.identity import check_name
from protocols.errors import InvalidInput
from protocols.study.units import UNITS
from runtime.address import check_address
from runtime.settings import TomlTable, named_toml

TOKEN_BYTES = 32
# Beside node.toml, unless data.mapping names another.
MAPPING_FILE = "mapping.toml"


@dataclass(frozen=True, kw_only=True)
class TeacherSettings:
    """kind: of party/teachers, "onnx", the name of a plugin or "package.module:attribute"; seed: from which shards and
    training derive; files: ONNX files, one per teacher; features, features_sha256: what teachers learn from, a file of
    features and its digest (None: the records themselves); idle_s: the teachers' process ends after so many seconds
    without a request; stalled_s: it is stopped after so many seconds in which no teacher is loaded or votes."""

    kind: str
    seed: int = field(repr=False)
    files: tuple[Path, ...] = ()
    features: Path | None = None
    features_sha256: str = ""
    idle_s: float = 300.0
    stalled_s: float = 900.0


@dataclass(frozen=True, kw_only=True)
class PartySettings:
    """All of node.toml. settle: whether outcomes lower reservations, in a study in which a query that is not answered
    costs less; None where nobody decided, and no such study can be approved; metrics_port: on loopback, 0 for none;
    renew_days_left: the certificate is renewed when fewer days are left; lifetime: caps by unit."""

    data: DataSettings
    teachers: TeacherSettings
    lifetime: Mapping[str, LifetimeCap]
    settle: bool | None
    policy: Path
    metrics_port: int = 0
    renew_days_left: int = 10


@dataclass(frozen=True)
class Invitation:
    """What the consortium's operator sent: names, addresses, and the one-time token. authority: PEM."""

    consortium: str
    party: str
    coordinator: str
    address: str
    enrol_address: str
    token: bytes = field(repr=False)
    authority: bytes = field(repr=False)


def read_settings(path: Path) -> PartySettings:
    """The settings in node.toml; relative paths are relative to it. Raises InvalidInput naming file, key and allowed
    values.
    """
    table = TomlTable(path, named_toml(path))
    data, teachers, node = table.table("data"), table.table("teachers"), table.table("node")
    caps = table.table("lifetime")
    lifetime: dict[str, LifetimeCap] = {}
    for unit in UNITS:
        if unit in caps.values:
            cap = caps.table(unit)
            lifetime[unit] = LifetimeCap(cap.number("epsilon"), cap.number("delta"))
            cap.done()
    caps.done()
    missing = [f"data.{key}" for key in ("name", "loader") if key not in data.values]
    missing += ["teachers.kind"] * ("kind" not in teachers.values)
    missing += ["[lifetime.record], [lifetime.patient] or [lifetime.party]"] * (not lifetime)
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        raise InvalidInput(f"{path}: {'; '.join(missing)} {verb} missing; allowed: as the comments of that file say")
    base = path.parent
    settings = PartySettings(
        data=_data_settings(data, base),
        teachers=TeacherSettings(
            kind=teachers.text("kind"),
            seed=teachers.whole("seed", 0, 2**63 - 1),
            files=tuple(base / each for each in teachers.texts("files", ())),
            features=base / teachers.text("features") if "features" in teachers.values else None,
            features_sha256=teachers.text("features_sha256", ""),
            idle_s=teachers.number("idle_s", 300.0),
            stalled_s=teachers.number("stalled_s", 900.0),
        ),
        lifetime=lifetime,
        settle=node.flag("settle") if "settle" in node.values else None,
        policy=base / node.text("policy", "policy.sqlite"),
        metrics_port=node.whole("metrics_port", 0, 65_535, 0),
        renew_days_left=node.whole("renew_days_left", 1, 365, 10),
    )
    for each in (data, teachers, node, table):
        each.done()
    if not settings.data.name:
        raise InvalidInput(f"{path}: data.name is empty; allowed: a name for the data set, to which its caps belong")
    if "patient" in lifetime and not settings.data.patient:
        # Without it a patient's records would lie with several teachers, and vote as several units.
        raise InvalidInput(
            f"{path}: data.patient is {settings.data.patient!r}, and [lifetime.patient] is set; allowed: what "
            "identifies each record's patient, even if no patient has two records"
        )
    if (settings.teachers.features is None) != (settings.teachers.features_sha256 == ""):
        raise InvalidInput(f"{path}: teachers has one of features and features_sha256; allowed: both, or neither")
    for key, seconds in (("idle_s", settings.teachers.idle_s), ("stalled_s", settings.teachers.stalled_s)):
        if not 1 <= seconds <= 86_400:
            raise InvalidInput(f"{path}: teachers.{key} is {seconds}; allowed: 1 to 86400 seconds")
    return settings


def mapping_path(path: Path) -> Path:
    """The mapping file that a node.toml names. Raises InvalidInput naming the key."""
    data = TomlTable(path, named_toml(path)).table("data")
    return path.parent / data.text("mapping", MAPPING_FILE)


def _data_settings(data: TomlTable, base: Path) -> DataSettings:
    loader = data.text("loader")
    return DataSettings(
        name=folded(data.text("name")),
        loader=loader,
        source=source_kind(loader).of(data, base),
        patient=data.text("patient", ""),
        group=data.text("group", ""),
        hospitals=data.text("hospitals", ""),
        mapping=read_mapping(base / data.text("mapping", MAPPING_FILE)),
    )


def read_invitation(path: Path) -> Invitation:
    """An invitation from its file. Raises InvalidInput naming file and key."""
    table = TomlTable(path, named_toml(path))
    try:
        token = base64.b64decode(table.text("token"), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        token = b""
    if len(token) != TOKEN_BYTES:
        raise InvalidInput(f"{path}: token is not {TOKEN_BYTES} bytes in base64url; allowed: the invitation as it came")
    invitation = Invitation(
        consortium=table.text("consortium"),
        party=check_name(table.text("party")),
        coordinator=check_name(table.text("coordinator")),
        address=check_address("address", table.text("address")),
        enrol_address=check_address("enrol_address", table.text("enrol_address")),
        token=token,
        authority=table.text("authority").encode(),
    )
    table.done()
    return invitation
