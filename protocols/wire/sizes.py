"""How large a message may be, over any transport."""

from __future__ import annotations

REQUEST_BYTES = 32 * 2**20
