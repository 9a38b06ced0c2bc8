"""Units, containers and the compose file: hardened, and what they call exists. Images are not built here."""

import configparser
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from coordinator.commands.group import COMMANDS as COORDINATOR_COMMANDS
from coordinator.commands.group import HOME_VARIABLE as COORDINATOR_HOME
from guardian.commands import HOME_VARIABLE as GUARDIAN_HOME
from party.commands.group import COMMANDS as PARTY_COMMANDS
from party.commands.group import HOME_VARIABLE as PARTY_HOME
from runtime.address import free_port
from tests.harness.pages import ROOT, blocks
from tests.system.docs.flag_tables import commands

DEPLOY = ROOT / "deploy"
UNITS = sorted(DEPLOY.glob("*.service"))
OPERATOR = ROOT / "docs" / "tutorials" / "operator.md"
HARDENED = {
    "NoNewPrivileges": "yes", "CapabilityBoundingSet": "", "ProtectSystem": "strict", "ProtectHome": "yes",
    "PrivateTmp": "yes", "PrivateDevices": "yes", "PrivateUsers": "yes", "ProtectKernelModules": "yes",
    "ProtectKernelTunables": "yes", "ProtectKernelLogs": "yes", "ProtectControlGroups": "yes", "ProtectClock": "yes",
    "RestrictNamespaces": "yes", "RestrictSUIDSGID": "yes", "RestrictRealtime": "yes", "LockPersonality": "yes",
    "MemoryDenyWriteExecute": "yes", "SystemCallArchitectures": "native", "StateDirectoryMode": "0700",
    "UMask": "0077", "LimitCORE": "0", "RestrictAddressFamilies": "AF_INET AF_INET6 AF_UNIX",
}  # fmt: skip
COMMANDS = {"conclave-party": PARTY_COMMANDS, "conclave-coordinator": COORDINATOR_COMMANDS}
HOMES = {"conclave-party": PARTY_HOME, "conclave-coordinator": COORDINATOR_HOME, "conclave-guardian": GUARDIAN_HOME}


def _service(unit: Path) -> dict[str, str]:
    parser = configparser.ConfigParser(strict=False, interpolation=None, delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # keys are case-sensitive
    parser.read(unit)
    return dict(parser["Service"])


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_is_hardened_and_starts_a_command_that_exists(unit: Path) -> None:
    service = _service(unit)
    assert {key: service.get(key) for key in HARDENED} == HARDENED
    program, *words = service["ExecStart"].removeprefix("/opt/conclave/bin/").split()
    assert service["User"] == service["Group"] == service["StateDirectory"] == unit.stem
    assert " ".join(words) in commands(program.removeprefix("conclave-"))
    assert f"{HOMES[unit.stem]}=/var/lib/{service['StateDirectory']}" in service["Environment"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_finds_a_unit_valid_and_little_exposed(unit: Path, tmp_path: Path) -> None:
    here = tmp_path / unit.name
    here.write_text(unit.read_text().replace("/opt/conclave/bin", str(Path(sys.executable).parent)))
    verified = subprocess.run(["systemd-analyze", "verify", here], capture_output=True, text=True)
    assert (verified.returncode, verified.stderr) == (0, "")
    said = subprocess.run(["systemd-analyze", "security", "--offline=true", here], capture_output=True, text=True)
    level = re.search(r"exposure level.*?: ([\d.]+)", said.stdout)
    assert level is not None, said.stderr
    assert float(level[1]) < 2


def _compose() -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return content


def test_every_container_is_read_only_unprivileged_and_not_root() -> None:
    compose = _compose()
    assert set(compose["services"]) == {"coordinator", "guardian", "north", "south", "west"}
    guardian = compose["services"]["guardian"]
    assert guardian["entrypoint"] == ["conclave-guardian"]
    assert " ".join(guardian["command"]) in commands("guardian")
    assert guardian["environment"] == {GUARDIAN_HOME: "/home/conclave"}
    for service in compose["services"].values():
        assert service["user"] == "65532:65532"
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert all("noexec" in each for each in service["tmpfs"])
        assert not {"ports", "privileged", "cap_add", "network_mode", "pid"} & set(service)
        written = [volume for volume in service["volumes"] if not volume.endswith(":ro")]
        assert [volume.partition(":")[2] for volume in written] == ["/home/conclave"]
        assert (DEPLOY / "compose.yaml").parent.joinpath(service["build"]["context"]).resolve() == ROOT
        assert (ROOT / service["build"]["dockerfile"]).is_file()
    assert compose["networks"]["consortium"]["internal"] is True


@pytest.mark.parametrize("kind", ["party", "coordinator"])
def test_an_image_is_pinned_not_root_and_without_a_package_manager(kind: str) -> None:
    text = (DEPLOY / f"Containerfile.{kind}").read_text()
    base = re.search(r"^ARG BASE=(\S+)$", text, re.MULTILINE)
    assert base is not None
    assert re.search(r":\d+\.\d+\.\d+-", base[1]), "a base of a full version"
    assert re.findall(r"^FROM \$\{BASE\}", text, re.MULTILINE) == ["FROM ${BASE}"] * 2
    last = text.rpartition("FROM ${BASE}")[2]
    assert "USER 65532:65532" in last
    assert "pip uninstall --yes pip" in last
    assert "pip install" not in last
    assert f'ENTRYPOINT ["conclave-{kind}"]' in last
    command = re.search(r'^CMD \["(\w+)"\]', last, re.MULTILINE)
    assert command is not None
    assert command[1] in COMMANDS[f"conclave-{kind}"]
    assert f"{HOMES[f'conclave-{kind}']}=/home/conclave" in last
    for source in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE):
        assert all((ROOT / name).exists() for name in source.split())


# Runs what a container would, here: paths of the images become folders of the test, host names loopback.
_ENGINE = """
import os, subprocess, sys
from tests.harness.forking import Forked

Forked.address, root, records, port, enrol = (
    os.environ[name] for name in ("FORKING", "VOLUMES", "RECORDS", "PORT", "ENROL_PORT")
)
words = sys.argv[sys.argv.index("-f") + 2:]

def start(service, words, entry=None):
    home = os.path.join(root, service)
    os.makedirs(home, mode=0o700, exist_ok=True)
    program = "coordinator" if service == "coordinator" else "party"
    maps = [("/home/conclave", home), ("/records/records.csv", f"{records}/{service}.csv"), ("/study/", f"{records}/"),
            ("coordinator:7443", f"127.0.0.1:{port}")]
    for old, new in maps:
        words = [word.replace(old, new) for word in words]
    if words[0] == "init" and service == "coordinator":
        words += ["--enrol-address", f"127.0.0.1:{enrol}", "--metrics-port", "0"]
    variables = {"CONCLAVE_PARTY_HOME": home, "CONCLAVE_COORDINATOR_HOME": home, "OMP_NUM_THREADS": "1"}
    command = [entry] if entry else [sys.executable, "-m", program]
    return [*command, *words], {"cwd": home, "env": {**os.environ, **variables}}

if words[0] == "up":
    for service in words[2:] or ["north", "south", "west"]:
        command, where = start(service, ["serve" if service == "coordinator" else "run"])
        with open(os.path.join(root, service + ".log"), "wb") as log:
            process = Forked(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, **where)
        with open(os.path.join(root, "pids"), "a") as pids:
            print(process.pid, file=pids)
else:
    words = [word for word in words[1:] if word not in ("--rm", "-T")]
    entry = words[1] if words[0] == "--entrypoint" else None
    service, *arguments = words[2:] if entry else words
    command, where = start(service, arguments, entry)
    sys.exit(Forked(command, **where).wait())
"""


@pytest.mark.slow
def test_the_setup_of_the_compose_file_lets_three_hospitals_join_and_vote(tmp_path: Path, forking_address: str) -> None:
    records = tmp_path / "records"
    records.mkdir()
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    for block in [block for block in blocks(OPERATOR) if block.language == "console"][:2]:
        subprocess.run(["bash", "-euo", "pipefail", "-c", block.text], cwd=records, env=environment, check=True)
    engine = tmp_path / "engine.py"
    engine.write_text(_ENGINE)
    root = tmp_path / "volumes"
    root.mkdir()
    environment |= {
        "RECORDS": str(records),
        "COMPOSE": f"{sys.executable} {engine}",
        "FORKING": forking_address,
        "VOLUMES": str(root),
        "PORT": str(free_port()),
        "ENROL_PORT": str(free_port()),
        "PYTHONPATH": str(ROOT),
    }
    try:
        done = subprocess.run([DEPLOY / "compose-setup"], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        coordinator = [
            sys.executable,
            "-m",
            "coordinator",
            "label",
            "tumours",
            "--wait",
            "--home",
            root / "coordinator",
        ]
        labelled = subprocess.run(coordinator, env=environment, capture_output=True, text=True, timeout=300)
        assert "finished" in labelled.stdout, labelled.stdout + labelled.stderr
    finally:
        for pid in (root / "pids").read_text().split() if (root / "pids").exists() else []:
            os.kill(int(pid), signal.SIGTERM)
