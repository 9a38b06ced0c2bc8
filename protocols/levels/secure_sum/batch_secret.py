"""What a party derives from its fresh secret of a batch, and how its shares are sealed to its neighbours."""

from __future__ import annotations

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from protocols.crypto.edwards import ORDER, encoded, evened
from protocols.crypto.masks import KEY_BYTES, derived, key_stream, pairwise
from protocols.errors import InvalidInput, MalformedMessage
from protocols.levels.secure_sum.context import Context

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


def seal(shares: bytes, key: bytes, context: Context, *, sender: int, receiver: int, blinding: bytes) -> bytes:
    """Authenticated encryption, bound to the batch, sender, receiver, and the dealing that `blinding` names."""
    return _dealing_cipher(key, blinding).encrypt(_NONCE, shares, pair_of(context, sender, receiver))


def unseal(sealed: bytes, key: bytes, context: Context, *, sender: int, receiver: int, blinding: bytes) -> bytes | None:
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
