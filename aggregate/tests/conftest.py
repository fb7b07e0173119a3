"""Give the tests of aggregation the same profiles of Hypothesis as all other tests."""

import profiles  # noqa: F401
