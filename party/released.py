"""A released student at a hospital: the release is verified first, then its student is applied to own records."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from cryptography import x509
from jaxtyping import Float32, Int64
from numpy import ndarray

from party.audit import released_study
from protocols.errors import DataCorrupt, InvalidInput
from protocols.features.feature_map import FeatureMap, read_features
from protocols.reading import read_bytes
from protocols.release.manifest import STUDENT_FEATURES_FILE, check_files
from protocols.study.deployed import DeployedStudy
from protocols.study.file import read_deployed
from runtime.distribution import lacking

STUDY_FILE, STUDENT_FILE = "study.toml", "student.onnx"


@dataclass(frozen=True, eq=False)
class ReleasedStudent:
    """A student whose release the consortium's coordinator signed, and the study that says how records are encoded.

    features: what the student sees of a record, None for the record itself.
    """

    study: DeployedStudy
    content: bytes = field(repr=False)
    where: str
    features: FeatureMap | None = None

    def predict(self, inputs: Float32[ndarray, "records ..."]) -> Int64[ndarray, " records"]:
        """The class id of each record. Raises InvalidInput without onnxruntime, or if the student cannot take them."""
        try:
            from protocols.features.onnx_model import OnnxModel
        except ModuleNotFoundError as missing:
            raise lacking(missing, "a released student", "onnx") from missing
        model = OnnxModel.of(self.content, where=self.where, own=False)
        inputs = inputs if self.features is None else self.features(inputs)
        # An image may have one more axis for its channels than the study's inputs.
        wanted = [size for size in model.session.get_inputs()[0].shape[1:] if isinstance(size, int)]
        shaped = inputs.reshape(len(inputs), *wanted) if np.prod(wanted) == np.prod(inputs.shape[1:]) else inputs
        output = model.first_output(shaped)
        if output.shape != (len(inputs),) or output.dtype.kind not in "iu" or not self._known(output):
            raise InvalidInput(
                f"{self.where} gives {output.dtype} of shape {output.shape}; allowed: class ids from 0 to "
                f"{self.study.classes - 1}, one a record"
            )
        return output.astype(np.int64)

    def _known(self, output: ndarray) -> bool:
        return not len(output) or bool(output.min() >= 0 and output.max() < self.study.classes)


def read_student(folder: Path, *, authority: x509.Certificate, coordinator: str) -> ReleasedStudent:
    """The student of a release that the coordinator signed and nobody altered since, with its features.

    authority: the consortium's certificate, as it was obtained at enrolment. Raises Refused or DataCorrupt for a
    signature or file that is not as signed, InvalidInput for a release without a student, and for features that are not
    of the study's records.
    """
    digest = released_study(folder, authority=authority, coordinator=coordinator)
    check_files(folder)
    study = read_deployed(folder / STUDY_FILE)
    if study.digest.hex() != digest:
        raise DataCorrupt(f"{folder / STUDY_FILE} is of study {study.digest.hex()[:16]}; allowed: {digest[:16]}")
    path = folder / STUDENT_FILE
    if not path.is_file():
        raise InvalidInput(f"{folder} has no {STUDENT_FILE}; allowed: a release with a student, not of labels alone")
    features = None
    if (folder / STUDENT_FEATURES_FILE).is_file():
        features = read_features(folder / STUDENT_FEATURES_FILE, None)
        if features.input_shape != study.terms.input_shape:
            raise InvalidInput(
                f"{folder / STUDENT_FEATURES_FILE} is made of records of shape {features.input_shape}; allowed: "
                f"{study.terms.input_shape}, the study's"
            )
    return ReleasedStudent(study, read_bytes(path, most=2**31), str(path), features)
