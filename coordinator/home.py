"""The coordinator's folder: its files, and its settings, which people edit."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from protocols.crypto.identity import certificate_from_pem, check_name
from protocols.errors import InvalidInput
from runtime.address import check_address
from runtime.files import read
from runtime.key_files import read_key
from runtime.settings import read_toml_settings, write_settings

# In the folder of a study, what its second batch is about.
ASKED_ABOUT = "asked_about.model"
_COMMENTS = {
    "consortium": "Name of the consortium, as in the authority's certificate.",
    "coordinator": "Name in this coordinator's certificate; studies name it in [terms].",
    "listen": "Where hospitals' nodes dial in (mutual TLS), HOST:PORT.",
    "enrol_listen": "Where new hospitals ask for their certificate (server TLS), HOST:PORT.",
    "address": "How hospitals reach `listen`: the public HOST:PORT, which invitations name.",
    "enrol_address": "How hospitals reach `enrol_listen`: the public HOST:PORT.",
    "guardian": "How this coordinator reaches the guardian of studies of level two_server, HOST:PORT; empty for none.",
    "certificate_days": "Validity of a hospital's certificate in days; its node renews it by itself.",
    "invitation_days": "Days within which an invitation must be used.",
    "metrics_port": "Port on 127.0.0.1 of /healthz and /metrics; 0 for none.",
    "patience_s": "Seconds that a labelling waits for parties without which there is no quorum, before it stops; "
    "also the total for each late party, of which at most five deadlines in a row while the others are a quorum.",
}


@dataclass(frozen=True, kw_only=True)
class CoordinatorSettings:
    """What coordinator.toml says. Raises InvalidInput, with the value and the allowed range."""

    consortium: str
    coordinator: str
    listen: str
    enrol_listen: str
    address: str
    enrol_address: str
    guardian: str = ""
    certificate_days: int = 90
    invitation_days: int = 14
    metrics_port: int = 9464
    patience_s: int = 86_400

    def __post_init__(self) -> None:
        check_name(self.consortium)
        check_name(self.coordinator)
        for key in ("listen", "enrol_listen", "address", "enrol_address"):
            check_address(key, getattr(self, key), listens=key.endswith("listen"))
        if self.guardian:
            check_address("guardian", self.guardian)
        for key, least, most in (
            ("certificate_days", 1, 825),
            ("invitation_days", 1, 365),
            ("metrics_port", 0, 65_535),
            ("patience_s", 0, 10**8),
        ):
            value = getattr(self, key)
            if not least <= value <= most:
                raise InvalidInput(f"{key} is {value}; allowed: {least} to {most}")


class CoordinatorHome:
    """The folder of one coordinator."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.expanduser()
        self.settings_file = self.folder / "coordinator.toml"
        self.authority_key_file = self.folder / "authority-key.pem"
        self.authority_file = self.folder / "authority.pem"
        self.key_file = self.folder / "key.pem"
        self.certificate_file = self.folder / "certificate.pem"
        self.store_file = self.folder / "store.sqlite"
        self.lock_file = self.folder / "serve.lock"
        self.studies = self.folder / "studies"

    def study(self, name: str) -> Path:
        """The folder of a study: study.toml, pool.npy, ledger.sqlite, student/."""
        return self.studies / check_name(name)

    def asked_about(self, study: str) -> Path:
        """What a second batch is about: the model that judges score, or the first sum's scores."""
        return self.study(study) / ASKED_ABOUT

    def released(self, name: str) -> Path:
        """What is kept of each release of a study, for the statements of later ones: who signed what it guarantees."""
        return self.study(name) / "released"

    def settings(self) -> CoordinatorSettings:
        """Reads coordinator.toml. Raises DataUnavailable before init, InvalidInput for a wrong key or value."""
        return read_toml_settings(self.settings_file, CoordinatorSettings, role="coordinator")

    def authority(self) -> x509.Certificate:
        """The consortium's certificate."""
        return certificate_from_pem(read(self.authority_file))

    def authority_key(self) -> ec.EllipticCurvePrivateKey:
        """The key that signs certificates."""
        return read_key(self.authority_key_file)

    def key(self) -> ec.EllipticCurvePrivateKey:
        """The coordinator's own key."""
        return read_key(self.key_file)

    def certificate(self) -> x509.Certificate:
        """The coordinator's own certificate."""
        return certificate_from_pem(read(self.certificate_file))


def settings_toml(settings: CoordinatorSettings) -> str:
    """coordinator.toml, with comments."""
    title = "Settings of a Conclave coordinator. Read when `serve` starts."
    return write_settings(asdict(settings), title=title, about=_COMMENTS)
