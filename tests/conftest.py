"""Settings that all tests share."""

from hypothesis import HealthCheck, settings

# Reproducible on every machine: the same examples in the same order, however slow it is.
settings.register_profile(
    "topkopt",
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
settings.load_profile("topkopt")
