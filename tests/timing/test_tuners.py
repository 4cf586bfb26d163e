"""The choices of tuners are held: real tuners of Triton, with kernels that Triton's interpreter runs."""

import json
import multiprocessing
import os
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import triton
from asv.results import iter_results_paths
from triton.runtime.autotuner import Autotuner, Heuristics

from lockstep.record.file import RecordError
from lockstep.timing.device import CpuDevice, Timing
from lockstep.timing.tuners.choices import NAME, Choice, Choices, differences, spelled, where_of
from lockstep.timing.tuners.fastest import best_of
from lockstep.timing.tuners.held_choices import NoStoredChoice, Tuners
from lockstep.timing.tuners.kernel_source import source_of

WARPS = (1, 2, 4, 8)


def copy(x, n):
    """The body of a kernel that stands in for a compiled one."""


def copy_and_add(x, n):
    """Another body."""
    return x + n


class Clock(CpuDevice):
    """A device whose time passes only while ``Kernel`` runs, so that no other work on the machine counts."""

    now = 0.0

    def time(self, replays):
        timings = []
        for replay in replays:
            before = Clock.now
            replay()
            timings.append(Timing(Clock.now - before))
        return timings


class Kernel:
    """Stands in for a compiled kernel: a launch takes the seconds that are given for the configuration's warps."""

    arg_names = ("x", "n")

    def __init__(self, function=copy, seconds=None):
        self.fn = function
        self.seconds = seconds or {}
        self.launched = []

    def run(self, x, n, *, num_warps, warmup=False, **_):
        if not warmup:
            self.launched.append(num_warps)
            Clock.now += self.seconds.get(num_warps, 1e-3)


class OwnRun(Autotuner):
    """A subclass with a ``run`` of its own, as flash-linear-attention has one."""

    def run(self, *args, **kwargs):
        self.looked = True
        return super().run(*args, **kwargs)


def tuner(seconds=None, warps=WARPS, function=copy, kind=Autotuner, fn=None, **options):
    configs = [triton.Config({}, num_warps=number) for number in warps]
    return kind(fn or Kernel(function, seconds), Kernel.arg_names, configs, ["n"], None, None, **options)


def launch(one, n=4):
    one.run(torch.zeros(n), n, grid=(1,), warmup=False)
    return one.best_config.num_warps


FASTEST_2 = {1: 4e-3, 2: 1e-3, 4: 6e-3, 8: 9e-3}
FASTEST_8 = {1: 4e-3, 2: 9e-3, 4: 6e-3, 8: 1e-3}


@pytest.fixture
def hold(tmp_path):
    """Returns what holds the choices of a process that starts now."""

    def holder(**options):
        return Tuners(Choices(tmp_path / NAME), Clock(), "a GPU, triton 3", **options)

    return holder


@pytest.mark.parametrize("kind", [Autotuner, OwnRun])
def test_an_equal_kernel_takes_the_stored_choice(hold, kind):
    with hold().held():
        assert launch(tuner(FASTEST_2, kind=kind)) == 2
    other = tuner(FASTEST_8, kind=kind)  # its times would choose differently
    with hold().held():
        assert launch(other) == 2
    assert other.fn.launched == [2]


def test_a_process_beside_others_takes_stored_choices_and_tunes_nothing(hold):
    with hold(stored=True).held(), pytest.raises(NoStoredChoice, match="copy has no stored choice"):
        launch(tuner(FASTEST_2))
    with hold().held():
        launch(tuner(FASTEST_2))
    with hold(stored=True).held():
        assert launch(tuner(FASTEST_8)) == 2


def test_both_sides_of_one_process_take_one_choice(hold):
    base, head = tuner(FASTEST_2), tuner(FASTEST_8)
    with hold().held():
        assert (launch(base), launch(head)) == (2, 2)


def test_another_key_kernel_or_list_is_tuned_again(hold):
    with hold().held():
        assert launch(tuner(FASTEST_2)) == 2
        assert launch(tuner(FASTEST_8), n=8) == 8
        assert launch(tuner(FASTEST_8, function=copy_and_add)) == 8
        assert launch(tuner(FASTEST_8, warps=(2, 8))) == 8
        assert launch(tuner(FASTEST_8, warps=(8, 4, 2, 1))) == 2  # the same list in another order


def test_another_gpu_or_toolchain_is_tuned_again(tmp_path):
    for where, seconds, warps in (("H100", FASTEST_2, 2), ("H200", FASTEST_8, 8), ("H100", FASTEST_8, 2)):
        with Tuners(Choices(tmp_path / NAME), Clock(), where).held():
            assert launch(tuner(seconds)) == warps


def test_retuning_is_what_the_package_does(hold):
    def do_bench(call, quantiles):
        before = Clock.now
        call()
        return [Clock.now - before] * 3

    with hold().held():
        assert launch(tuner(FASTEST_2)) == 2
    with hold(retune=True).held():
        assert launch(tuner(FASTEST_8, do_bench=do_bench)) == 8
    with hold().held():
        assert launch(tuner(FASTEST_8)) == 2


def test_a_timer_of_the_package_is_used(hold):
    asked = []

    def do_bench(call, quantiles):
        asked.append(quantiles)
        return [float(len(asked) != 3)] * 3

    with hold().held():
        assert launch(tuner(FASTEST_2, do_bench=do_bench)) == WARPS[2]
    assert len(asked) == len(WARPS)


def test_tritons_own_file_of_choices_is_neither_read_nor_written(hold):
    """Its key has line numbers: base and head of a moved kernel would differ."""
    asked = []

    class Cached(Autotuner):
        def check_disk_cache(self, key, configs, bench):
            asked.append(key)
            self.cache[key] = configs[0]
            return True

    with hold().held():
        cached = tuner(FASTEST_2, kind=Cached)
        cached.cache_results = True
        assert launch(cached) == 1  # a class of its own decides for itself
        own = tuner(FASTEST_2, function=copy_and_add)
        own.cache_results = True  # Triton's would ask for a GPU
        assert launch(own) == 2
    assert len(asked) == 1


def test_a_kernel_without_a_readable_source_runs_and_is_not_stored(hold, tmp_path):
    scope = {}
    exec("def unknown(x, n): pass", scope)
    with hold().held():
        assert launch(tuner(FASTEST_2, function=scope["unknown"])) == 2
        assert launch(tuner(FASTEST_8, function=copy)) == 8
    [stored] = json.loads((tmp_path / NAME).read_text())["choices"]
    assert stored["kernel"].endswith(".copy")


def test_a_pruned_list_is_tuned_within_what_is_left(hold):
    def prune(configs, named, **_):
        return [config for config in configs if config.num_warps > 2]

    one = tuner(FASTEST_2, prune_configs_by={"early_config_prune": prune})
    with hold().held():
        assert launch(one) == 4
    assert not {1, 2} & set(one.fn.launched)
    with hold().held():
        assert launch(tuner(FASTEST_2)) == 2  # another pruning, another choice


def test_hooks_of_a_tuner_run(hold):
    zeroed, x = [], torch.ones(4)

    class Adds(Kernel):
        def run(self, x, n, *, num_warps, warmup=False, **_):
            if not warmup:
                zeroed.append(float(x[0]))
                x += 1

    one = Autotuner(Adds(), Kernel.arg_names, [triton.Config({}, num_warps=n) for n in (1, 2)], ["n"], ["x"], None)
    with hold().held():
        one.run(x, 4, grid=(1,), warmup=False)
    assert set(zeroed) == {0.0}
    assert x.tolist() == [1.0] * 4


def test_configurations_that_do_not_fit_are_not_chosen(hold, tmp_path):
    from triton.runtime.errors import OutOfResources

    class Large(Kernel):
        def run(self, x, n, *, num_warps, warmup=False, **_):
            if num_warps in self.seconds and not warmup:
                raise OutOfResources(300_000, 232_448, "shared memory")

    with hold().held():
        assert launch(tuner(fn=Large(copy, {1: 0, 2: 0}))) in (4, 8)
        with pytest.raises(OutOfResources):
            launch(tuner(fn=Large(copy_and_add, dict.fromkeys(WARPS, 0))))
    assert len(json.loads((tmp_path / NAME).read_text())["choices"]) == 1


def test_of_equal_times_the_last_choice_is_taken_again():
    """A kernel that changed a little keeps its configuration, unless another one is faster."""
    times = {"a": 1.0, "b": 1.004, "c": 1.5}
    of = lambda names: [times[name] for name in names]  # noqa: E731
    assert best_of(of, list(times), "b") == "b"
    assert best_of(of, list(times), "c") == "a"
    assert best_of(of, ["b", "a"], "") == "b"  # equal, so the first of the list
    assert best_of(of, [], "a") == ""


def test_what_falls_behind_is_not_timed_on():
    asked = []

    def times(names):
        asked.append(list(names))
        return [{"a": 1.0, "b": 1.05, "c": 3.0}[name] for name in names]

    assert best_of(times, ["a", "b", "c"], "") == "a"
    assert asked[2] == ["a", "b", "c"]
    assert asked[3] == ["a", "b"]


def test_the_file_is_small_readable_and_can_be_dropped(hold, tmp_path):
    with hold().held():
        launch(tuner(FASTEST_2))
    text = (tmp_path / NAME).read_text()
    assert '"chosen": "num_warps 2, num_ctas 1, num_stages 3"' in text
    assert len(text.splitlines()) == 6
    (tmp_path / NAME).unlink()
    with hold().held():
        assert launch(tuner(FASTEST_8)) == 8


def test_the_file_of_earlier_versions_is_taken_and_replaced(hold, tmp_path, monkeypatch):
    """asv took it for a result: ``publish`` said twice that it could not load results/machine.json."""
    warnings = []
    monkeypatch.setattr("asv.results.log.warning", warnings.append)
    with hold().held():
        launch(tuner(FASTEST_2))
    assert [*iter_results_paths(str(tmp_path))] == warnings == []
    earlier = (tmp_path / NAME).rename(tmp_path / "tuned.json")
    assert [*iter_results_paths(str(tmp_path))] == []
    assert "Skipping results" in warnings[0]
    with hold().held():
        assert launch(tuner(FASTEST_8)) == 2
        launch(tuner(FASTEST_8, warps=(4, 8)))
    assert not earlier.exists()
    with hold().held():
        assert launch(tuner(FASTEST_8)) == 2


def test_a_broken_file_is_named(hold, tmp_path):
    (tmp_path / NAME).write_text('{"choices": 1}')
    with hold().held(), pytest.raises(RecordError, match=r"tuned.choices .*or delete it"):
        launch(tuner(FASTEST_2))


def test_what_a_tuned_kernel_runs_in_is_noted(hold):
    tuners = hold()
    with tuners.held(), tuners.noted() as choices:
        one = tuner(FASTEST_2)
        launch(one)
        launch(one)
        launch(tuner(FASTEST_2, warps=(4,)))  # one configuration is no choice
    assert [spelled(choice) for choice in choices] == ["num_warps 2"] * 2
    assert choices[0].kernel == f"{__name__}.copy"
    assert choices[0].key == "4, torch.float32"


class Chooses(Autotuner):
    """A tuner that measures and chooses by itself, as FlagGems has one."""

    def run(self, *args, **kwargs):
        self.nargs = dict(zip(self.arg_names, args, strict=False))
        timings = {config: self._bench(*args, config=config, **kwargs) for config in self.configs}
        self.best_config = min(timings, key=timings.get)
        return self.fn.run(*args, **kwargs, **self.best_config.all_kwargs())


@pytest.mark.parametrize("kind", [OwnRun, Chooses])
def test_the_choice_of_a_tuner_with_a_run_of_its_own_is_noted_once(hold, kind):
    tuners = hold()
    with tuners.held(), tuners.noted() as choices:
        launch(tuner(FASTEST_2, kind=kind))
    assert [spelled(choice) for choice in choices] == ["num_warps 2"]


def test_a_list_that_lost_its_choice_is_the_reason(hold):
    tuners = hold()
    with tuners.held():
        with tuners.noted() as base:
            launch(tuner(FASTEST_8))
        with tuners.noted() as head:
            launch(tuner(FASTEST_8, warps=(1, 2, 4)))
    assert differences(base, head) == ["copy: head's list lost num_warps 8; chosen num_warps 1 instead of num_warps 8"]
    assert differences(base, base) == []


def choice(source="1", warps=WARPS, chosen=2, kernel="package.ops.scale"):
    listed = tuple(f"num_warps {number}, num_stages 3" for number in warps)
    return Choice(kernel, source, listed, "64", "a GPU", f"num_warps {chosen}, num_stages 3")


@pytest.mark.parametrize(
    ("head", "sentence"),
    [
        (choice(), None),
        (choice(warps=WARPS[::-1]), None),
        (choice(chosen=4), "scale: chosen num_warps 4 instead of num_warps 2"),
        (choice("2"), "scale: head's kernel changed, so it was tuned again; chosen num_warps 2 as before"),
        (choice(warps=(2, 4, 8)), "scale: head's list lost num_warps 1; chosen num_warps 2 as before"),
        (
            choice(warps=(2, 16, 32, 64, 128), chosen=16),
            "scale: head's list lost num_warps 1, num_warps 4, num_warps 8 and gained 4 configurations; "
            "chosen num_warps 16 instead of num_warps 2",
        ),
        (choice(kernel="package.ops.other", chosen=8), None),
    ],
)
def test_sentences(head, sentence):
    assert differences([choice()], [head]) == ([sentence] if sentence else [])


def test_a_value_that_a_list_lost_is_named_once():
    listed = {warps: [f"BLOCK {size}, num_warps {warps}" for size in (16, 32, 64, 128)] for warps in (2, 4, 8)}
    base = Choice("a.scale", "1", (*listed[2], *listed[4], *listed[8]), "", "", listed[4][1])
    head = replace(base, configurations=(*listed[2], *listed[8]), chosen=listed[8][1])
    told = "scale: head's list lost num_warps 4; chosen BLOCK 32, num_warps 8 instead of BLOCK 32, num_warps 4"
    assert differences([base], [head]) == [told]


def source(folder, text, name="kernel"):
    """The digest of a tuned kernel in a module with this text."""
    path = folder / f"module_{len(list(folder.iterdir()))}.py"
    path.write_text(f"import triton\nimport triton.language as tl\n{textwrap.dedent(text)}")
    scope = {"__name__": path.stem, "__file__": str(path)}
    exec(compile(path.read_text(), str(path), "exec"), scope)
    return source_of(scope[name])


KERNEL = """
    WIDTH: tl.constexpr = 4

    @triton.jit
    def helper(x):
        return x + 1

    @triton.autotune([triton.Config({}, num_warps=2), triton.Config({}, num_warps=4)], key=["n"])
    @triton.heuristics({"EVEN": lambda arguments: arguments["n"] % 16 == 0})
    @triton.jit
    def kernel(x, n, EVEN: tl.constexpr):
        tl.store(x + n, helper(tl.load(x)) * WIDTH)
"""


@pytest.mark.parametrize(
    ("old", "new", "equal"),
    [
        ("@triton.jit", "# a comment\n    @triton.jit", True),
        ("return x + 1", "return (x + 1)  # the same", True),
        ("num_warps=4", "num_warps=8", True),  # the list is not part of the source
        ("return x + 1", "return x + 2", False),
        ("constexpr = 4", "constexpr = 8", False),
        ("% 16", "% 32", False),
        ("x + n", "x + n + 1", False),
    ],
)
def test_what_decides_a_kernel(tmp_path, old, new, equal):
    assert old in KERNEL
    assert (source(tmp_path, KERNEL) == source(tmp_path, KERNEL.replace(old, new))) == equal


def test_where_names_gpu_and_compiler():
    host = {"gpu": "NVIDIA H200", "triton": "3.6.0", "ptxas": "13.0", "driver": "580"}
    assert where_of(host) == "NVIDIA H200, triton 3.6.0, ptxas 13.0"
    assert where_of({"triton": "3.6.0"}) == "cpu, triton 3.6.0"


def _tune(folder, started, results):
    one = tuner({1: 2e-2, 2: 1e-3, 4: 2e-2, 8: 2e-2})
    started.wait()
    with Tuners(Choices(Path(folder) / NAME), Clock(), "a GPU").held():
        results.put((launch(one), len(one.fn.launched)))


def test_processes_tune_an_equal_kernel_once(tmp_path):
    context = multiprocessing.get_context("spawn")
    started, results = context.Barrier(2), context.Queue()
    processes = [context.Process(target=_tune, args=(tmp_path, started, results)) for _ in range(2)]
    for process in processes:
        process.start()
    found = [results.get(timeout=300) for _ in processes]
    for process in processes:
        process.join()
    assert [warps for warps, _ in found] == [2, 2]
    assert min(launches for _, launches in found) == 1


INTERPRETED = """
    import sys, pathlib, torch, triton, triton.language as tl
    from lockstep.timing.device import CpuDevice
    from lockstep.timing.tuners.choices import Choices, spelled
    from lockstep.timing.tuners.held_choices import Tuners

    @triton.autotune([triton.Config({"BLOCK": size}) for size in (16, 64, 256)], key=["n"])
    @triton.heuristics({"EVEN": lambda arguments: arguments["n"] % 256 == 0})
    @triton.jit
    def double(x, out, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)

    x = torch.arange(1024.0)
    tuners = Tuners(Choices(pathlib.Path(sys.argv[1])), CpuDevice(), "cpu")
    with tuners.held(), tuners.noted() as choices:
        out = torch.empty_like(x)
        double[lambda meta: (triton.cdiv(1024, meta["BLOCK"]),)](x, out, 1024)
    assert torch.equal(out, 2 * x)
    print(spelled(choices[0]))
"""


def test_a_kernel_in_the_interpreter_is_tuned_and_held(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(INTERPRETED))
    run = [sys.executable, str(script), str(tmp_path / NAME)]
    told = [
        subprocess.run(run, env={**os.environ, "TRITON_INTERPRET": "1"}, check=True, capture_output=True, text=True)
        for _ in range(2)
    ]
    assert told[0].stdout == told[1].stdout
    assert told[0].stdout.startswith("BLOCK ")


COMPILED = """
    import contextlib, threading, torch, triton, triton.language as tl
    from triton.compiler import CompiledKernel
    from lockstep.machine_code.targets import Target
    from lockstep.machine_code.tracing.simulated_target import stand_in
    from lockstep.timing.device import CpuDevice
    from lockstep.timing.tuners.choices import Choices
    from lockstep.timing.tuners.held_choices import Tuners

    @triton.autotune([triton.Config({"BLOCK": size}) for size in (64, 128, 256)], key=["n"])
    @triton.jit
    def double(x, out, n, BLOCK: tl.constexpr):
        tl.static_assert(BLOCK != 128)
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)

    class Pointer:
        dtype = torch.float32
        data_ptr = lambda self: 1 << 20

    stand_in(Target.parse("sm_90"))
    with Tuners(Choices(), CpuDevice(), "sm_90").held(), contextlib.suppress(Exception):
        double[(1,)](Pointer(), Pointer(), 64)  # nothing can be launched
    [(kernels, *_)] = double.fn.device_caches.values()
    print(sum(isinstance(kernel, CompiledKernel) for kernel in kernels.values()), "of", len(kernels))
"""


def test_all_configurations_are_compiled_before_the_first_is_timed(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(COMPILED))
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path / "cache")
    done = subprocess.run([sys.executable, str(script)], env=environment, check=True, capture_output=True, text=True)
    assert done.stdout.startswith("2 of "), done.stderr


def test_heuristics_beside_a_tuner_are_held(hold):
    class WithHeuristic(Kernel):
        def run(self, x, n, *, num_warps, EVEN, warmup=False, **_):
            super().run(x, n, num_warps=num_warps, warmup=warmup)

    def build(seconds):
        inner = Heuristics(WithHeuristic(copy, seconds), Kernel.arg_names, {"EVEN": lambda named: named["n"] % 2 == 0})
        return tuner(fn=inner)

    with hold().held():
        assert launch(build(FASTEST_2)) == 2
        assert launch(build(FASTEST_8)) == 2
