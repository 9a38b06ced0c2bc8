"""A student as files that outlive this software: ONNX for every kind, safetensors for networks; checked with ONNX
Runtime.

Neither format is pickle: they hold only numbers and a graph of known operators.
"""

from __future__ import annotations

import math
import re
import tempfile
import warnings
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final  # Any: figures of JSON

import numpy as np
from jaxtyping import Float32, Int64
from numpy import ndarray

from coordinator.release.folder import ReleasedStudy
from coordinator.students import SCORES
from coordinator.students.choice import Trained
from coordinator.students.findings import FindingsStudent, thresholds_of
from coordinator.students.student import ONNX_FILE, SAFETENSORS_FILE, Student, Written, write_with
from protocols.errors import DataCorrupt, EngineFailed, InvalidInput
from protocols.features.feature_map import FeatureMap, read_features
from protocols.features.scored_model import OUTPUT, ScoredModel
from protocols.reading import read_bytes
from protocols.release.manifest import STUDENT_FEATURES_FILE, check_file, files_in, sha256_of
from protocols.study.features import number_ranges
from protocols.study.findings import PRESENT

# An export with a smaller share of equal predictions has failed; and so has a release, on another machine.
_LEAST_AGREEMENT: Final = 0.99
# Of one student, written as ONNX: float32 in the place of float64.
_SAME_CHANCE: Final = 1e-3
_ONNX_BYTES: Final = 2**31
_SCIKIT_OPSET: Final = {"": 18, "ai.onnx.ml": 3}
_FIGURES: Final = frozenset(
    {"kind", "seed", "labels", "reinforced", "unlabelled", "agreement", "predicted", "input_shape", "classes"}
    | {"features_sha256", "encoders", "files", "thresholds", "ranges"}
)
_KIND: Final = re.compile("[a-z0-9_.+-]{1,40}")


def export_student(student: Student, pool: Float32[ndarray, "queries ..."], folder: Path) -> Written:
    """Writes the student's files and compares ONNX's predictions with its own on the pool.

    The ONNX graph has one input, `inputs` (float32, queries first), and two outputs, `label` (int64 class ids) and
    `probabilities`. Raises InvalidInput for a student without an exporter, EngineFailed if predictions differ.
    """
    if not student.exporter:
        raise InvalidInput(f"a {type(student).__name__} cannot be exported; allowed: a student with an exporter")
    written = write_with(student.exporter, student, folder)
    wanted = student.predict(pool)
    equal = float((predict_onnx(folder / ONNX_FILE, pool, written.input_shape, told=wanted.shape[1:]) == wanted).mean())
    if equal < _LEAST_AGREEMENT:
        agrees = f"{ONNX_FILE} agrees with the student on {100 * equal:.1f} % of the pool"
        raise EngineFailed(f"{agrees}; allowed: at least 99 %")
    return written


def model_for_judges(trained: Trained, pool: Float32[ndarray, "queries ..."]) -> bytes:
    """The student as judges score it. Raises as export_student."""
    with tempfile.TemporaryDirectory() as folder:
        written = export_student(trained.student, trained.features(pool) if trained.features else pool, Path(folder))
        content = read_bytes(Path(folder) / ONNX_FILE, most=_ONNX_BYTES)
    return ScoredModel(content, tuple(written.classes), trained.features, _limits(trained.student)).to_bytes()


def _limits(student: Student) -> tuple[float, ...]:
    """The thresholds of several findings, none of one label."""
    return student.thresholds if isinstance(student, FindingsStudent) else ()


def predict_onnx(
    path: Path, inputs: Float32[ndarray, "queries ..."], input_shape: tuple[int, ...], *, told: tuple[int, ...] = ()
) -> Int64[ndarray, "queries *findings"]:
    """The class that an exported student predicts for each query, computed on the CPU with one thread. told: the number
    of findings, where it tells several of each query.

    Raises DataUnavailable, DataCorrupt, and InvalidInput where it cannot take the inputs.
    """
    from protocols.features.onnx_model import OnnxModel  # onnxruntime, which whoever only verifies may not have

    model = OnnxModel.of(read_bytes(path, most=_ONNX_BYTES), where=path.name, own=False)
    if np.prod(input_shape) != np.prod(inputs.shape[1:]):
        raise InvalidInput(f"{path.name} takes inputs of shape {input_shape}; allowed: {inputs.shape[1:]}")
    found = model.first_output(inputs.reshape(len(inputs), *input_shape))
    if found.shape != (len(inputs), *told) or found.dtype.kind not in "iu":
        raise InvalidInput(f"{path.name} gives {found.dtype} of shape {found.shape}; allowed: one class per query")
    return found.astype(np.int64)


def write_student(
    folder: Path,
    released: ReleasedStudy,
    trained: Trained,
    pool: Float32[ndarray, "queries ..."],
    *,
    judged: bytes | None = None,
) -> dict[str, Any]:
    """Writes the student's files, and that of the features that it sees; returns its figures. judged: the model that
    judges scored, whose ONNX file is then the student's. Raises InvalidInput where that is another one."""
    features = trained.features
    if features is not None:
        (folder / STUDENT_FEATURES_FILE).write_bytes(features.to_bytes())
    seen = pool if features is None else features(pool)
    written = export_student(trained.student, seen, folder)
    if judged is not None:
        # An exporter names things otherwise each time: the file of the same student, but not its bytes.
        model = ScoredModel.from_bytes(judged)
        (folder / ONNX_FILE).write_bytes(model.content)
        given = model.probabilities(np.asarray(pool), classes=released.study.labelled.said)
        apart = float(np.abs(given - trained.student.predict_proba(seen)).max())
        if model.classes != tuple(written.classes) or not apart <= _SAME_CHANCE:
            raise InvalidInput(
                f"judges scored another student, whose probabilities are {apart:.3g} off on the pool; allowed: "
                "that one alone; train it again, with its kind, seed and features"
            )
    names = [*written.files, *([] if features is None else [STUDENT_FEATURES_FILE])]
    return {
        "kind": trained.kind,
        "seed": trained.seed,
        **_learned(released),
        **_predictions(folder, released, pool, features, written.input_shape),
        # Those that its file has, and judges were asked with; the pool gives the same but for rounding.
        "thresholds": list(_limits(trained.student)),
        "input_shape": list(written.input_shape),
        "classes": list(written.classes),
        "features_sha256": None if features is None else features.digest,
        "encoders": [] if features is None else [each.origin() for each in features.encoders],
        "files": {name: sha256_of(folder / name) for name in names},
        # Of what it learned from: public records. Beyond them nobody knows what it says.
        "ranges": number_ranges(released.study.terms.features, np.asarray(pool)),
    }


def check_student(
    folder: Path,
    released: ReleasedStudy,
    figures: Mapping[str, Any],
    pool: Float32[ndarray, "queries ..."] | None,
    scores: Student | None,
) -> str:
    """Raises DataCorrupt or InvalidInput unless the student's files are those of its figures, and predict as these say;
    returns what was not checked, "" if nothing was left. pool: the study's, None where it is not at hand; scores: those
    that the released sums give, None where they could not be made again: students of that kind are held against them.
    """
    try:
        files, shape = dict(figures["files"]), tuple(map(int, figures["input_shape"]))
        kind, digest = str(figures["kind"]), figures["features_sha256"]
        said = {**figures, "seed": int(figures["seed"]), "classes": [int(each) for each in figures["classes"]]}
        said |= {"agreement": float(figures["agreement"]), "predicted": [int(each) for each in figures["predicted"]]}
        said |= {"thresholds": [float(each) for each in figures["thresholds"]]}
        if figures.keys() != _FIGURES or len(said["predicted"]) != released.study.labelled.said:
            raise ValueError(f"they are {sorted(figures)[:20]}")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataCorrupt(f"the student's figures cannot be read: {error!r:.200}") from None
    wanted = {ONNX_FILE, STUDENT_FEATURES_FILE} if digest is not None else {ONNX_FILE}
    if not wanted <= set(files) <= set(files_in(folder)) or not _KIND.fullmatch(kind):
        raise DataCorrupt(f"the student is a {kind[:40]!r} in {sorted(files)[:5]}; allowed: {sorted(wanted)}, all here")
    for name in files:
        check_file(folder, name, files)
    features = None if digest is None else read_features(folder / STUDENT_FEATURES_FILE, str(digest))
    made = {**said, **_learned(released), "input_shape": list(shape), "kind": kind}
    made["encoders"] = [] if features is None else [each.origin() for each in features.encoders]
    of_sums = _check_scores(folder, digest, scores, here=pool is not None) if kind == SCORES else []
    without = [f"what {ONNX_FILE} predicts"]
    if pool is not None and find_spec("onnxruntime") is None:
        without = [f"what {ONNX_FILE} predicts, which needs onnxruntime"]
    elif pool is not None:
        without = []
        again = _predictions(folder, released, pool, features, shape)
        apart = np.abs(np.array(again["predicted"]) - np.array(said["predicted"])).max() / len(pool)
        limits = np.array(again["thresholds"]), np.array(said["thresholds"])
        other = limits[0].shape != limits[1].shape or np.abs(limits[0] - limits[1]).max(initial=0.0) > _SAME_CHANCE
        if other or max(apart, abs(again["agreement"] - said["agreement"])) > 1 - _LEAST_AGREEMENT:
            raise DataCorrupt(f"{ONNX_FILE} predicts {again}; its figures say otherwise")
        _check_classes(folder, released, pool, features, shape, said["classes"])
    different = [name for name in made if made[name] != figures.get(name)]
    if pool is not None and figures["ranges"] != number_ranges(released.study.terms.features, np.asarray(pool)):
        different.append("ranges")
    if different:
        raise DataCorrupt(f"the student's figures {different} are not those of its files and of the labels")
    without += [] if SAFETENSORS_FILE not in files else _check_parameters(folder, shape)
    without += [f"{name}, which only its exporter knows" for name in sorted(set(files) - wanted - {SAFETENSORS_FILE})]
    return " and ".join([*of_sums, *without])


def _check_scores(folder: Path, features: object, scores: Student | None, *, here: bool) -> list[str]:
    """Raises DataCorrupt unless the file has the scores of the released sums; says if that cannot be checked. here:
    whether the pool is at hand."""
    if not here or find_spec("onnx") is None:
        return [f"{ONNX_FILE} against the sums" + ", which needs onnx" * here]
    from coordinator.release.export_graphs import check_scores, features_of

    if scores is None or features != features_of(scores).digest:
        raise DataCorrupt(f"the sums give no scores of features {str(features)[:16]}; allowed: those of graded votes")
    check_scores(folder / ONNX_FILE, scores)
    return []


def _learned(released: ReleasedStudy) -> dict[str, int]:
    """How many labels there were to learn: released ones, the student's own, and records without one."""
    given, own = int((released.told >= 0).sum()), int((released.reinforced >= 0).sum())
    return {"labels": given - own, "reinforced": own, "unlabelled": released.told.size - given}


def _predictions(
    folder: Path,
    released: ReleasedStudy,
    pool: Float32[ndarray, "queries ..."],
    features: FeatureMap | None,
    input_shape: tuple[int, ...],
) -> dict[str, Any]:
    """What the ONNX file predicts for the pool: the records of each class or with each finding, and the share of the
    labels learned."""
    seen = np.asarray(pool) if features is None else features(np.asarray(pool))
    learned, findings = released.told, released.study.findings
    found = predict_onnx(folder / ONNX_FILE, seen, input_shape, told=learned.shape[1:])
    equal = found[learned >= 0] == learned[learned >= 0]
    if findings:
        from protocols.features.onnx_model import OnnxModel  # as in predict_onnx

        model = OnnxModel.of(read_bytes(folder / ONNX_FILE, most=_ONNX_BYTES), where=ONNX_FILE, own=False)
        chances = model.first_output(seen.reshape(len(seen), *input_shape), name=OUTPUT)
        named = {"predicted": (found == PRESENT).sum(axis=0).tolist(), "thresholds": list(thresholds_of(chances))}
        return {"agreement": float(equal.mean()), **named}
    known = np.clip(found, -1, released.study.classes) + 1
    counts = np.bincount(known, minlength=released.study.classes + 2)[1:-1]
    return {"agreement": float(equal.mean()), "predicted": counts.tolist(), "thresholds": []}


def _check_classes(
    folder: Path,
    released: ReleasedStudy,
    pool: Float32[ndarray, "queries ..."],
    features: FeatureMap | None,
    input_shape: tuple[int, ...],
    classes: list[int],
) -> None:
    """Raises DataCorrupt unless these are the classes, or findings, of the columns of the probabilities: the likeliest
    one is what the student names."""
    from protocols.features.onnx_model import OnnxModel  # as in predict_onnx

    seen = np.asarray(pool) if features is None else features(np.asarray(pool))
    seen = seen.reshape(len(seen), *input_shape)
    model = OnnxModel.of(read_bytes(folder / ONNX_FILE, most=_ONNX_BYTES), where=ONNX_FILE, own=False)
    chances = model.first_output(seen, name=OUTPUT)
    same = chances.ndim == 2 and len(set(classes)) == len(classes) == chances.shape[1]
    if released.study.findings:
        same = same and classes == list(range(len(classes)))
    elif same:
        same = bool((np.array(classes)[chances.argmax(axis=1)] == model.first_output(seen)).mean() >= _LEAST_AGREEMENT)
    if not same:
        raise DataCorrupt(f"the classes {classes[:20]} are not those of the probabilities of {ONNX_FILE}")


def _check_parameters(folder: Path, input_shape: tuple[int, ...]) -> list[str]:
    """Raises DataCorrupt unless the network of the safetensors predicts as the ONNX file; says if that cannot be
    checked."""
    lacking = [name for name in ("torch", "safetensors", "onnxruntime") if find_spec(name) is None]
    if lacking:
        return [f"{SAFETENSORS_FILE}, which needs {lacking[0]}"]
    from coordinator.release.export_torch import read_network

    network = read_network(folder / SAFETENSORS_FILE, input_shape)
    if network is None:
        return [f"{SAFETENSORS_FILE}, which is another distribution's network"]
    inputs = np.random.default_rng(0).standard_normal((512, *input_shape)).astype(np.float32)
    equal = float((network.predict(inputs) == predict_onnx(folder / ONNX_FILE, inputs, input_shape)).mean())
    if equal < _LEAST_AGREEMENT:
        raise DataCorrupt(f"{SAFETENSORS_FILE} agrees with {ONNX_FILE} on {100 * equal:.1f} % of random inputs")
    return []


def write_scikit(student: Student, folder: Path) -> Written:
    """Writes student.onnx, by skl2onnx; inputs are flattened; probabilities cover the classes of the labels alone."""
    from skl2onnx import convert_sklearn
    from skl2onnx.common.data_types import FloatTensorType

    from coordinator.students.scikit import ScikitStudent

    if not isinstance(student, ScikitStudent):
        raise InvalidInput(f"the student is {type(student).__name__}; allowed: ScikitStudent")
    width = math.prod(student.input_shape)
    with warnings.catch_warnings():
        # For boosted trees skl2onnx gives protobuf a boolean where it wants an integer.
        warnings.filterwarnings("ignore", message="Field onnx.AttributeProto.ints: Expected an int, got a boolean")
        graph = convert_sklearn(
            student.model,
            initial_types=[("inputs", FloatTensorType([None, width]))],
            final_types=None,
            options={id(student.model): {"zipmap": False, "output_class_labels": False}},
            target_opset=_SCIKIT_OPSET,
        )
    (folder / ONNX_FILE).write_bytes(graph.SerializeToString())
    return Written((ONNX_FILE,), (width,), tuple(int(each) for each in student.model.classes_))
