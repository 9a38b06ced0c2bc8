"""What a party derives from its one fresh secret of a batch, and the shares that it seals to its neighbours."""

from __future__ import annotations

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from jaxtyping import UInt8
from numpy import ndarray

from protocols.aggregation.secure_sum import shamir
from protocols.aggregation.secure_sum.context import Context
from protocols.aggregation.secure_sum.masks import KEY_BYTES, agreed, derived, key_stream, mac, pairwise
from protocols.aggregation.secure_sum.wire import SEALED_BYTES, octets
from protocols.errors import InvalidInput

SECRET_BYTES = 32
# Each sealing key encrypts one plaintext.
_NONCE = bytes(12)


class Secrets:
    """The keys of party `index`; `batch_secret`: 32 fresh random bytes, of this batch alone."""

    def __init__(self, batch_secret: bytes, context: Context, index: int) -> None:
        if len(batch_secret) != SECRET_BYTES:
            raise InvalidInput(f"a batch secret has {len(batch_secret)} bytes; allowed: {SECRET_BYTES}")
        if not 0 <= index < context.parties:
            raise InvalidInput(f"index = {index}; allowed: 0 to {context.parties - 1}")
        self._secret, self._context, self._index = batch_secret, context, index
        self._about = context.digest + index.to_bytes(4, "big")

    @property
    def seed(self) -> bytes:
        """The key of the self mask."""
        return self._derived(b"self mask seed")

    @property
    def mask_key_bytes(self) -> bytes:
        """The private key of masks, as it is shared."""
        return self._derived(b"mask key")

    def mask_key(self) -> X25519PrivateKey:
        """The private key of masks."""
        return X25519PrivateKey.from_private_bytes(self.mask_key_bytes)

    def sealing_key(self) -> X25519PrivateKey:
        """The private key that shares are sealed with."""
        return X25519PrivateKey.from_private_bytes(self._derived(b"sealing key"))

    def shares(self) -> UInt8[ndarray, "neighbours 64"]:
        """For each neighbour: a share of the seed, then one of the private key of masks."""
        degree, width = self._context.threshold - 1, 2 * KEY_BYTES
        random = key_stream(self._derived(b"coefficients"), degree * width, bits=8)
        secret = octets(self.seed + self.mask_key_bytes)
        return shamir.split(secret, random.reshape(degree, width), shares=self._context.graph.degree)

    def receipt(self, message: bytes) -> bytes:
        """What this party recognises as its own word when the coordinator brings it back."""
        return mac(self._derived(b"receipt"), message)

    def _derived(self, purpose: bytes) -> bytes:
        return derived(self._secret, purpose, self._about)


def pair_mask_key(secret: bytes, about: bytes, pair: tuple[int, int], publics: tuple[bytes, bytes]) -> bytes:
    """The key of the mask of two parties, from their X25519 secret; the same whichever of them is named first."""
    (first, first_key), (second, second_key) = sorted(zip(pair, publics, strict=True))
    places = first.to_bytes(4, "big") + second.to_bytes(4, "big")
    return pairwise(secret, b"pair mask", about + places + first_key + second_key)


class Envelope:
    """Seals shares between two parties with authenticated encryption, bound to the batch, sender and receiver."""

    def __init__(self, own_key: X25519PrivateKey, their_key: bytes, context: Context, *, own: int, their: int) -> None:
        self._secret = agreed(own_key, their_key)
        self._digest, self._own, self._their = context.digest, own.to_bytes(4, "big"), their.to_bytes(4, "big")

    def seal(self, shares: UInt8[ndarray, " 64"]) -> UInt8[ndarray, " 80"]:
        """For the other party alone."""
        cipher, about = self._cipher(self._own + self._their)
        return octets(cipher.encrypt(_NONCE, shares.tobytes(), about))

    def open(self, sealed: UInt8[ndarray, " 80"]) -> UInt8[ndarray, " 64"] | None:
        """What the other party sealed for this one in this batch; None for anything else."""
        cipher, about = self._cipher(self._their + self._own)
        try:
            return octets(cipher.decrypt(_NONCE, sealed.tobytes(), about))
        except InvalidTag:
            return None

    def _cipher(self, direction: bytes) -> tuple[ChaCha20Poly1305, bytes]:
        about = self._digest + direction
        return ChaCha20Poly1305(pairwise(self._secret, b"sealed shares", about)), about


def no_shares(neighbours: int) -> UInt8[ndarray, "neighbours 80"]:
    """Room for the sealed shares of one party."""
    return np.zeros((neighbours, SEALED_BYTES), dtype=np.uint8)
