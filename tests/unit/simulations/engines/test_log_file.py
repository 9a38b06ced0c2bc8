import logging
from pathlib import Path

import pytest

from simulations.engines.engine import logged_to


def test_records_go_to_the_file_and_the_handlers_come_back(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("a_noisy_package")
    handler = logging.StreamHandler()
    logger.addHandler(handler)
    try:
        with logged_to(tmp_path / "log", ["a_noisy_package"]):
            logging.getLogger("a_noisy_package.part").error("inside")
        assert (tmp_path / "log").read_text(encoding="utf-8") == "inside\n"
        assert capfd.readouterr().err == ""
        assert logger.handlers == [handler]
        assert logger.propagate
        logger.error("outside")
        assert capfd.readouterr().err == "outside\n"
    finally:
        logger.removeHandler(handler)
