# mypy: ignore-errors
# Written for another interpreter; see two_parties.py.
"""Threshold and noisy argmax on two additive shares over F_p, by SPU Cheetah: a cross-check of the garbled circuits.

    PYTHON noisy_argmax.py --role asking ... --input SHARES.npz --output BITS.npz

Each party's file has uint32 shares, below p, of integers between -2^29 and 2^29: `label` [queries, classes] of noisy
sums, `bit` [queries, classes] of the noisy sums less the threshold. Output, shared modulo 2^64:
`passed`, 1 where some entry of `bit` is 0 or more, and `label`, the first largest class where it passed, else -1.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from two_parties import Party, arguments, timed

P = 2**31 - 1


def centred(left, right):
    """The integers that two shares modulo p make, exactly: each share is below p, so one or two p come off."""
    total = left + right
    total = total - jnp.where(total >= P, P, 0)
    return total - jnp.where(total > P // 2, P, 0)


def labels(asking_label, answering_label, asking_bit, answering_bit):
    """Rows of (passed, label): one array, since a bit alone would stay shared by exclusive or."""
    passed = (centred(asking_bit, answering_bit) >= 0).any(axis=1).astype(jnp.int64)
    label = jnp.argmax(centred(asking_label, answering_label), axis=1).astype(jnp.int64)
    return jnp.stack([passed, passed * (label + 1) - 1], axis=1)


def main() -> None:
    """Runs one party."""
    import jax

    jax.config.update("jax_enable_x64", True)
    options = arguments(__doc__).parse_args()
    own = np.load(options.input)
    inputs = {
        f"{role}-{name}": (role, own[name].astype(np.int64))
        for name in ("label", "bit")
        for role in ("asking", "answering")
    }
    (share,), seconds = timed(Party(options), labels, inputs, options.repeats)
    np.savez(options.output, passed=share[:, 0], label=share[:, 1], seconds=np.array(seconds))


if __name__ == "__main__":
    main()
