"""Hypothesis profiles: quick by default, the same examples in CI, `make fuzz` for more."""

import os

from hypothesis import HealthCheck, settings

# Neither deadlines nor complaints of slowness: a slow moment of the machine is not a failure.
settings.register_profile(
    "fast",
    max_examples=60,
    stateful_step_count=30,
    deadline=None,
    derandomize=bool(os.environ.get("CI")),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "long",
    max_examples=5000,
    stateful_step_count=100,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("fast")
