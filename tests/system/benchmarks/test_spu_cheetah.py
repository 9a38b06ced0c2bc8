"""SPU Cheetah in its own interpreter: labels without a dealer, and threshold and argmax against garbled circuits."""

import numpy as np
import pytest

from benchmarks.float_inference import float_inference
from benchmarks.spu.spu_files import asking_share, private_arrays, public_json
from protocols.crypto.field import P, from_integers, plus
from protocols.errors import MalformedMessage
from protocols.votes import ABSTAIN
from tests.harness.inference_parties import cnn, linear_model, mlp
from tests.harness.seeded import seeded_source
from tests.harness.spu_parties import needs_spu, run_both
from tests.harness.two_server_sides import converse, coordinator_side, guardian_side, split


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


@needs_spu
@pytest.mark.slow
def test_on_the_same_shares_and_noise_cheetah_and_the_garbled_circuits_say_what_plain_integers_say(tmp_path) -> None:
    """Both add the two shares modulo p, compare with the threshold, and take the first of the largest classes."""
    rng = np.random.default_rng(2)
    queries, classes, total, threshold = 60, 5, 2**29, 2**28
    counts = rng.integers(0, total + 1, (queries, classes))
    counts[20:40] = rng.integers(0, 300, (20, classes)) + threshold - 150
    noise = np.rint(rng.normal(0, 90, (2, queries, classes))).astype(np.int64)
    # Ties, of the first and of later classes; a threshold that is met exactly, and one that is missed by one unit.
    noise[0, :6], noise[1, :6] = 5, -5
    counts[:3] = threshold + np.array([[7, 7, 7, 7, 7], [1, 8, 8, 0, 8], [0, 0, 0, 3, 3]])
    counts[3:6] = threshold + np.array([[-9, 0, -9, -9, -9], [-1, -9, -9, -1, -9], [-3, -3, -3, -3, 0]])
    coordinators, guardians = split(counts, rng)
    files = {}
    for role, share, own, less in (
        ("asking", coordinators, noise[0], threshold),
        ("answering", guardians, noise[1], 0),
    ):
        files[role] = {"label": plus(share, from_integers(own)), "bit": plus(share, from_integers(own - less))}
    found = run_both(tmp_path, "noisy_argmax.py", files)
    opened = {name: (found["asking"][name] + found["answering"][name]).astype(np.int64) for name in ("passed", "label")}
    opened_here, known = converse(
        lambda channel: coordinator_side(
            channel, coordinators, noise=noise[0], threshold=threshold, total_units=total, source=seeded_source(1),
        ),
        lambda channel: guardian_side(
            channel, guardians, noise=noise[1], threshold=threshold, total_units=total, source=seeded_source(2)
        ),
    )  # fmt: skip
    labels, passed = opened_here.labels, known.signed != ABSTAIN
    np.testing.assert_array_equal(opened["label"], labels)
    np.testing.assert_array_equal(opened["passed"], passed)
    plain = (counts + noise.sum(axis=0) >= threshold).any(axis=1)
    np.testing.assert_array_equal(passed, plain)
    np.testing.assert_array_equal(labels, np.where(plain, (counts + noise.sum(axis=0)).argmax(axis=1), ABSTAIN))
    assert labels[:6].tolist() == [0, 1, 3, 1, ABSTAIN, 4]
    assert 0 < plain[20:40].sum() < 20


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
