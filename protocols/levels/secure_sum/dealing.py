"""A party's secrets of a batch, and the shares of them that it deals.

What a party derives from its fresh secret of a batch, and how its shares are sealed to its neighbours.

What a party deals to its neighbours: shares of its two secrets, which are checked before anybody relies on them.

For each secret, a polynomial with the secret at 0: f for the private key of masks, and one for the seed. A random
polynomial g blinds f. Neighbour r gets the values of all three at r + 1, sealed; the coordinator gets a hash of each
share of a secret, which later tells a right share from a wrong one. With a challenge c, a hash of all of that, the
dealer answers with the polynomial c f + g, which shows nothing of f; what a neighbour's shares combine to is compared
with it. If the shares of f of the honest neighbours are not those of one polynomial, no answer fits all of them, except
for one challenge in 2**252: the test of a Reed-Solomon code by a random linear combination (Ames, Hazay, Ishai &
Venkitasubramaniam 2017, "Ligero", section 4.2), in which here no honest neighbour may be off. That f(0) is the private
key of masks follows from the point g(0) B, sent along: (c f + g)(0) B = c S + g(0) B, with S the public key (Schnorr
1991, by the hash of Fiat & Shamir 1986). With c the hash of g(0) B, S and what was dealt, that point and the answer at
0 are an Ed25519 signature under S, and are verified as one. S may then have a component of small order besides, which
no key of X25519 sees: private keys are multiples of 8.

Of the seed nothing more needs to be checked. Whatever its shares give is taken for the seed, and a party whose self
mask is another one has added some vector to the sum, as any party can.

Feldman's commitments to all coefficients would do the same with a multiplication of a point for each coefficient and
neighbour.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from jaxtyping import UInt8
from numpy import ndarray

from protocols.crypto.edwards import ORDER, SCALAR_BYTES, encoded, evened, lifted, multiple_of_base
from protocols.crypto.masks import KEY_BYTES, derived, key_stream, pairwise
from protocols.crypto.shamir import split, value
from protocols.errors import InvalidInput, MalformedMessage
from protocols.levels.secure_sum.terms import Context
from protocols.levels.secure_sum.wire import MASK_KEY, MASK_ROW, SEALED_BYTES, SECRET_KINDS, table_of

SECRET_BYTES = 32
# Each sealing key encrypts one plaintext.
_NONCE = bytes(12)
# Bytes of a scalar before it is reduced, so that it is uniform up to 2**-256.
_WIDE = 64


class Secrets:
    """The keys of party `index`; `batch_secret`: 32 fresh random bytes, of this batch alone."""

    def __init__(self, batch_secret: bytes, context: Context, index: int) -> None:
        if len(batch_secret) != SECRET_BYTES:
            raise InvalidInput(f"a batch secret has {len(batch_secret)} bytes; allowed: {SECRET_BYTES}")
        if not 0 <= index < context.parties:
            raise InvalidInput(f"index = {index}; allowed: 0 to {context.parties - 1}")
        self._secret, self._context, self._index = batch_secret, context, index
        self._about = context.digest + index.to_bytes(4, "big")

    def seed(self) -> int:
        """The secret that the self mask is made of; a scalar, since it is shared."""
        return _scalars(self._derived(b"self mask seed"), 1)[0]

    def mask_key(self) -> X25519PrivateKey:
        """The private key of masks."""
        return X25519PrivateKey.from_private_bytes(self._derived(b"mask key"))

    def shared_mask_key(self) -> int:
        """The scalar that opens the private key of masks, as it is shared (edwards.py)."""
        return evened(self._derived(b"mask key"))[0]

    def sealing_key(self) -> X25519PrivateKey:
        """The private key that shares are sealed with."""
        return X25519PrivateKey.from_private_bytes(self._derived(b"sealing key"))

    def sealing_scalar(self) -> int:
        """That key as a scalar, to prove what it agreed on."""
        return evened(self._derived(b"sealing key"))[0]

    def coefficients(self, about: bytes) -> tuple[list[int], list[int], list[int]]:
        """Uniformly random scalars of one dealing: the coefficients of the seed's polynomial and of the key's, without
        their values at 0, and of the one that blinds the key's.

        Dealings of the same secrets to other keys (`about`) have other coefficients: two answers that are blinded
        alike would show what they differ by.
        """
        degree = self._context.threshold - 1
        scalars = _scalars(derived(self._derived(b"coefficients"), b"dealing", about), 3 * degree + 1)
        return scalars[:degree], scalars[degree : 2 * degree], scalars[2 * degree :]

    def proof_nonce(self, about: bytes) -> bytes:
        """64 bytes for one proof of what the sealing key agreed on."""
        return key_stream(derived(self._derived(b"proof"), b"nonce", about), _WIDE, bits=8).tobytes()

    def keep(self, purpose: bytes, plaintext: bytes, about: bytes) -> bytes:
        """Sealed to this party itself, for the coordinator to bring back; `about` must say which plaintext it is."""
        return self._own_cipher(purpose, about).encrypt(_NONCE, plaintext, about)

    def recall(self, purpose: bytes, sealed: bytes, about: bytes) -> bytes:
        """What this party sealed to itself. Raises MalformedMessage for anything else."""
        try:
            return self._own_cipher(purpose, about).decrypt(_NONCE, sealed, about)
        except InvalidTag:
            raise MalformedMessage(
                f"{purpose.decode()}: it is not this party's, for these keys in this batch"
            ) from None

    def _own_cipher(self, purpose: bytes, about: bytes) -> ChaCha20Poly1305:
        # A key for each `about`, so that no key ever encrypts two plaintexts.
        return ChaCha20Poly1305(derived(self._derived(b"kept"), purpose, about))

    def _derived(self, purpose: bytes) -> bytes:
        return derived(self._secret, purpose, self._about)


def pair_mask_key(secret: bytes, about: bytes, pair: tuple[int, int], publics: tuple[bytes, bytes]) -> bytes:
    """The key of the mask of two parties, from their X25519 secret; independent of their order."""
    if pair[0] > pair[1]:
        pair, publics = pair[::-1], publics[::-1]
    places = pair[0].to_bytes(4, "big") + pair[1].to_bytes(4, "big")
    return pairwise(secret, b"pair mask", about + places + publics[0] + publics[1], keys=1)


def self_mask_key(seed: int, context: Context, index: int) -> bytes:
    """The key of a party's self mask, of its seed."""
    return derived(encoded(seed), b"self mask", context.digest + index.to_bytes(4, "big"))


def sealing_keys(secret: bytes, context: Context, *, own: int, their: int) -> tuple[bytes, bytes]:
    """Of an X25519 secret: the key to seal shares to the other party, and the one to open theirs."""
    both = pairwise(secret, b"sealed shares", pair_of(context, min(own, their), max(own, their)), keys=2)
    upward, downward = both[:KEY_BYTES], both[KEY_BYTES:]
    return (upward, downward) if own < their else (downward, upward)


def sealed_to(shares: bytes, key: bytes, context: Context, *, sender: int, receiver: int, blinding: bytes) -> bytes:
    """Authenticated encryption, bound to the batch, sender, receiver, and the dealing that `blinding` names."""
    return _dealing_cipher(key, blinding).encrypt(_NONCE, shares, pair_of(context, sender, receiver))


def unsealed(
    sealed: bytes, key: bytes, context: Context, *, sender: int, receiver: int, blinding: bytes
) -> bytes | None:
    """What the sender sealed for the receiver in this dealing; None for anything else."""
    try:
        return _dealing_cipher(key, blinding).decrypt(_NONCE, sealed, pair_of(context, sender, receiver))
    except InvalidTag:
        return None


def pair_of(context: Context, sender: int, receiver: int) -> bytes:
    """A sender and a receiver in a batch."""
    return context.digest + sender.to_bytes(4, "big") + receiver.to_bytes(4, "big")


def _dealing_cipher(key: bytes, blinding: bytes) -> ChaCha20Poly1305:
    return ChaCha20Poly1305(pairwise(key, b"dealing", blinding, keys=1))


def _scalars(key: bytes, count: int) -> list[int]:
    stream = key_stream(key, _WIDE * count, bits=8).tobytes()
    return [int.from_bytes(stream[at : at + _WIDE], "little") % ORDER for at in range(0, len(stream), _WIDE)]


COMMITMENT_BYTES = 32
# Shares of the secrets, without those that blind them.
SHARES_BYTES = SECRET_KINDS * SCALAR_BYTES


@dataclass(frozen=True, eq=False)
class Dealing:
    """One party's dealing.

    blinding: the point g(0) B of the key of masks; sealed, commitments: a row for each neighbour; answers: the
    coefficients of c f + g.
    """

    blinding: bytes
    sealed: UInt8[ndarray, "neighbours sealed"] = field(repr=False)
    commitments: UInt8[ndarray, "neighbours 64"] = field(repr=False)
    answers: UInt8[ndarray, "threshold 32"] = field(repr=False)

    def root(self) -> bytes:
        """The hash of all that was dealt before the challenge."""
        return dealt_root(self.sealed, self.commitments)

    def statement(self, context: Context, index: int, keys: bytes) -> bytes:
        """What the dealer signs. keys: its public keys."""
        return dealing_statement(context.digest, index, keys, self.blinding, self.root(), answers_hash(self.answers))

    def receivers(self) -> UInt8[ndarray, "neighbours 32"]:
        """The key that each neighbour's shares were sealed to; zeros where nothing was."""
        return self.sealed[:, :KEY_BYTES]

    def answer(self) -> list[int]:
        """The answers, as a polynomial."""
        return scalars(self.answers.tobytes())


def dealing_of(
    secrets: Secrets,
    context: Context,
    index: int,
    *,
    keys: bytes,
    sealing: Mapping[int, tuple[bytes, bytes]],
    about: bytes,
) -> Dealing:
    """Shares for the neighbours in the rows of `sealing`: to whose public key, and the key to seal with.

    keys: this party's public keys; about: which neighbours with which keys.
    """
    graph = context.graph
    of_seed, of_key, blind = secrets.coefficients(about)
    polynomial = [secrets.shared_mask_key(), *of_key]
    blinding = multiple_of_base(blind[0])
    columns = [split(each, shares=graph.degree) for each in ([secrets.seed(), *of_seed], polynomial, blind)]
    neighbours, hashes = graph.neighbours(index).tolist(), [bytes(SECRET_KINDS * COMMITMENT_BYTES)] * graph.degree
    sealed = [bytes(SEALED_BYTES)] * graph.degree
    for row, (public, key) in sealing.items():
        plaintext = b"".join(encoded(column[row]) for column in columns)
        hashes[row] = commitments(context, index, neighbours[row], plaintext[:SHARES_BYTES])
        sealed[row] = public + sealed_to(
            plaintext, key, context, sender=index, receiver=neighbours[row], blinding=blinding
        )
    tables = table_of(sealed), table_of(hashes)
    message = dealt_message(context, index, keys, dealt_root(*tables))
    c = challenge(message, blinding, mask_point(keys))
    answers = [encoded((c * secret + blinds_it) % ORDER) for secret, blinds_it in zip(polynomial, blind, strict=True)]
    return Dealing(blinding, *tables, table_of(answers))


def opened(
    sealed: bytes, hashes: bytes, key: bytes, context: Context, *, dealer: int, receiver: int, blinding: bytes
) -> bytes | None:
    """The shares, and what blinds the second; None if they do not open, or are not what the dealer committed to."""
    plaintext = unsealed(sealed[KEY_BYTES:], key, context, sender=dealer, receiver=receiver, blinding=blinding)
    if plaintext is None or commitments(context, dealer, receiver, plaintext[:SHARES_BYTES]) != hashes:
        return None
    return plaintext


def combined(plaintext: bytes, c: int) -> bytes:
    """c f + g at a neighbour's point, from what was sealed to it."""
    numbers = scalars(plaintext)
    return encoded((c * numbers[MASK_KEY] + numbers[SECRET_KINDS]) % ORDER)


def answered(polynomial: list[int], row: int) -> bytes:
    """What the neighbour in the dealer's row `row` must have `combined`."""
    return encoded(value(polynomial, row + 1))


def scalars(content: bytes) -> list[int]:
    """The numbers in some bytes; they may exceed the order."""
    return [int.from_bytes(content[at : at + SCALAR_BYTES], "little") for at in range(0, len(content), SCALAR_BYTES)]


def commitments(context: Context, dealer: int, receiver: int, shares: bytes) -> bytes:
    """A hash of each share; shares are as hard to guess as the secrets, so that their hashes hide them."""
    about = pair_of(context, dealer, receiver)
    return b"".join(
        share_hash(about, kind, shares[kind * SCALAR_BYTES : (kind + 1) * SCALAR_BYTES]) for kind in range(SECRET_KINDS)
    )


def share_hash(about: bytes, kind: int, share: bytes) -> bytes:
    """The hash of one share. about: see `pair_of`."""
    return hashlib.sha256(b"conclave secure sum share 2\n" + about + bytes([kind]) + share).digest()


def dealt_message(context: Context, dealer: int, keys: bytes, root: bytes) -> bytes:
    """What the blinding and the answer at 0 sign. keys: the dealer's public keys."""
    return b"conclave secure sum challenge 3\n" + context.digest + dealer.to_bytes(4, "big") + keys + root


def challenge(message: bytes, blinding: bytes, point: bytes) -> int:
    """The challenge of a dealing, as Ed25519 has it: it follows from all that the dealer has fixed.

    point: see `mask_point`.
    """
    return int.from_bytes(hashlib.sha512(blinding + point + message).digest(), "little") % ORDER


def mask_point(keys: bytes) -> bytes:
    """The point of the public key of masks among a member's public keys."""
    return lifted(keys[MASK_ROW * KEY_BYTES : (MASK_ROW + 1) * KEY_BYTES])


def dealt_root(sealed: UInt8[ndarray, "neighbours sealed"], hashes: UInt8[ndarray, "neighbours 64"]) -> bytes:
    """The hash of what was dealt."""
    return hashlib.sha256(b"conclave secure sum dealt 2\n" + sealed.tobytes() + hashes.tobytes()).digest()


def answers_hash(answers: UInt8[ndarray, "threshold 32"]) -> bytes:
    """The hash of a dealer's answers."""
    return hashlib.sha256(b"conclave secure sum answers 2\n" + answers.tobytes()).digest()


def dealing_statement(digest: bytes, index: int, keys: bytes, blinding: bytes, root: bytes, answers: bytes) -> bytes:
    """What a dealer signs and tags: with one dealing it answers one challenge, under the keys that it dealt with."""
    return b"conclave secure sum dealing 2\n" + digest + index.to_bytes(4, "big") + keys + blinding + root + answers


def no_dealings(context: Context) -> tuple[UInt8[ndarray, "parties neighbours sealed"], UInt8[ndarray, "..."]]:
    """Empty tables of sealed shares and of commitments, for all parties."""
    size = context.parties, context.graph.degree
    return np.zeros((*size, SEALED_BYTES), np.uint8), np.zeros((*size, SECRET_KINDS * COMMITMENT_BYTES), np.uint8)
