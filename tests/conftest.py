"""Settings for every test: marks, hypothesis without a clock or a database."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "posenc", deadline=None, database=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("posenc")


def pytest_configure(config):
    config.addinivalue_line("markers", "shipped: needs the checkpoints in assets/models")
