"""The tests of aggregation have the profiles of all tests."""

import profiles  # noqa: F401
