"""Work grows with what a page shows: counted, or compared at two sizes, so that no machine's speed decides."""

import time

import pytest
from bench.make_tree import write_many
from trees import open_store

from dashboard.findings import Findings
from dashboard.pages import overview

#: Benchmarks of the smaller tree and of the larger one.
FEW, MANY = 1000, 4000

#: The larger tree takes four times as long where work is linear, and sixteen times where it is quadratic.
LINEAR = 8


@pytest.fixture(scope="module")
def trees(tmp_path_factory):
    """Stores of two projects that differ in the number of their benchmarks alone."""
    found = {}
    for benchmarks in (FEW, MANY):
        root = tmp_path_factory.mktemp("trees") / str(benchmarks)
        write_many(root, benchmarks, commits=2)
        found[benchmarks] = open_store(root, patience=60.0)
        found[benchmarks].refresh()
    return found


def seconds(do):
    """Return the CPU seconds of a call."""
    began = time.process_time()
    do()
    return time.process_time() - began


def test_the_overviews_work_is_linear_in_its_series(trees):
    def fill(store):
        results = store.current()
        stood = overview.stand(results, "machine-0", "all", "all", 0, Findings(store.cache, store.root))
        overview.table(results, "machine-0", stood)

    few, many = (seconds(lambda of=of: fill(trees[of])) for of in (FEW, MANY))
    assert many < LINEAR * few
