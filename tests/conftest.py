"""Settings of all tests: hypothesis without a deadline (time is for benchmarks, and CI machines are slow)."""

from hypothesis import settings

settings.register_profile("conclave", deadline=None)
settings.load_profile("conclave")
