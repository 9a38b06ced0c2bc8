"""Looking a kind of teacher up, also where its packages are not installed."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from party.teachers import TEACHERS, teacher_kind
from protocols.errors import InvalidInput
from protocols.installing import install
from tests.harness.refusals import refuses


def run_python(program: str) -> str:
    root = Path(__file__).parents[4]
    result = subprocess.run(
        [sys.executable, "-c", program],
        cwd=root,
        env=os.environ | {"PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    return result.stdout + result.stderr


def test_an_unknown_name_lists_the_known_ones() -> None:
    with refuses(InvalidInput, "resnet", "logistic_regression"):
        teacher_kind("resnet")


def test_importing_the_table_imports_neither_torch_nor_scikit_learn() -> None:
    program = "import sys, party.teachers; print(sorted({'torch', 'sklearn'} & set(sys.modules)))"
    assert run_python(program).strip() == "[]"


@pytest.mark.parametrize(
    ("name", "package", "extra"),
    [
        ("cnn", "torch", "torch"),
        ("mlp", "safetensors", "torch"),
        ("logistic_regression", "sklearn", "sklearn"),
        ("hist_gradient_boosting", "skops", "sklearn"),
    ],
)
def test_a_missing_package_is_named_with_its_extra(name: str, package: str, extra: str) -> None:
    hidden = f"import sys; sys.modules[{package!r}] = None\n"
    output = run_python(f"{hidden}from party.teachers import teacher_kind\nteacher_kind({name!r})")
    assert "InvalidInput" in output
    assert install(extra) in output


@pytest.mark.parametrize("name", TEACHERS)
@pytest.mark.parametrize("device", ["abacus", "mps", "cuda:97"])
def test_a_device_that_is_not_there_is_refused(name: str, device: str) -> None:
    with refuses(InvalidInput, "device", "allowed"):
        teacher_kind(name, device=device)


@pytest.mark.parametrize("shape", [(4, 7, 8), (4, 8, 8, 2), (4, 8, 7, 3), (4, 64)])
def test_the_cnn_refuses_what_is_no_grey_or_colour_image_of_8_by_8(shape: tuple[int, ...]) -> None:
    with refuses(InvalidInput, "at least 8"):
        teacher_kind("cnn", device="cpu").fit(
            [(np.zeros(shape, np.float32), np.arange(4, dtype=np.int64))], classes=4, seeds=[0]
        )
