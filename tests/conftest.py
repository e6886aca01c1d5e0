"""Settings for every test: marks, hypothesis without a clock or a database."""

try:
    from hypothesis import HealthCheck, settings
except ImportError:  # tests/gpu does without
    pass
else:
    settings.register_profile(
        "posenc", deadline=None, database=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile("posenc")


def pytest_configure(config):
    config.addinivalue_line("markers", "shipped: needs the checkpoints in assets/models")
