"""Which GPU a case belongs to."""

import re
from collections import Counter
from pathlib import Path

import pytest

from lockstep.fleet.shard import Shard, ShardError, owners, series_by_case
from lockstep.suite.discovery import load_suites

ROOT = Path(__file__).parents[2]
GPUS = tuple(f"GPU-{number:08x}-0000" for number in range(1, 9))


@pytest.fixture(scope="module")
def suites():
    return list(load_suites(ROOT / "benchmarks").values())


@pytest.mark.parametrize("text", ["", "1", "0/2", "3/2", "a/2", "1/0", "1/", "1/a,b", "1/GPU-a,GPU-a", "-1/2", "1/2/3"])
def test_a_text_that_names_no_shard_is_refused(text):
    with pytest.raises(ShardError, match="write I/N"):
        Shard.parse(text)


@pytest.mark.parametrize("text", ["1/1", "2/4", f"2/{GPUS[0]},{GPUS[1]}"])
def test_a_shard_is_written_as_it_is_read(text):
    assert str(Shard.parse(text)) == text
    assert Shard.parse(text).folder(Path("a/results")).parent == Path("a/results-shards")


@pytest.mark.parametrize("count", [1, 2, 3, 4, 8])
def test_shards_share_evenly_what_a_gpu_measures(suites, count):
    owned = owners(GPUS[:count], suites)
    assert set(owned) == {(suite.name, case.label) for suite in suites for case in suite.all_cases}
    load = Counter()
    for suite in suites:
        for case in suite.cases_on("cuda"):
            load[owned[suite.name, case.label]] += series_by_case(suite)[case.label]
    assert max(load.values()) <= 1.1 * sum(load.values()) / count


def test_the_order_of_the_fleet_does_not_count(suites):
    assert owners(GPUS, suites) == owners(GPUS[::-1], suites)


def test_a_gpu_that_joins_moves_few_cases(suites):
    before, after = owners(GPUS[:7], suites), owners(GPUS, suites)
    moved = sum(before[case] != after[case] for case in before)
    assert moved <= len(before) / 2  # dealing the cases out in turn would move 7 of 8


@pytest.mark.parametrize("chosen", [(), ("latency",), ("^hgemm", r"speedup\(")])
def test_every_benchmark_matches_one_shard(suites, chosen):
    patterns = [Shard(place, GPUS[:3]).patterns(suites, chosen) for place in (1, 2, 3)]
    names = ["other.time_sort", "other.track_size(1)", "linear.time_it"]
    for suite in suites:
        prefix = suite.name + ("_" if "." in suite.name else ".")
        names += [
            f"{prefix}{quantity}('any', {case.label!r}, '{l2}')"
            for case in suite.all_cases
            for quantity in ("latency", "speedup", "behind")
            for l2 in ("cold", "warm")
        ]
    for name in names:
        wanted = not chosen or any(re.search(pattern, name) for pattern in chosen)
        shards = [place for place, some in enumerate(patterns, 1) if any(re.search(one, name) for one in some)]
        assert len(shards) == wanted, name
        if name.startswith("other") and wanted:
            assert shards == [1]
