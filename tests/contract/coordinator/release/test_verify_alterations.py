"""A release of every kind, of which any file is altered and everything signed again with the right key: verification
fails, or says what it did not check."""

import functools
import json
import re
import shutil

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from coordinator.labelling.training import train_student
from coordinator.release.verify import AUTHORITY, verify_release
from protocols.crypto.identity import to_pem
from protocols.features.feature_map import FeatureMap
from protocols.features.linear import Scale
from runtime.distribution import installed_version
from tests.harness.deployed_records import record_study_of
from tests.harness.released import POOL, Consortium, failed, small_study

_SIGNED = ("manifest.json", "manifest.sig", "model.sig")


@pytest.fixture(scope="module")
def releases(tmp_path_factory):
    """(consortium, folder, pool, authority's file) by the kind of release: made once."""
    home = tmp_path_factory.mktemp("kinds")
    consortium = Consortium(home)
    (home / "authority.pem").write_bytes(to_pem(consortium.authority))

    @functools.cache
    def made(kind):
        if kind == "records":
            study, queries = record_study_of()
            labelled = consortium.label(study, queries=queries)
            return labelled, consortium.release(labelled, home / kind)
        if kind == "earlier":
            labelled = consortium.label(small_study(name="second"))
            return labelled, consortium.release(labelled, home / kind, earlier=[made("labels")[1]])
        labelled = made("labels")[0] if kind != "labels" else consortium.label(small_study())
        if kind == "labels":
            return labelled, consortium.release(labelled, home / kind)
        features = FeatureMap((4,), (Scale.of(np.zeros(4), np.ones(4)),)) if kind == "mlp" else None
        trained = train_student(labelled, POOL, kind=kind, seed=1, device="cpu", features=features)
        return labelled, consortium.release(labelled, home / kind, trained=trained)

    return consortium, made, home / "authority.pem"


def another_figure(content):
    """The same with one figure changed: of text the last number, elsewhere a byte in the middle."""
    try:
        text = content.decode()
        *_, last = re.finditer(r"[1-9]", text)
        return (text[: last.start()] + str(int(last[0]) % 9 + 1) + text[last.end() :]).encode()
    except (UnicodeDecodeError, ValueError):
        return content[: len(content) // 2] + bytes([content[len(content) // 2] ^ 1]) + content[len(content) // 2 + 1 :]


ALTERED = {
    "figure": another_figure,
    "deleted": lambda content: None,
    "appended": lambda content: content + b"\n",
    "trailing zeros": lambda content: content + bytes(3),
    "replaced": lambda content: b"{}\n",
    "emptied": lambda content: b"",
}


@pytest.mark.parametrize("kind", ["labels", "random_forest", "mlp", "records", "earlier"])
def test_every_file_of_a_release_is_covered_whoever_signs_it_again(releases, tmp_path, kind):
    consortium, made, authority = releases
    labelled, folder = made(kind)
    checks = verify_release(folder, authority, pool=labelled.pool)
    assert [check for check in checks if not check.passed] == []  # an honest one is verified, with nothing left
    passed = []
    for name in sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()):
        for how, alter in ALTERED.items():
            altered = shutil.copytree(folder, tmp_path / "altered")
            content = alter((altered / name).read_bytes())
            (altered / name).unlink()
            if content is not None:
                (altered / name).write_bytes(content)
            if name not in _SIGNED:
                consortium.sign_again(altered)
            if all(check.passed for check in verify_release(altered, authority, pool=labelled.pool)):
                passed.append((name, how))
            shutil.rmtree(altered)
    assert passed == []


@pytest.mark.parametrize("where", ["more.txt", "evidence/more.txt", "evidence/earlier/002/privacy.json", "empty/"])
def test_what_no_release_holds_is_refused_though_it_is_signed(releases, tmp_path, where):
    consortium, made, authority = releases
    altered = shutil.copytree(made("labels")[1], tmp_path / "altered")
    if where.endswith("/"):
        consortium.sign_again(altered)
        (altered / where).mkdir()
    else:
        (altered / where).parent.mkdir(parents=True, exist_ok=True)
        (altered / where).write_text("all is well")
        consortium.sign_again(altered)
    assert failed(altered, authority)


@pytest.mark.parametrize("how", ["whitespace", "key twice", "another name"])
def test_a_models_signature_has_one_form(releases, tmp_path, how):
    consortium, made, authority = releases
    altered = shutil.copytree(made("labels")[1], tmp_path / "altered")
    path = altered / "model.sig"
    text = path.read_text()
    if how == "whitespace":
        path.write_text(json.dumps(json.loads(text)))
    elif how == "key twice":
        path.write_text(text.replace("{", '{\n "mediaType": "text",', 1))
    else:
        consortium.sign_again(altered, name="another model")
    found = failed(altered, authority)
    assert ("study and labels" if how == "another name" else "model signature") in found


def test_a_student_that_predicts_otherwise_is_found_with_the_pool_and_not_checked_without(releases, tmp_path):
    consortium, made, authority = releases
    labelled, folder = made("mlp")
    altered = shutil.copytree(folder, tmp_path / "altered")
    (altered / "student.safetensors").unlink()
    model = onnx.load(altered / "student.onnx")
    for each in model.graph.initializer:
        each.CopyFrom(numpy_helper.from_array(-numpy_helper.to_array(each), each.name))
    onnx.save(model, altered / "student.onnx")
    consortium.remake(altered)  # the hashes, and all pages, as the new student has them
    checks = {check.name: check.passed for check in verify_release(altered, authority)}
    assert checks["student"] is None
    assert "student" in failed(altered, authority, labelled.pool)


@pytest.mark.parametrize(("name", "value"), [("classes", [1, 0]), ("classes", [0]), ("predicted", ["27", "9"])])
def test_figures_of_a_student_are_held_to_its_file(releases, tmp_path, name, value):
    consortium, made, authority = releases
    labelled, folder = made("random_forest")
    altered = shutil.copytree(folder, tmp_path / "altered")
    figures = json.loads((folder / "student.json").read_text()) | {name: value}
    (altered / "student.json").write_text(json.dumps(figures, indent=2) + "\n")
    consortium.sign_again(altered)
    assert "student" in failed(altered, authority, labelled.pool)


def of_version(folder, consortium, version, *changes):
    """A release as another version made it, with these changes in the named files, signed again."""
    stated = json.loads((folder / "privacy.json").read_text())
    stated["software"] = stated["stated_by_the_coordinator"]["software"] = version
    (folder / "privacy.json").write_text(json.dumps(stated, indent=2) + "\n")
    consortium.remake(folder)
    for name, old, new in changes:
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new))
    consortium.sign_again(folder)


def test_a_page_of_another_version_shows_the_statements_figures_or_fails(releases, tmp_path):
    consortium, made, authority = releases
    folder = made("labels")[1]
    stated = json.loads((folder / "privacy.json").read_text())
    epsilon = re.search(r'data-name="epsilon guaranteed">([0-9.]+)<', (folder / "privacy.html").read_text())[1]
    delta = str(stated["seats"][0]["delta"])
    for position, (name, old, new) in enumerate(
        [
            ("privacy.html", epsilon, "0.02"),
            ("privacy.html", delta, "1e-12"),
            ("privacy.html", "</main>", "<p>epsilon ⓪.⓪②</p></main>"),
            ("model_card.md", epsilon, "0.02"),
            ("report.html", str(stated["queries"]["answered"]), "99999"),
            ("sbom.cdx.json", str(stated["queries"]["answered"]) + " noisy", "99999 noisy"),
        ]
    ):
        altered = shutil.copytree(folder, tmp_path / str(position))
        of_version(altered, consortium, "0.0.9", (name, old, new))
        assert "pages" in failed(altered, authority), (name, new)


def test_the_words_of_another_version_are_not_checked_and_it_says_so(releases, tmp_path):
    consortium, made, authority = releases
    folder = made("labels")[1]
    for position, version in enumerate(["0.0.9", installed_version()]):
        altered = shutil.copytree(folder, tmp_path / str(position))
        of_version(altered, consortium, version, ("privacy.html", "What is not covered", "Everything is covered"))
        checks = {check.name: check for check in verify_release(altered, authority)}
        assert checks["pages"].passed is (None if version == "0.0.9" else False)
        assert checks["statement"].passed
        words = 'not_covered": [\n    "'
        of_version(altered, consortium, version, ("privacy.json", words, f"{words}Oh: "))
        checks = {check.name: check for check in verify_release(altered, authority)}
        assert checks["statement"].passed is (None if version == "0.0.9" else False)


def test_without_the_authority_nothing_is_verified(releases):
    checks = {check.name: check for check in verify_release(releases[1]("labels")[1], None)}
    assert checks[AUTHORITY].passed is None
