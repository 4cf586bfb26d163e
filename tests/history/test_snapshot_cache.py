"""What is cached with a snapshot: once for all threads, and no more values than the limit."""

import gc
import weakref
from concurrent.futures import ThreadPoolExecutor

from lockstep.history.snapshot_cache import remembered, remembered_few


class Snapshot:
    """Anything that can be referred to weakly is a snapshot here."""


class Value:
    """A value whose end can be seen."""


def test_threads_compute_a_value_once():
    made = []

    @remembered
    def square(snapshot, number):
        made.append(number)
        return number * number

    snapshot = Snapshot()
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda at: square(snapshot, at % 4), range(64))) == [(at % 4) ** 2 for at in range(64)]
    assert sorted(made) == [0, 1, 2, 3]
    square(Snapshot(), 3)
    assert made.count(3) == 2


def test_only_the_last_values_of_a_commit_are_cached():
    made = []

    @remembered_few
    def rows(snapshot, commit):
        made.append(weakref.ref(value := Value()))
        return value

    snapshot = Snapshot()
    for commit in range(50):
        rows(snapshot, commit)
        rows(snapshot, 0)
    assert 1 < sum(one() is not None for one in made) < 10
    assert rows(snapshot, 0) is made[0]()
    del snapshot
    gc.collect()
    assert not any(one() for one in made)
