"""What a party derives from its fresh secret of a batch, and the shares that it seals to its neighbours."""

from __future__ import annotations

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from jaxtyping import UInt8
from numpy import ndarray

from protocols.crypto import shamir
from protocols.crypto.masks import KEY_BYTES, derived, key_stream, pairwise
from protocols.errors import InvalidInput, MalformedMessage
from protocols.levels.secure_sum.context import Context
from protocols.levels.secure_sum.wire import octets

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

    def keep(self, plaintext: bytes, about: bytes) -> bytes:
        """Sealed to this party itself, for the coordinator to bring back; `about` must say which plaintext it is."""
        return self._own_cipher(about).encrypt(_NONCE, plaintext, about)

    def recall(self, sealed: bytes, about: bytes) -> bytes:
        """What this party sealed to itself. Raises MalformedMessage for anything else."""
        try:
            return self._own_cipher(about).decrypt(_NONCE, sealed, about)
        except InvalidTag:
            raise MalformedMessage("receipt: it is not this party's, for these keys in this batch") from None

    def _own_cipher(self, about: bytes) -> ChaCha20Poly1305:
        # A key for each `about`, so that no key ever encrypts two plaintexts.
        return ChaCha20Poly1305(derived(self._derived(b"receipt"), b"receipt", about))

    def _derived(self, purpose: bytes) -> bytes:
        return derived(self._secret, purpose, self._about)


def pair_mask_key(secret: bytes, about: bytes, pair: tuple[int, int], publics: tuple[bytes, bytes]) -> bytes:
    """The key of the mask of two parties, from their X25519 secret; independent of their order."""
    if pair[0] > pair[1]:
        pair, publics = pair[::-1], publics[::-1]
    places = pair[0].to_bytes(4, "big") + pair[1].to_bytes(4, "big")
    return pairwise(secret, b"pair mask", about + places + publics[0] + publics[1], keys=1)


def sealing_keys(secret: bytes, context: Context, *, own: int, their: int) -> tuple[bytes, bytes]:
    """Of an X25519 secret: the key to seal shares to the other party, and the one to open theirs."""
    both = pairwise(secret, b"sealed shares", _about(context, min(own, their), max(own, their)), keys=2)
    upward, downward = both[:KEY_BYTES], both[KEY_BYTES:]
    return (upward, downward) if own < their else (downward, upward)


def seal(shares: bytes, key: bytes, context: Context, *, sender: int, receiver: int) -> bytes:
    """Authenticated encryption, bound to the batch, sender and receiver."""
    return ChaCha20Poly1305(key).encrypt(_NONCE, shares, _about(context, sender, receiver))


def unseal(sealed: bytes, key: bytes, context: Context, *, sender: int, receiver: int) -> bytes | None:
    """What the sender sealed for the receiver in this batch; None for anything else."""
    try:
        return ChaCha20Poly1305(key).decrypt(_NONCE, sealed, _about(context, sender, receiver))
    except InvalidTag:
        return None


def _about(context: Context, sender: int, receiver: int) -> bytes:
    return context.digest + sender.to_bytes(4, "big") + receiver.to_bytes(4, "big")
