"""Masked sums against a slow implementation written from docs/explanation/masked-sums.md: the protocol from hashlib and
whole numbers, with ChaCha20, its AEAD, HKDF and Ed25519 from `cryptography`; no code of the protocol is used."""

import hashlib
import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

VECTOR = json.loads((Path(__file__).parents[3] / "vectors" / "masked_sums.json").read_text())
P, L = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P
BASE = (15112221349535400772501151409588531511454012693041857206046113283949847762202, 4 * pow(5, -1, P) % P)
PARTIES, CELLS, THRESHOLD = len(VECTOR["members"]), VECTOR["cells"], VECTOR["threshold"]
GONE = 4


def sha256(*parts):
    return hashlib.sha256(b"".join(parts)).digest()


def int4(number):
    return number.to_bytes(4, "big")


def le(number):
    return number.to_bytes(32, "little")


def add(left, right):
    """Of points in projective coordinates: one inverse a product instead of two a step."""
    scale, first, second = left[2] * right[2], left[0] * right[0], left[1] * right[1]
    product, square = D * first * second, scale * scale
    both = (left[0] + left[1]) * (right[0] + right[1]) - first - second
    minus, plus = square - product, square + product
    return scale * minus * both % P, scale * plus * (second + first) % P, minus * plus % P


def times(scalar, point):
    result = (0, 1, 1)
    for bit in f"{scalar % L:b}":
        result = add(result, result)
        if bit == "1":
            result = add(result, (*point, 1))
    inverse = pow(result[2], -1, P)
    return result[0] * inverse % P, result[1] * inverse % P


def compressed(point):
    return le(point[1] | (point[0] & 1) << 255)


def u_of(point):
    return le((1 + point[1]) * pow(1 - point[1], -1, P) % P)


def stream(key, count):
    return Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor().update(bytes(count))


def derived(secret, purpose, about):
    return HKDFExpand(hashes.SHA256(), 32, b"conclave secure sum 1 " + purpose + b"\n" + about).derive(secret)


def pairwise(secret, purpose, about, keys):
    info = b"conclave secure sum 1 " + purpose + b"\n" + about + int4(keys)
    return hashlib.sha512(int4(1) + secret + info).digest()[: 32 * keys]


def scalars_of(key, count):
    content = stream(key, 64 * count)
    return [int.from_bytes(content[at : at + 64], "little") % L for at in range(0, len(content), 64)]


def clamped(key):
    return int.from_bytes(key, "little") & (2**254 - 8) | 2**254


def context_digest():
    frame = lambda part: len(part).to_bytes(8, "big") + part  # noqa: E731  # a formula
    numbers = f"({VECTOR['dropouts']}, {VECTOR['colluders']}, {CELLS}, {VECTOR['bits']})".encode()
    parts = [bytes.fromhex(VECTOR[name]) for name in ("study", "run", "batch")] + [numbers]
    parts += [name.encode() for name in VECTOR["members"]]
    return sha256(b"conclave secure sum 2\n", *map(frame, parts))


DIGEST = context_digest()


class Member:
    """One member's secrets and keys."""

    def __init__(self, index):
        self.index, secret = index, bytes.fromhex(VECTOR["batch_secrets"][index])
        own = lambda purpose: derived(secret, purpose, DIGEST + int4(index))  # noqa: E731  # a formula
        self.seed = scalars_of(own(b"self mask seed"), 1)[0]
        self.sealing, self.masking = clamped(own(b"sealing key")), clamped(own(b"mask key"))
        self.point = times(self.masking, BASE)
        self.shared_key = self.masking % L if not self.point[0] & 1 else -self.masking % L
        self.sealing_point = times(self.sealing, BASE)
        committed = sha256(b"conclave secure sum seed 2\n", DIGEST, int4(index), le(self.seed))
        self.keys = u_of(self.sealing_point) + u_of(self.point) + committed
        self.coefficients = own(b"coefficients")
        self.neighbours = VECTOR["neighbours"][index]


MEMBERS = [Member(index) for index in range(PARTIES)]


def pair(sender, receiver):
    return DIGEST + int4(sender) + int4(receiver)


def value(polynomial, x):
    return sum(coefficient * x**power for power, coefficient in enumerate(polynomial)) % L


def sealing_key(member, other, *, outward):
    secret = u_of(times(member.sealing, other.sealing_point))
    low, high = sorted((member.index, other.index))
    both = pairwise(secret, b"sealed shares", pair(low, high), 2)
    upward = (member.index < other.index) == outward
    return both[:32] if upward else both[32:]


def dealing(member):
    """The dealing of a member all of whose neighbours advertised keys."""
    keys = b"".join(MEMBERS[other].keys for other in member.neighbours)
    about = sha256(bytes([1]) * len(member.neighbours), keys)
    random = scalars_of(derived(member.coefficients, b"dealing", about), 3 * THRESHOLD - 2)
    of_seed = [member.seed, *random[: THRESHOLD - 1]]
    of_key = [member.shared_key, *random[THRESHOLD - 1 : 2 * THRESHOLD - 2]]
    blind = random[2 * THRESHOLD - 2 :]
    blinding, sealed, commitments = compressed(times(blind[0], BASE)), b"", b""
    for row, other in enumerate(member.neighbours):
        shares = [le(value(polynomial, row + 1)) for polynomial in (of_seed, of_key, blind)]
        for kind in (0, 1):
            label = b"conclave secure sum share 2\n"
            commitments += sha256(label, pair(member.index, other), bytes([kind]), shares[kind])
        key = pairwise(sealing_key(member, MEMBERS[other], outward=True), b"dealing", blinding, 1)
        sealed += MEMBERS[other].keys[:32] + ChaCha20Poly1305(key).encrypt(
            bytes(12), b"".join(shares), pair(member.index, other)
        )
    root = sha256(b"conclave secure sum dealt 2\n", sealed, commitments)
    message = b"conclave secure sum challenge 3\n" + DIGEST + int4(member.index) + member.keys + root
    shared = compressed((-member.point[0] % P if member.point[0] & 1 else member.point[0], member.point[1]))
    c = int.from_bytes(hashlib.sha512(blinding + shared + message).digest(), "little") % L
    answer = [(c * f + g) % L for f, g in zip(of_key, blind, strict=True)]
    # Raises where the blinding and the answer at 0 are no Ed25519 signature.
    Ed25519PublicKey.from_public_bytes(shared).verify(blinding + le(answer[0]), message)
    answers = b"".join(map(le, answer))
    hashed = sha256(b"conclave secure sum answers 2\n", answers)
    statement = (
        b"conclave secure sum dealing 2\n" + DIGEST + int4(member.index) + member.keys + blinding + root + hashed
    )
    tables = {"blinding": blinding, "sealed": sealed, "commitments": commitments, "answers": answers}
    return tables | {"statement": statement}, answer, (of_seed, of_key)


DEALINGS = [dealing(member) for member in MEMBERS]


def row_of(dealer, holder):
    return MEMBERS[dealer].neighbours.index(holder)


def pair_mask(index, other, about):
    low, high = sorted((index, other))
    secret = u_of(times(MEMBERS[index].masking, MEMBERS[other].point))
    publics = u_of(MEMBERS[low].point) + u_of(MEMBERS[high].point)
    return pairwise(secret, b"pair mask", about + int4(low) + int4(high) + publics, 1)


def words(key):
    content = stream(key, 4 * CELLS)
    return [int.from_bytes(content[at : at + 4], "little") for at in range(0, 4 * CELLS, 4)]


def packed(flags):
    bits = "".join("1" if flag else "0" for flag in flags).ljust(8, "0")
    return int(bits, 2).to_bytes(1, "big")


EVERYBODY = packed([True] * PARTIES)


def masked(index):
    member, about = MEMBERS[index], sha256(DIGEST, EVERYBODY)
    total = list(VECTOR["values"][index])
    self_mask = words(derived(le(member.seed), b"self mask", DIGEST + int4(index)))
    total = [number + mask for number, mask in zip(total, self_mask, strict=True)]
    for other in member.neighbours:
        sign = 1 if index < other else -1
        total = [
            number + sign * mask for number, mask in zip(total, words(pair_mask(index, other, about)), strict=True)
        ]
    return b"".join((number % 2**32).to_bytes(4, "little") for number in total)


def test_the_context_and_the_graph_are_those_of_the_vector() -> None:
    assert DIGEST.hex() == VECTOR["digest"]
    order = stream(sha256(b"conclave secure sum graph 1\n", DIGEST), 8 * PARTIES)
    ring = sorted(range(PARTIES), key=lambda index: int.from_bytes(order[8 * index : 8 * index + 8], "little"))
    degree = len(VECTOR["neighbours"][0])
    offsets = [*range(1, degree // 2 + 1), *range(-1, -degree // 2 - 1, -1)]
    for place, index in enumerate(ring):
        assert VECTOR["neighbours"][index] == [ring[(place + offset) % PARTIES] for offset in offsets]


@pytest.mark.parametrize("index", range(PARTIES))
def test_keys_dealings_and_masked_values_of_a_member_are_those_of_the_vector(index) -> None:
    member = MEMBERS[index]
    assert member.keys.hex() == VECTOR["keys"][index]
    said = b"conclave secure sum keys 1\n" + DIGEST + int4(index) + member.keys
    assert said.hex() == VECTOR["keys_statements"][index]
    assert {name: content.hex() for name, content in DEALINGS[index][0].items()} == VECTOR["dealings"][index]
    combined = b"".join(le(value(DEALINGS[dealer][1], row_of(dealer, index) + 1)) for dealer in member.neighbours)
    assert combined.hex() == VECTOR["combined"][index]
    if index != GONE:
        assert masked(index).hex() == VECTOR["masked"][index]
        said = b"conclave secure sum masked 1\n" + DIGEST + int4(index) + sha256(DIGEST, EVERYBODY)
        assert said.hex() == VECTOR["masked_statements"][index]
        assert le(member.seed).hex() == VECTOR["seeds"][index]
        shares = b"".join(
            le(value(DEALINGS[dealer][2][dealer == GONE], row_of(dealer, index) + 1)) for dealer in member.neighbours
        )
        assert shares.hex() == VECTOR["shares"][index]


def test_the_statement_of_survivors_and_the_sum_are_those_of_the_vector() -> None:
    there = packed([index != GONE for index in range(PARTIES)])
    said = b"conclave secure sum survivors 1\n" + DIGEST + EVERYBODY + there
    assert said.hex() == VECTOR["survivors_statement"]
    rows = [values for index, values in enumerate(VECTOR["values"]) if index != GONE]
    assert VECTOR["sums"] == [sum(column) for column in zip(*rows, strict=True)]
