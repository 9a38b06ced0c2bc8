"""The images of a release are built from a base that is pinned by digest, or not at all."""

import importlib.util
import stat
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
_SPEC = importlib.util.spec_from_file_location("image", ROOT / "deploy" / "image.py")
IMAGE = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(IMAGE)
DIGEST = "sha256:" + "ab" * 32


@pytest.fixture
def release(tmp_path, monkeypatch):
    """A folder with the Containerfiles; skopeo and podman write down how they were called."""
    (tmp_path / "deploy").mkdir()
    for kind in IMAGE.KINDS:
        name = f"deploy/Containerfile.{kind}"
        (tmp_path / name).write_text((ROOT / name).read_text(encoding="utf-8"))
    for tool, prints in (("skopeo", DIGEST), ("podman", "built")):
        path = tmp_path / "bin" / tool
        path.parent.mkdir(exist_ok=True)
        path.write_text(f'#!/bin/sh\necho "{tool} $*" >> "{tmp_path}/called"\necho "{prints}"\n')
        path.chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.delenv("ENGINE", raising=False)
    return tmp_path


def called(release):
    path = release / "called"
    return path.read_text().splitlines() if path.exists() else []


def test_a_base_that_is_not_pinned_is_refused_and_nothing_is_built(release, capsys):
    assert IMAGE.main(["build", "party"], root=release) == 3
    assert "allowed: a pinned base: run python deploy/image.py pin" in capsys.readouterr().err
    for written in ("", "latest", "sha256:12", DIGEST.upper()):
        (release / "deploy" / "base.digest").write_text(written)
        assert IMAGE.main(["build", "party"], root=release) == 3
        assert "allowed: sha256: and 64 hexadecimal digits" in capsys.readouterr().err
    assert called(release) == []


def test_the_digest_that_the_registry_has_is_written_down_and_built_from(release, capsys):
    base = IMAGE.tag_of(release)
    assert IMAGE.main(["pin"], root=release) == 0
    assert (release / "deploy" / "base.digest").read_text() == f"{DIGEST}\n"
    assert IMAGE.main(["build", "coordinator", "--lock", "coordinator-torch"], root=release) == 0
    assert called(release) == [
        f"skopeo inspect --format {{{{.Digest}}}} docker://{base}",
        f"podman build --file deploy/Containerfile.coordinator --build-arg BASE={base}@{DIGEST} "
        "--tag conclave-coordinator --build-arg LOCK=coordinator-torch .",
    ]


def test_containerfiles_of_two_bases_are_refused(release, capsys):
    path = release / "deploy" / "Containerfile.party"
    path.write_text(path.read_text().replace("ARG BASE=docker.io", "ARG BASE=example.org"))
    assert IMAGE.main(["pin"], root=release) == 3
    assert "allowed: one" in capsys.readouterr().err
