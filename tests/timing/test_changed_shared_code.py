"""What all arms share was changed: it is found, named, and put back."""

import pytest
import torch

from lockstep.timing.checks.check import brief
from lockstep.timing.rules import changed_shared_code as trusted_module
from lockstep.timing.rules.changed_shared_code import Trusted
from lockstep.timing.rules.persisting_cache import persisting_bytes
from lockstep.timing.rules.rule import Disqualified, Rule


def lie(*args, **kwargs):
    return 0.0


def product(x, weight):
    return torch.mm(x, weight)


def test_a_replaced_function_of_a_variant_is_named_and_put_back():
    trusted, original = Trusted().with_variants({"product": product}), torch.mm
    torch.mm = lie
    with pytest.raises(Disqualified) as found:
        trusted.require()
    assert (found.value.rule, found.value.evidence) == (Rule.CHANGED_BASELINE, "replaced torch.mm")
    assert torch.mm is original
    trusted.require()


def test_changed_code_of_a_variant_is_found_too():
    trusted, code = Trusted().with_variants({"product": product}), product.__code__
    product.__code__ = lie.__code__
    with pytest.raises(Disqualified, match="replaced the code of product"):
        trusted.require()
    assert product.__code__ is code


def test_what_raises_is_looked_at_as_well():
    trusted, original = Trusted().with_variants({"product": product}), torch.mm

    def replace_and_raise():
        with trusted.guarding():
            torch.mm = lie
            raise ValueError("hides it")

    with pytest.raises(Disqualified, match=r"replaced torch\.mm"):
        replace_and_raise()
    assert torch.mm is original


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
