"""What a statement says of order and spend where queries are counted, and where they are not."""

import json

import numpy as np
import pytest

from protocols.bounds.rdp import rdp_to_epsilon
from protocols.claims.coverage import CONVERTED_SPEND, COUNTED_SPEND
from tests.harness.released import small_study


@pytest.mark.parametrize("account", ["exact_composition", "label_only"])
def test_a_statement_says_whether_a_seats_epsilon_follows_from_its_order_and_spend(signed, tmp_path, account):
    study = small_study(name="spend", mechanism="thresholded_gnmax", sigma_threshold=None, account=account)
    folder = signed[0].release(signed[0].label(study), tmp_path / "spend")
    made = json.loads((folder / "privacy.json").read_text())
    seat = made["seats"][0]
    own, delta = seat["guarantee"], seat["delta"] - seat["delta_set_aside_for_float_noise"]
    converted = rdp_to_epsilon(np.array([own["spend"]]), np.array([own["order"]]), delta=np.array([delta]))[0]
    counted = account == "exact_composition"
    assert made["accounting"]["spend_in_words"] == (COUNTED_SPEND if counted else CONVERTED_SPEND)
    assert converted > own["epsilon"] if counted else converted == pytest.approx(own["epsilon"], rel=1e-9)
