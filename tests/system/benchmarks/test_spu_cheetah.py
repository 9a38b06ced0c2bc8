"""SPU Cheetah in its own interpreter: labels without a dealer, and threshold and argmax against garbled circuits."""

import numpy as np
import pytest

from benchmarks.float_inference import float_inference
from benchmarks.spu.spu_files import asking_share, private_arrays, public_json
from protocols.crypto.field import P
from protocols.errors import MalformedMessage
from tests.harness.inference_parties import cnn, linear_model, mlp
from tests.harness.spu_parties import needs_spu, run_both


@needs_spu
@pytest.mark.slow
@pytest.mark.parametrize("build", [linear_model, mlp, cnn])
def test_labels_without_a_dealer_agree_with_floats_and_are_shared_over_the_field(build, tmp_path) -> None:
    rng = np.random.default_rng(1)
    model = build(rng)
    inputs = rng.uniform(-1, 1, (60, *model.input_shape)).astype(np.float32)
    classes = model.shapes()[-1].outputs
    masks = rng.integers(0, P, (60, classes), dtype=np.uint32)
    masks[0] = 0
    (tmp_path / "public.json").write_text(public_json(model, 60))
    files = {"asking": {"inputs": inputs}, "answering": private_arrays(model, masks)}
    found = run_both(tmp_path, "infer.py", files, "--architecture", str(tmp_path / "public.json"))
    share = asking_share(found["asking"]["share"], found["answering"]["share"])
    votes = (share.astype(np.int64) + masks) % P
    assert (np.sort(votes, axis=1)[:, -1] == 1).all()
    assert (votes.sum(axis=1) == 1).all()
    assert (votes.argmax(axis=1) == float_inference(model, inputs)).mean() > 0.95
    # Either share alone is noise: no share is a vote.
    assert (found["asking"]["share"] > P).any()
    assert (found["answering"]["share"] > P).any()


def test_shares_that_make_no_element_of_the_field_are_refused() -> None:
    own, theirs = np.array([[5]], dtype=np.uint64), np.array([[2**64 - 3]], dtype=np.uint64)
    assert asking_share(own, theirs).tolist() == [[2]]
    with pytest.raises(MalformedMessage, match="no elements of F_p"):
        asking_share(own, theirs - np.uint64(5))


def test_what_both_parties_know_holds_no_weight() -> None:
    model = cnn(np.random.default_rng(3))
    said = public_json(model, 5)
    for layer in model.layers:
        for name in ("weights", "kernels", "bias"):
            for weight in getattr(layer, name, np.zeros(0)).reshape(-1):
                assert str(float(weight))[:6] not in said
