"""How large a message may be, whoever carries it."""

from __future__ import annotations

REQUEST_BYTES = 32 * 2**20
