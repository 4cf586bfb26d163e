"""One case measured: what is n/a, what failed, and why. How it is timed is told in test_pairs."""

import sys
import weakref

import pytest
import torch
from fakes import FakeDevice, steady_controls
from made_suites import changed_suite, make_suite

from lockstep import Cost, grid, variant
from lockstep.record.model import Accuracy
from lockstep.suite.checkout import import_from
from lockstep.timing.device import DeviceLost
from lockstep.timing.epochs import Plan
from lockstep.timing.measure import Measurer
from lockstep.timing.stage_times import STAGES

[SMALL], [OTHER] = grid(M=4), grid(M=5)
SUITE = make_suite(
    family="kernels_of_it",
    module="measured_package.kernels_of_it",
    cases=(OTHER,),
    quick=(SMALL,),
    draw=lambda new, M: {"x": new.normal(M, M, dtype="float32")},
    reference=lambda x: 2 * x.double(),
    cost=lambda M: Cost(M * M, 8 * M * M),
    skips=lambda variant, M: "only at M=5" if variant == "limited" and M != 5 else "",
)

KERNELS = """
import torch

seen = []

def plain(x):
    seen.append(x.data_ptr())
    return 2 * x

def wrong(x):
    return 3 * x

def unsupported(x):
    raise NotImplementedError("needs Blackwell")

def raises(x):
    raise RuntimeError("no such thing\\nand more")

def hungry(x):
    raise torch.cuda.OutOfMemoryError("tried to allocate")

VARIANTS = {
    "plain": plain, "limited": plain, "wrong": wrong, "unsupported": unsupported, "raises": raises, "hungry": hungry
}
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    folder = tmp_path / "measured_package"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "kernels_of_it.py").write_text(KERNELS)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield folder
    for name in [name for name in sys.modules if name.startswith("measured_package")]:
        del sys.modules[name]


class Ticking(FakeDevice):
    """Every replay takes a tick."""

    def time(self, replays):
        return super().time([lambda replay=replay: (replay(), self.spend(1e-3)) for replay in replays])


def measurer(device=None):
    device = device or Ticking()
    plan = Plan(rounds=3, min_epochs=4, max_epochs=4, warmup_s=0)
    return Measurer(device, plan, seed=1, _controls=steady_controls(device))


def measure(*variants, case=SMALL, l2="warm", suite=SUITE, device=None, **known):
    records = measurer(device).measure(suite, case, l2, variants, **known)
    return {record.variant: record for record in records}


def test_each_variant_gets_its_own_answer(package):
    records = measure("plain", "limited", "wrong", "unsupported", "raises", "hungry", "absent")
    told = {name: (record.state, record.reason) for name, record in records.items()}
    assert told == {
        "plain": ("ok", ""),
        "limited": ("na", "only at M=5"),
        "wrong": ("failed", "WrongResult: wrong output 0 is off by 0.5 of its norm at M=4, accepted is 3.07e-05"),
        "unsupported": ("na", "needs Blackwell"),
        "raises": ("failed", "RuntimeError: no such thing"),
        "hungry": ("failed", "MemoryError: the device has too little memory for its check"),
        "absent": ("na", "the variant is not in this commit"),
    }
    plain = records["plain"]
    assert (plain.suite, plain.case, plain.l2, plain.version) == (SUITE.name, "M=4", "warm", SUITE.benchmark_version)
    assert (plain.flops, plain.bytes, plain.check_error, plain.epochs) == (16.0, 128.0, 0.0, 4)
    assert (plain.accuracy, plain.deterministic) == (Accuracy(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0), True)
    assert records["limited"].accuracy is records["wrong"].accuracy is None
    assert (plain.floor_s, plain.floor_source) == (None, ""), "a CPU has no floor"


def test_a_history_leaves_out_what_it_does_not_follow(package):
    names = ("plain", "wrong", "unsupported")
    suite = changed_suite(
        SUITE, cases=(SMALL,), full_history=lambda M: M > 4, warm_history=lambda M: M < 8, tracked=("wrong",)
    )
    asked = measurer()
    everything = {record.variant: record.reason for record in asked.measure(suite, SMALL, "warm", names)}
    assert everything["unsupported"] == "needs Blackwell"
    asked.history = True
    followed = {record.variant: record.reason for record in asked.measure(suite, SMALL, "warm", names)}
    assert followed == everything | {
        "unsupported": "a history measures this variant at other cases only (full_history of its suite)"
    }


def test_the_baseline_comes_along_unasked(package):
    assert set(measure("wrong")) == {"plain", "wrong"}


def test_what_killed_a_worker_before_is_not_run(package):
    records = measure("plain", "limited", failed={"plain": "hung for 10 s"})
    assert (records["plain"].state, records["plain"].reason) == ("failed", "hung for 10 s")
    assert "measured_package.kernels_of_it" in sys.modules
    assert sys.modules["measured_package.kernels_of_it"].seen == []


@pytest.mark.parametrize(("case", "l2"), [(OTHER, "warm"), (SMALL, "cold")])
def test_a_cpu_measures_the_quick_cases_warm(package, case, l2):
    assert {(r.state, r.reason) for r in measure("plain", "wrong", case=case, l2=l2).values()} == {
        ("na", "no GPU here; a CPU measures only the suite's quick cases, with a warm cache")
    }


def test_what_does_not_fit_the_cache_has_no_warm_series(package):
    device = Ticking()
    device.cache_bytes = 100
    [record] = measure("plain", device=device).values()
    assert (record.state, record.reason) == ("na", "its 0 MB do not fit into the 0 MB cache")


@pytest.mark.parametrize("gone", ["kernels_of_it.py", "__init__.py"])
def test_a_tree_without_the_family_fails(package, gone):
    if gone == "__init__.py":
        package.rename(package.with_name("something_else"))
    else:
        (package / gone).unlink()
    assert {(r.state, r.reason) for r in measure("plain", "wrong").values()} == {
        ("failed", "the working tree has no measured_package.kernels_of_it")
    }


def test_what_the_working_tree_lacks_is_a_mistake_and_no_gap_of_its_history(package):
    (package / "kernels_of_it.py").unlink()
    asked = measurer()
    told = {}
    for asked.history in (True, False):
        [record] = asked.measure(SUITE, SMALL, "warm", ["plain"])
        told[asked.history] = record.state, record.reason
    assert told == {
        True: ("na", "this commit has no measured_package.kernels_of_it"),
        False: ("failed", "the working tree has no measured_package.kernels_of_it"),
    }


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("import no_such_library", "cannot be imported: ModuleNotFoundError: No module named 'no_such_library'"),
        (
            "import measured_package.missing",
            "cannot be imported: ModuleNotFoundError: No module named 'measured_package.missing'",
        ),
        ("1 / 0", "cannot be imported: ZeroDivisionError: division by zero"),
        ("VARIANTS = 5", "VARIANTS must be a dict of name to function"),
    ],
)
def test_a_family_that_cannot_be_imported_failed(package, text, reason):
    (package / "kernels_of_it.py").write_text(text)
    records = measure("plain", "wrong")
    assert {record.state for record in records.values()} == {"failed"}
    assert all(reason in record.reason for record in records.values())


def _own(suite, x):
    from measured_package.kernels_of_it import plain

    return plain(x)


@pytest.mark.parametrize(
    ("suite", "files"),
    [
        (SUITE, {"__init__.py": "import measured_package.kernels_of_it\nimport measured_package.broken\n"}),
        (
            changed_suite(SUITE, module="", plain=variant(_own)),
            {"__init__.py": "import measured_package.kernels_of_it\nimport measured_package.broken\n"},
        ),
        (
            SUITE,
            {
                "kernels_of_it.py": "def plain(x):\n    from measured_package.part.work import double\n\n"
                "    return double(x)\n\n\nVARIANTS = {'plain': plain}\n",
                "part/work.py": "def double(x):\n    return 2 * x\n",
                "part/__init__.py": "import measured_package.part.work\nimport measured_package.broken\n",
            },
        ),
    ],
    ids=["the module of a suite", "a variant of a suite", "a variant of a module"],
)
def test_a_package_that_does_not_import_fails_at_every_case(package, monkeypatch, suite, files):
    """Python keeps the modules that were imported before the one that failed."""
    for name, text in {"broken.py": "def (\n", **files}.items():
        (package / name).parent.mkdir(exist_ok=True)
        (package / name).write_text(text)
    monkeypatch.setattr(sys, "meta_path", sys.meta_path.copy())
    import_from(package.parent, ["measured_package"])
    one, suite = measurer(), changed_suite(suite, quick=(SMALL, OTHER))
    for case in suite.quick:
        [record] = one.measure(suite, case, "warm", [])
        assert (record.state, "SyntaxError: invalid syntax" in record.reason) == ("failed", True), record.reason


def test_a_check_is_made_once_for_both_cache_states(package):
    stages = []
    one = measurer()
    one.listener = lambda stage, variant: stages.append((stage, variant))
    for _ in range(2):
        one.measure(SUITE, SMALL, "warm", ["plain", "raises"])
    assert [stage for stage in stages if stage[0] == "check"] == [("check", "plain"), ("check", "raises")]
    assert stages.count(("time", "")) == 2 * 4


def test_a_broken_device_ends_it_with_the_culprits_name(package):
    device = Ticking()
    device.healthy = lambda: False
    with pytest.raises(DeviceLost, match="raises: RuntimeError: no such thing") as lost:
        measure("plain", "raises", device=device)
    assert (lost.value.variant, lost.value.reason) == ("raises", "RuntimeError: no such thing")


def test_no_room_for_the_sets_fails_the_case_and_gives_memory_back(package, monkeypatch):
    def no_room(*arguments):
        raise torch.cuda.OutOfMemoryError("tried to allocate")

    monkeypatch.setattr("lockstep.timing.case_measurement.draw_sets", no_room)
    device = Ticking()
    records = measure("plain", "unsupported", device=device)
    assert records["plain"].reason == "out of memory for this case's argument sets"
    assert (records["plain"].state, records["unsupported"].state) == ("failed", "na")
    assert device.released > 0


def test_what_failed_keeps_no_tensors(package):
    """A remembered error must not hold the frames that it passed, and with them the case's inputs."""
    one = measurer()
    drawn = []

    def draw(new, M):
        drawn.append(weakref.ref(given := new.normal(M, M, dtype="float32")))
        return {"x": given}

    suite = changed_suite(SUITE, draw=draw)
    one.measure(suite, SMALL, "warm", ["plain", "wrong", "unsupported", "raises"])
    assert len(drawn) == 1 + 4 + 2  # the check's, the epochs', and two verifications'
    assert [tensor() for tensor in drawn] == [None] * len(drawn)


def test_time_is_told_by_stage_and_the_case_is_drawn_once_an_epoch(package):
    one = measurer()
    one.measure(SUITE, SMALL, "warm", ["plain"])
    spent = one.stages.take()
    assert spent.keys() == STAGES.keys()
    assert all(seconds > 0 for seconds in spent.values())
    assert one.stages.take() == {}
