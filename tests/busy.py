"""Skip a test that judges real time where other work on the machine left its verdict open."""

import pytest


def skip_if_unsure(*outcomes):
    """Skip if a verdict on real time is unsure. A wrong verdict still fails the test."""
    if "unsure" in outcomes:
        pytest.skip("too busy to tell: a verdict on real time is unsure")
