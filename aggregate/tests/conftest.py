"""Give the tests of aggregation the same Hypothesis profiles as all other tests."""

import profiles  # noqa: F401
