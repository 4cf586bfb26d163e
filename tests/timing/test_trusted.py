"""What measures was replaced: it is found, named, and put back."""

import math
import time

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import lockstep.timing.estimates
from lockstep.timing.checks.check import Checker, brief
from lockstep.timing.rules import trusted as trusted_module
from lockstep.timing.rules.persisting_cache import persisting_bytes
from lockstep.timing.rules.rule import Disqualified, Rule
from lockstep.timing.rules.trusted import Trusted


def lie(*args, **kwargs):
    return 0.0


def honest(self):
    return 1.0


@pytest.mark.parametrize(
    ("owner", "name", "rule", "said"),
    [
        (time, "perf_counter", Rule.CHANGED_CLOCK, "time.perf_counter"),
        (torch.cuda.Event, "elapsed_time", Rule.CHANGED_CLOCK, "torch.cuda.streams.Event.elapsed_time"),
        (torch.cuda, "synchronize", Rule.CHANGED_CLOCK, "torch.cuda.synchronize"),
        (torch.cuda.CUDAGraph, "replay", Rule.CHANGED_CLOCK, "torch.cuda.graphs.CUDAGraph.replay"),
        (math, "log", Rule.CHANGED_HARNESS, "math.log"),
        (torch.Tensor, "double", Rule.CHANGED_HARNESS, "torch.Tensor.double"),
        (torch, "equal", Rule.CHANGED_HARNESS, "torch.equal"),
        (Checker, "accuracy", Rule.CHANGED_HARNESS, "lockstep.timing.checks.check.Checker.accuracy"),
        (lockstep.timing.estimates, "outcome_of", Rule.CHANGED_HARNESS, "lockstep.timing.estimates.outcome_of"),
    ],
)
def test_a_replaced_function_is_named_and_put_back(owner, name, rule, said):
    trusted, inherited = Trusted(), name not in vars(owner)
    original = getattr(owner, name)
    setattr(owner, name, lie)
    with pytest.raises(Disqualified) as found:
        trusted.require()
    assert (found.value.rule, found.value.evidence) == (rule, f"replaced {said}")
    assert getattr(owner, name) == original
    assert (name not in vars(owner)) == inherited
    trusted.require()


def test_changed_code_of_a_function_is_found_too():
    trusted, code = Trusted(), Checker.accuracy.__code__
    Checker.accuracy.__code__ = honest.__code__
    with pytest.raises(Disqualified, match=r"replaced lockstep\.timing\.checks\.check\.Checker\.accuracy"):
        trusted.require()
    assert Checker.accuracy.__code__ is code


def test_changed_defaults_that_say_they_are_equal_are_found_too():
    class Equal(tuple):
        __hash__ = None

        def __eq__(self, other):
            return True

    trusted, defaults = Trusted(), brief.__defaults__
    brief.__defaults__ = Equal((1,))
    with pytest.raises(Disqualified, match=r"replaced lockstep\.timing\.checks\.check\.brief"):
        trusted.require()
    assert brief.__defaults__ is defaults


def test_what_raises_is_looked_at_as_well():
    trusted = Trusted()

    def replace_and_raise():
        with trusted.guarding():
            time.monotonic = lie
            raise ValueError("hides it")

    with pytest.raises(Disqualified, match=r"replaced time\.monotonic"):
        replace_and_raise()


def test_an_inherited_method_that_was_replaced_for_a_while_is_not_accused():
    """Code that puts it back as it found it leaves an entry of the class's own."""
    trusted, inherited = Trusted(), torch.Tensor.item
    torch.Tensor.item = inherited
    try:
        trusted.require()
    finally:
        del torch.Tensor.item


def test_new_names_are_not_accused():
    trusted = Trusted()
    torch.Tensor.its_own_method = lie
    try:
        trusted.require()
    finally:
        del torch.Tensor.its_own_method


def test_functions_that_the_baseline_is_made_of_are_kept():
    trusted, product = Trusted(), torch.mm
    torch.mm = lie
    with pytest.raises(Disqualified, match=r"replaced torch\.mm"):
        trusted.require()
    assert torch.mm is product


def test_settings_that_a_variant_leaves_behind_are_put_back():
    trusted, threads = Trusted(), torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    with pytest.raises(Disqualified, match="a changed setting: the number of threads") as found:
        trusted.require()
    assert (torch.get_num_threads(), found.value.rule) == (threads, Rule.CHANGED_HARNESS)
    with trusted.guarding():
        torch.set_num_threads(threads + 1)
    assert torch.get_num_threads() == threads
    torch.set_num_threads(threads + 1)
    trusted.accept_settings()
    trusted.require()
    torch.set_num_threads(threads)


@pytest.mark.parametrize(("kind", "mode"), [("function", TorchFunctionMode), ("dispatch", TorchDispatchMode)])
def test_modes_that_a_variant_leaves_on_are_switched_off(kind, mode):
    with mode():  # there before: stays
        trusted = Trusted()
        mode().__enter__()
        with pytest.raises(Disqualified, match=f"left a torch {kind} mode switched on") as found:
            trusted.require()
        assert found.value.rule == Rule.CHANGED_HARNESS
        trusted.require()


@pytest.fixture
def set_aside(monkeypatch):
    """A list of one number, the bytes of the L2 that the process sets aside."""
    size = [0]
    monkeypatch.setattr(trusted_module, "persisting_bytes", lambda: size[0])
    monkeypatch.setattr(trusted_module, "reset_persisting", lambda wanted: size.__setitem__(0, wanted))
    return size


def test_a_library_may_set_a_part_of_the_cache_aside_in_its_first_call(set_aside):
    """On an H200 torch 2.11 set 11 MiB aside in its first cross entropy over 32,000 classes, and in no later one."""
    calls = []

    def call():
        set_aside[0] += 0 if calls else 11 << 20
        calls.append(set_aside[0])
        return len(calls)

    trusted = Trusted()
    assert trusted.guarded(call) == 2
    assert (calls, set_aside) == ([11 << 20, 0], [0])
    trusted.require()


def test_a_part_of_the_cache_that_every_call_sets_aside_is_named_and_given_back(set_aside):
    trusted = Trusted()
    with pytest.raises(Disqualified, match=r"set aside 32 MiB of the device's L2") as found:
        trusted.guarded(lambda: set_aside.__setitem__(0, 32 << 20))
    assert (found.value.rule, set_aside) == (Rule.CHANGED_HARNESS, [0])
    assert brief(found.value).startswith("changed-harness: set aside 32 MiB")
    trusted.require()


def test_a_part_of_the_cache_that_was_set_aside_while_timing_is_named_at_once(set_aside):
    trusted = Trusted()
    set_aside[0] = 32 << 20
    with pytest.raises(Disqualified, match=r"set aside 32 MiB of the device's L2") as found:
        trusted.require()
    assert (found.value.rule, set_aside) == (Rule.CHANGED_HARNESS, [0])
    trusted.require()


def test_a_machine_without_a_gpu_sets_nothing_aside():
    if torch.cuda.is_available():
        pytest.skip("has a GPU")
    assert persisting_bytes() == 0
