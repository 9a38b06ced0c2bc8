"""Tools that know nothing of this project verify a release's signature and read its bill of materials."""

import json
import shutil
import subprocess

import pytest
from model_signing import verifying

from coordinator.release.pages import bill_of_materials
from tests.harness.pages import ROOT, blocks
from tests.harness.released import failed

STUDENT = {"kind": "mlp", "input_shape": [4]}


def stock(folder, authority):
    """OpenSSF Model Signing, as `model_signing verify certificate` runs it. Raises ValueError."""
    verifying.Config().use_certificate_verifier(certificate_chain=[authority]).verify(folder, folder / "model.sig")


def schema_faults(text):
    """What CycloneDX's own validator finds in a bill of materials, or None. Its grammars take a second to import."""
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    return JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)


@pytest.fixture
def copy(signed, tmp_path):
    return shutil.copytree(signed[2], tmp_path / "release")


def test_openssf_model_signing_verifies_a_release_with_the_consortiums_own_authority(signed):
    stock(signed[2], signed[2] / "authority.pem")


def test_openssl_alone_tells_who_signed_which_files_as_the_page_says(copy):
    shutil.copy(copy / "authority.pem", copy.parent)
    commands = blocks(ROOT / "docs" / "how-to" / "run-a-consortium.md")[-1].text
    checked = subprocess.run(["bash", "-euc", commands], cwd=copy, capture_output=True, text=True, check=True).stdout
    assert "Verified OK" in checked
    assert "labels.csv: OK" in checked
    (copy / "labels.csv").write_text("row,label\n")
    assert subprocess.run(["bash", "-euc", commands], cwd=copy, capture_output=True).returncode != 0


@pytest.mark.parametrize("name", ["labels.csv", "privacy.json", "manifest.json", "sbom.cdx.json"])
def test_both_verifiers_notice_one_changed_byte(copy, name):
    content = bytearray((copy / name).read_bytes())
    content[-2] ^= 1
    (copy / name).write_bytes(bytes(content))
    with pytest.raises(ValueError, match=r"mismatch|Hash"):
        stock(copy, copy / "authority.pem")
    assert "model signature" in failed(copy)


def test_both_verifiers_notice_an_added_file_and_a_changed_signature(copy):
    (copy / "more.txt").write_text("more")
    with pytest.raises(ValueError, match=r"Extra|extra|mismatch"):
        stock(copy, copy / "authority.pem")
    assert "model signature" in failed(copy)
    (copy / "more.txt").unlink()
    bundle = json.loads((copy / "model.sig").read_text())
    signature = bundle["dsseEnvelope"]["signatures"][0]["sig"]
    bundle["dsseEnvelope"]["signatures"][0]["sig"] = (
        signature[:20] + ("A" if signature[20] != "A" else "B") + signature[21:]
    )
    (copy / "model.sig").write_text(json.dumps(bundle))
    assert set(failed(copy)) == {"model signature"}


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"mediaType": 1}', b'{"verificationMaterial": []}'])
def test_a_bundle_that_is_none_is_one_failed_check(copy, content):
    (copy / "model.sig").write_bytes(content)
    assert set(failed(copy)) == {"model signature"}


@pytest.mark.parametrize("student", [None, STUDENT])
def test_the_bill_of_materials_follows_the_schema_of_cyclonedx(signed, student):
    statement = json.loads((signed[2] / "privacy.json").read_text())
    made = bill_of_materials(statement, student, {"labels.csv": (signed[2] / "labels.csv").read_text()})
    assert schema_faults(json.dumps(made)) is None
    kinds = [each["type"] for each in made["components"]]
    assert kinds.count("machine-learning-model") == (student is not None)
    assert {"conclave-pate", "numpy", "cryptography"} <= {each["name"] for each in made["components"]}


def test_the_released_bill_names_the_software_that_made_the_release(signed):
    made = json.loads((signed[2] / "sbom.cdx.json").read_text())
    assert schema_faults(json.dumps(made)) is None
    assert made["metadata"]["component"]["name"] == "left-or-right"
