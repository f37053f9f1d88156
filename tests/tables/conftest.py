"""Runs of these tests are made quickly, and `fit` says so: that another model is better, or that rows are few."""

import pytest

SAID = ("the target's own distribution for every row would be", "a linear model would be", "boosted trees would be")
FILTERS = [
    *(f"ignore:{words} better here" for words in SAID),
    "ignore:.* rows can tell little",
    "ignore:by its NLL this is",
    "ignore:.*intervals hold",
]


def pytest_collection_modifyitems(items):
    here = __file__.removesuffix("conftest.py")
    for item in items:
        if str(item.path).startswith(here):
            for words in FILTERS:
                item.add_marker(pytest.mark.filterwarnings(words), append=False)
