import numpy as np
import pytest
import skops.io
from skl2onnx import to_onnx
from sklearn.linear_model import LogisticRegression

from party.teachers import TEACHERS
from party.teachers.own import kind_of
from protocols.errors import DataCorrupt, InvalidInput
from tests.harness.distributions import example, install, refreshed
from tests.harness.refusals import refuses

SKLEARN = "tests.harness.own_sklearn"
NEAREST, SAVED, SMALL = f"{SKLEARN}:Nearest", "tests.harness.own_models:Saved", "tests.harness.own_torch:Small"
RNG = np.random.default_rng(5)
INPUTS = RNG.standard_normal((80, 4)).astype(np.float32)
LABELS = (INPUTS[:, 0] > 0).astype(np.int64)


@pytest.mark.parametrize("name", [NEAREST, SAVED, SMALL, f"{SKLEARN}:INSTANCE"])
def test_an_own_teacher_is_trained_kept_and_read_again(name, tmp_path):
    kind = kind_of(name)
    (teacher,) = kind.fit([(INPUTS, LABELS)], classes=2, seeds=[3])
    predicted = teacher.predict(INPUTS)
    assert (predicted == LABELS).mean() > 0.85
    teacher.save(tmp_path / "teacher")
    np.testing.assert_array_equal(kind_of(name).load(tmp_path / "teacher").predict(INPUTS), predicted)
    (again,) = kind.fit([(INPUTS, LABELS)], classes=2, seeds=[3])
    np.testing.assert_array_equal(again.predict(INPUTS), predicted)


def test_a_shard_of_one_class_gives_that_class(tmp_path):
    kind = kind_of(NEAREST)
    (teacher,) = kind.fit([(INPUTS[:5], np.ones(5, np.int64))], classes=2, seeds=[0])
    teacher.save(tmp_path / "teacher")
    assert (kind.load(tmp_path / "teacher").predict(INPUTS) == 1).all()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nothing", "allowed: onnx, cnn"),
        ("no.such.module:Thing", "cannot be imported"),
        (f"{SKLEARN}:Missing", "cannot be imported"),
        (f"{SKLEARN}:NOTHING", "cannot be made"),
        ("os:path; rm", "package.module:attribute"),
        ("entry-point:unheard", "package.module:attribute"),
        ("builtins:dict", "with fit and predict"),
    ],
)
def test_what_is_not_installed_or_no_teacher_is_refused(name, words):
    with pytest.raises(InvalidInput, match=words):
        kind_of(name)


def test_a_file_with_types_of_another_package_is_refused(tmp_path):
    import fractions

    (tmp_path / "teacher").write_bytes(skops.io.dumps(fractions.Fraction(1, 3)))
    with pytest.raises(DataCorrupt, match=r"fractions|readable"):
        kind_of(NEAREST).load(tmp_path / "teacher")
    for name in (NEAREST, SAVED, SMALL):
        (tmp_path / "teacher").write_bytes(b"nonsense")
        with pytest.raises(DataCorrupt):
            kind_of(name).load(tmp_path / "teacher")


@pytest.mark.parametrize("rows", [None, 16])
def test_an_onnx_file_votes_as_its_model_does(rows, tmp_path):
    model = LogisticRegression().fit(INPUTS, LABELS)
    graph = to_onnx(model, INPUTS[:1], options={"zipmap": False})
    if rows is not None:
        graph.graph.input[0].type.tensor_type.shape.dim[0].dim_value = rows
    (tmp_path / "model.onnx").write_bytes(graph.SerializeToString())
    teacher = kind_of("onnx").load(tmp_path / "model.onnx")
    np.testing.assert_array_equal(teacher.predict(INPUTS), model.predict(INPUTS))
    teacher.save(tmp_path / "teacher")
    np.testing.assert_array_equal(kind_of("onnx").load(tmp_path / "teacher").predict(INPUTS), model.predict(INPUTS))
    with refuses(InvalidInput, "inputs"):
        teacher.predict(np.ones((3, 5), np.float32))


def test_what_is_no_onnx_model_is_refused(tmp_path):
    (tmp_path / "model.onnx").write_bytes(b"\x08\x07nonsense")
    with refuses(DataCorrupt, "model.onnx"):
        kind_of("onnx").load(tmp_path / "model.onnx")
    with pytest.raises(InvalidInput, match="trained elsewhere"):
        kind_of("onnx").fit([(INPUTS, LABELS)], classes=2, seeds=[0])


def test_a_teacher_that_another_distribution_registers_is_found_by_its_name(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    source = example("The most frequent class")
    install(tmp_path, name="often", group="conclave.teachers", entries={"often": "often:majority"}, source=source)
    monkeypatch.setattr("party.teachers.TEACHERS", refreshed(TEACHERS))
    monkeypatch.setattr("party.teachers.own.TEACHERS", refreshed(TEACHERS))
    (teacher,) = kind_of("often").fit([(INPUTS, np.ones_like(LABELS))], classes=2, seeds=[0])
    assert (teacher.predict(INPUTS) == 1).all()
