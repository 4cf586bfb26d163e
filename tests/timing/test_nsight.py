"""``lockstep profile``: what is called inside the range, what is printed, and that asv's own verb still works."""

import shlex

import pytest
import torch
from fakes import FakeDevice
from made_suites import make_suite

from lockstep import Cost, grid
from lockstep.suite.variants import Family
from lockstep.timing import nsight
from lockstep.timing.nsight import commands, run_marked
from tests.project import make_project

[CASE] = grid(M=64, N=256)

SUITE = make_suite(
    family="toy",
    cases=(CASE,),
    quick=(CASE,),
    draw=lambda new, M, N: {"x": new.normal(M, N, dtype="float32")},
    buffers=lambda new, M, N: new.empty(M, N, dtype="float32"),
    reference=lambda x: x.double(),
    cost=lambda M, N: Cost(M * N, 8 * M * N),
)


@pytest.fixture
def project(tmp_path):
    return make_project(tmp_path / "toy")


def test_without_a_gpu_the_commands_are_printed_and_the_reason_told(project):
    done = project.lockstep("profile", "product", "twice", "M=2,K=1024,N=512", "--l2", "warm", "--calls", "2")
    assert done.returncode == 3, done.stdout
    ncu, nsys, reason = done.stdout.splitlines()
    assert ncu.startswith("ncu --profile-from-start off --nvtx --nvtx-include lockstep/ ")
    assert "--cache-control none" in ncu
    assert nsys.startswith("nsys profile -t cuda,nvtx --capture-range cudaProfilerApi")
    for command in (ncu, nsys):
        assert command.endswith(" lockstep profile product twice M=2,K=1024,N=512 --l2 warm --calls 2")
    assert "There is no GPU" in reason


def test_an_ordinary_benchmark_goes_to_asv(project):
    done = project.lockstep("profile", "product.track_answer", "--gui", "list")
    assert done.returncode == 0, done.stdout
    assert "Available profiler GUIs" in done.stdout


def test_cold_caches_are_emptied_by_ncu_too():
    command = shlex.split(commands("grouped.mlp", "tma", "B=8,ragged", "cold", 1)["ncu"])
    assert command[command.index("--cache-control") + 1] == "all"
    assert command[command.index("-o") + 1] == "grouped.mlp-tma-B8-ragged-cold"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("product", "twise", "M=2,K=1024,N=512"), "did you mean twice?"),
        (("product", "twice", "M=5"), "has no case 'M=5'"),
        (("product", "twice"), "has no case ''"),
        (("product",), "name a variant of product"),
        (("produkt", "twice", "M=2,K=1024,N=512"), "did you mean product?"),
        (("product", "twice", "M=2,K=1024,N=512", "--calls", "0"), "not a positive integer"),
    ],
)
def test_a_wrong_name_is_told(project, arguments, message):
    done = project.lockstep("profile", *arguments)
    assert done.returncode == 4, done.stdout
    assert message in done.stdout
    assert "Traceback" not in done.stdout


@pytest.mark.parametrize(("l2", "sets"), [("cold", 16), ("warm", 1)])
def test_each_call_takes_the_next_set_after_all_were_called_once(monkeypatch, l2, sets):
    seen = []

    def plain(x, *, out):
        seen.append(x.data_ptr())
        return out.copy_(x)

    monkeypatch.setattr(nsight, "load_family", lambda suite: Family({"plain": plain}, {}))
    # A call touches 128 KB, of a cache of 1 MB.
    device = FakeDevice(cache_bytes=1 << 20)
    assert run_marked(device, SUITE, "plain", CASE, l2, calls=5) == sets
    warm_up, inside = seen[:sets], seen[sets:]
    assert len(set(warm_up)) == sets
    assert inside == [warm_up[index % sets] for index in range(5)]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="marks a range on a GPU")
def test_a_range_is_marked_on_a_gpu(project):
    done = project.lockstep("profile", "product", "twice", "M=4096,K=1024,N=512")
    assert done.returncode == 0, done.stdout
    assert "3 calls of twice over" in done.stdout
