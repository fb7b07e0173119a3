"""The tests of aggregation use the Hypothesis profiles of all tests."""

import profiles  # noqa: F401
