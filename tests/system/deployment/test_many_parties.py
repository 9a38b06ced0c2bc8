"""Many parties in processes of their own, one coordinator, mutual TLS: the labels and the spend of one process."""

import subprocess
import sys

import numpy as np
import pytest

from protocols.crypto.identity import key_to_pem, new_key, to_pem
from protocols.ledger.ledger import Ledger
from protocols.study.file import write_study
from tests.harness.consortium import Consortium
from tests.harness.studies import deployed_study
from tests.system.coordinator.connection.test_hub import in_one_process

PARTIES, PROCESSES = 100, 4


@pytest.mark.slow
@pytest.mark.usefixtures("forked")
def test_a_study_of_many_parties_is_that_of_one_process(tmp_path):
    study = deployed_study(PARTIES, features=16, pool=40, quorum=PARTIES)
    names = [seat.party for seat in study.roster]
    with Consortium(study, tmp_path) as consortium:
        (tmp_path / "study.toml").write_text(write_study(study))
        (tmp_path / "authority.pem").write_bytes(to_pem(consortium.authority))
        (tmp_path / "address").write_text(consortium.address)
        for name in names:
            key = new_key()
            (tmp_path / f"{name}.key").write_bytes(key_to_pem(key))
            (tmp_path / f"{name}.pem").write_bytes(to_pem(consortium.certify(key, name)))
        hosts = [
            subprocess.Popen(
                [sys.executable, "-m", "tests.harness.node_host", str(tmp_path), *names[start::PROCESSES]],
                stdin=subprocess.PIPE,
            )
            for start in range(PROCESSES)
        ]
        try:
            assert consortium.hub.wait_for(frozenset(names), timeout_s=300) == frozenset()
            labelled = consortium.label()
        finally:
            for host in hosts:
                host.communicate(timeout=300)
        expected = in_one_process(study)
        np.testing.assert_array_equal(labelled.labels, expected.labels)
        np.testing.assert_array_equal(labelled.spent, expected.spent)
        assert labelled.ledger_differences == {}
        assert (labelled.labels >= 0).sum() > 5
    for name, spent in zip(names, expected.spent, strict=True):
        with Ledger(tmp_path / f"{name}.sqlite") as ledger:
            assert ledger.balance(name).spent == spent
