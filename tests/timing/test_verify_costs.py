"""What only a cost replays or calls is checked after the timing, as the replays of the latency are."""

from functools import partial

import pytest
from fakes import FakeDevice, MarkAtOnce, steady_controls
from made_suites import make_suite

from lockstep import Cost, grid
from lockstep.suite.variants import Family
from lockstep.timing.arms.captured_arms import Capturer
from lockstep.timing.costs import behind, energy
from lockstep.timing.costs.behind import Behind
from lockstep.timing.costs.energy import Energy
from lockstep.timing.costs.host_time import HostTime
from lockstep.timing.epochs import Plan
from lockstep.timing.measure import Measurer
from lockstep.timing.rules.changed_shared_code import Trusted

[CASE] = grid(M=4)
SUITE = make_suite(
    family="doubled",
    quick=(CASE,),
    draw=lambda new, M: {"x": new.normal(M, M, dtype="float32")},
    reference=lambda x: 2 * x.double(),
    cost=lambda M: Cost(M * M, 8 * M * M),
)
PLAN = Plan(rounds=2, min_epochs=2, max_epochs=2, warmup_s=0.0)


class Placed(FakeDevice):
    """Knows whether a call runs in a replay of the latency, in one of a cost, or in neither."""

    costly = False
    place = "call"

    def capture(self, calls, pool):
        replay, place = super().capture(calls, pool), "cost" if self.costly else "latency"

        def placed():
            self.place = place
            replay()
            self.place = "call"

        return placed

    def capturer_of_cost(self, *arguments, **options):
        """Return a capturer whose replays know that they belong to a cost."""
        capturer = Capturer(*arguments, **options)
        capture_arms = capturer.capture

        def capture(arms, listener):
            self.costly = True
            try:
                return capture_arms(arms, listener)
            finally:
                self.costly = False

        capturer.capture = capture
        return capturer


class Busy:
    """A GPU that is always busy."""

    def start(self, seconds): ...
    def wait(self): ...

    def busy(self):
        return True


def family(device, lazy_place):
    """``lazy`` returns what it computed before for the same address, but only in one place."""
    known = {}

    def plain(x):
        device.spend(1e-3)
        return 2 * x

    def lazy(x):
        result = plain(x)
        return known.setdefault(x.data_ptr(), result) if device.place == lazy_place else result

    return Family({"plain": plain, "lazy": lazy}, {})


def measured(cost, lazy_place, monkeypatch):
    device, joules = Placed(), iter(range(10**9))
    for module in (behind, energy):
        monkeypatch.setattr(module, "Capturer", device.capturer_of_cost)
    monkeypatch.setattr(energy, "TRAIN_S", 0.0)
    monkeypatch.setattr(behind, "fixed_kernel", lambda source, target: device.spend(1e-3))
    meter: dict = {}
    monkeypatch.setattr(Measurer, "meters_of", lambda *arguments: ([meter[cost]()], []))
    trusted = Trusted()  # of what this test put in place
    new_mark = partial(MarkAtOnce, lambda: device.now)
    meter |= {
        "behind": lambda: Behind(device, PLAN.pace, trusted),
        "host": lambda: HostTime(device, Busy()),
        "energy": lambda: Energy(device, PLAN.pace, lambda: float(next(joules)), new_mark, trusted),
    }
    of_suite = family(device, lazy_place)
    measurer = Measurer(device, PLAN, 1, load=lambda suite: of_suite, _controls=steady_controls(device))
    records = measurer.measure(SUITE, CASE, "warm", ("plain", "lazy"), costs=[cost])
    return {record.variant: record for record in records}


@pytest.mark.parametrize(
    ("cost", "place", "told"),
    [("behind", "cost", "behind another kernel"), ("energy", "cost", "energy"), ("host", "call", "outside a graph")],
)
def test_what_only_a_cost_runs_is_compared_again(cost, place, told, monkeypatch):
    records = measured(cost, place, monkeypatch)
    assert records["plain"].state == "ok", records["plain"].reason
    assert cost in records["plain"].costs
    assert (records["lazy"].state, records["lazy"].rule) == ("failed", "timed-result")
    assert told in records["lazy"].reason
    assert records["lazy"].costs == {}


@pytest.mark.parametrize("cost", ["behind", "energy", "host"])
def test_what_is_right_there_has_its_cost(cost, monkeypatch):
    records = measured(cost, "nowhere", monkeypatch)
    assert {name: record.state for name, record in records.items()} == {"plain": "ok", "lazy": "ok"}
    assert all(cost in record.costs for record in records.values())
