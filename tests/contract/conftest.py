"""Operations on points are kept: most tests of two servers begin with the same seeds, and compute the same ones.

Base transfers are the greater part of a small batch's time. Their group operations and hashes depend on nothing but
their arguments; an error is not kept.
"""

import functools

import nacl.bindings

from protocols.crypto import oblivious_transfer

# Of some twenty pairs of servers, in 10 MB each.
_KEPT = 2**15

for _name in (
    "crypto_core_ed25519_add",
    "crypto_core_ed25519_sub",
    "crypto_scalarmult_ed25519_base_noclamp",
    "crypto_scalarmult_ed25519_noclamp",
):
    setattr(nacl.bindings, _name, functools.lru_cache(_KEPT)(getattr(nacl.bindings, _name)))
oblivious_transfer._hashed_to_group = functools.lru_cache(_KEPT)(oblivious_transfer._hashed_to_group)
