import re
import subprocess
import sys

import pytest

import simulations.engines
from protocols.errors import EngineFailed, InvalidInput
from protocols.installing import install
from simulations.engines import ENGINES, open_engine
from simulations.engines.engine import Engine, HostSpec
from tests.harness.refusals import refuses


@pytest.mark.parametrize("name", sorted(ENGINES))
def test_every_engine_of_the_table_opens(name: str) -> None:
    assert isinstance(open_engine(name, workers=None), Engine)


@pytest.mark.parametrize("name", sorted(ENGINES))
def test_no_engine_has_zero_workers(name: str) -> None:
    with refuses(InvalidInput, "workers", 0, 1):
        open_engine(name, workers=0)


def test_an_unknown_engine_lists_the_known_ones() -> None:
    with refuses(InvalidInput, "engine", "steam", "in_process"):
        open_engine("steam", workers=None)


def test_an_engine_whose_package_is_absent_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(simulations.engines.ENGINES, "absent", "no_such_package_here:Engine")
    with pytest.raises(EngineFailed, match=re.escape(f"'no_such_package_here'; {install('sim')}")):
        open_engine("absent", workers=None)


def test_a_host_factory_must_name_a_function() -> None:
    with refuses(InvalidInput, "factory", "echo_host", "module:function"):
        HostSpec("echo_host").open()


def test_the_in_process_engine_imports_neither_flower_nor_ray_nor_numpy() -> None:
    source = (
        "import sys\n"
        "from simulations.engines import open_engine\n"
        "open_engine('in_process', workers=1)\n"
        "print(sorted({'flwr', 'ray', 'torch', 'numpy'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"
