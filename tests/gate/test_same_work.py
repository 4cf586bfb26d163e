"""Two versions are called the same only if a stand-in for captured graphs shows the same work.

``LOCKSTEP_WORK_EXAMPLES=2000 pytest tests/gate/test_same_work.py`` plants that many changes.
"""

import functools
import importlib
import os
import random
import sys
from collections import Counter

import pytest
import recorded_gpu as gpu
from planted import lay_out
from planted_launches import CHANGES, WORDS, planted

from lockstep.gate.namespaces import Sides
from lockstep.same_work.read_graph import unmangled
from lockstep.same_work.work import (
    UNKNOWN_CODE,
    Buffer,
    Captured,
    Edge,
    Memory,
    Node,
    Place,
    compare,
    difference,
    digest,
    placed,
    without_host_addresses,
)

EXAMPLES = int(os.environ.get("LOCKSTEP_WORK_EXAMPLES", "120"))


def said_of(example, folder):
    """What the graphs of each variant's two versions say, on two draws."""
    gpu.forget()
    roots = {}
    for side, files in (("base", example.base), ("head", example.head)):
        roots[side] = folder / side / example.source_folder
        lay_out(roots[side], files)
    finders, modules, folders = list(sys.meta_path), set(sys.modules), set(sys.path_importer_cache)
    try:
        sides = Sides(example.packages, **roots)
        variants = {}
        for side in ("base", "head"):
            with sides.active(side):
                variants[side] = importlib.import_module(example.module).VARIANTS
        return {name: compare(draws(sides, variants, name)) for name in variants["base"]}
    finally:
        sys.meta_path[:] = finders
        for name in set(sys.modules) - modules:
            del sys.modules[name]
        for name in set(sys.path_importer_cache) - folders:
            del sys.path_importer_cache[name]


def draws(sides, variants, name):
    for value in (1, 2):
        tensors = {key: gpu.tensor(1024, bytes([value, number]), (value,)) for number, key in enumerate("xw")}
        tensors["out"] = gpu.tensor(1024)
        graphs = {}
        for side in ("base", "head"):
            with sides.active(side):
                graphs[side] = gpu.captured(functools.partial(variants[side][name], **tensors))
        yield Captured(graphs["base"], graphs["head"], gpu.shared(**tensors), lambda: gpu.live, gpu.is_memory)


@pytest.fixture(autouse=True)
def _another_number_of_tiles(monkeypatch):
    """A variable that only head reads, once the change of this kind is planted."""
    monkeypatch.setenv("PLANTED_OTHER_TILES", "9")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)


def test_no_planted_change_is_called_the_same(tmp_path):
    chance, found = random.Random(33), Counter()
    for number in range(EXAMPLES):
        kind = list(CHANGES)[number % len(CHANGES)]
        said = said_of(planted(kind, chance), tmp_path / str(number))
        assert any(said.values()), kind
        found[kind] += 1
    assert len(found) == min(len(CHANGES), EXAMPLES)


def test_words_and_names_are_called_the_same(tmp_path):
    chance = random.Random(34)
    for number in range(max(EXAMPLES // 10, 3 * len(WORDS))):
        kind = list(WORDS)[number % len(WORDS)]
        said = said_of(planted(kind, chance), tmp_path / str(number))
        assert not any(said.values()), (kind, said)


def test_the_difference_names_what_changed(tmp_path):
    chance = random.Random(35)

    def first(kind):
        return next(filter(None, said_of(planted(kind, chance), tmp_path / kind).values()))

    assert first("grid") == "scale: grid 16×1×1 → 8×1×1"
    assert first("block") == "scale: block 128×1×1 → 256×1×1"
    assert first("scalar argument").startswith("product: parameter 2 ")
    assert first("offset") == "scale: parameter 0 x+64 → x+128"
    assert first("edge") == "product: waits for other work, or in another way"
    assert first("branch on the device") == "a branch on the device: its work is not known"
    assert first("values on both sides") == "the graph depends on the values of the inputs"
    assert first("extra copy") == "3 nodes → 4 nodes"


def test_an_address_becomes_a_buffer_and_an_offset_wherever_it_lies():
    memory = Memory([Buffer("x", 4096, 8192, 4160)])
    node = Node("kernel", (("parameter 0", (4168).to_bytes(8, "little") + bytes(4)), ("grid", (4168,))))
    [found] = placed((node,), memory)
    assert found.facts == (("parameter 0", (Place("x", 8), bytes(4))), ("grid", (4168,)))
    assert memory.place(8192) is None
    assert memory.place(4095) is None


def test_equal_buffers_of_one_side_are_told_apart():
    def own(address):
        start = address // 100 * 100
        return Buffer("64 bytes of zeros", start, start + 64, start)

    def graph(*addresses):
        return placed((Node("kernel", tuple((f"p{n}", a.to_bytes(8, "little")) for n, a in enumerate(addresses))),),
                      Memory([], own))  # fmt: skip

    assert difference(graph(100, 200), graph(500, 900)) == ""
    assert difference(graph(100, 200), graph(500, 500)) != ""
    assert difference(graph(100, 204), graph(500, 900)) != ""


def test_what_is_unknown_is_not_even_equal_to_itself():
    host = Node("a function of the host", unknown="its work is not known")
    assert difference((host,), (host,)) == "a function of the host: its work is not known"
    assert compare([]) == "nothing was captured"


def test_memory_that_the_allocator_places_elsewhere_on_another_draw_is_no_dependence():
    def draw(middle, grid=4):
        first = Node("set", (("target", middle.to_bytes(8, "little")),))
        work = (first, Node("kernel", (("grid", (grid,)), ("parameter 0", middle.to_bytes(8, "little")))))
        return Captured(work, work, [], lambda: lambda address: None, lambda address: address >= 1000)

    assert compare([draw(1000), draw(2000)]) == ""
    assert compare([draw(1000), draw(2000, grid=5)]) == "the graph depends on the values of the inputs"
    assert compare([draw(10), draw(20)]) == "the graph depends on the values of the inputs", "these are no addresses"


def test_variants_with_the_same_work_on_both_sides_have_the_same_digest():
    def draw(start, grids=(4, 8), code="a1"):
        sides = (
            (Node("kernel", (("machine code", code), ("grid", (grid,)), ("parameter 0", start.to_bytes(8, "little")))),)
            for grid in grids
        )
        return Captured(*sides, [Buffer("out", start, start + 64, start)], lambda: lambda _: None, lambda _: True)

    assert digest(draw(4096)) == digest(draw(8192)) != ""
    assert len({digest(draw(4096, grids)) for grids in ((4, 8), (8, 4), (4, 9))}) == 3
    assert digest(draw(4096, code="function 0x1, whose code is not known")) == ""
    unknown = (Node("a function of the host", unknown="its work is not known"),)
    assert digest(Captured(unknown, unknown, [], lambda: lambda _: None, lambda _: True)) == ""


def test_a_kernel_with_other_code_is_told_by_what_it_needs():
    def kernel(**facts):
        return (Node("kernel", tuple((name.replace("_", " "), fact) for name, fact in facts.items()), name="scale"),)

    base = kernel(machine_code="a1", registers=128, local_memory=0, grid=(4,))
    head = kernel(machine_code="b2", registers=255, local_memory=16, grid=(8,))
    assert difference(base, head) == "scale: grid 4 → 8, registers 128 → 255, local memory 0 → 16"
    other = kernel(machine_code="b2", registers=128, local_memory=0, grid=(4,))
    assert difference(base, other) == "scale: other machine code"
    one, two = (kernel(machine_code=f"function {handle:#x} scale, whose code is not known") for handle in (16, 32))
    assert difference(one, two) == "scale: another function, whose machine code is not known"


def test_nodes_that_wait_for_others_differ():
    one, waits = Node("set"), Node("set", after=(Edge(0),))
    early = Node("set", after=(Edge(0, bytes([0, 0, 1, 0, 0, 0, 0, 0])),))
    assert difference((one, one), (one, waits)) != ""
    assert difference((one, waits), (one, early)) != ""
    assert difference((one, waits), (one, waits)) == ""


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("_ZN2at6native13reduce_kernelILi512ELi1ENS0_8ReduceOpIN3c108BFloat16EEEEvT1_", "reduce_kernel"),
        ("_Z6skinnyILi4EEvPKfPfi", "skinny"),
        ("_ZN12_GLOBAL__N_15scaleEPff", "scale"),
        ("_multiply_planes", "_multiply_planes"),
        ("nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_NNN", "nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_NNN"),
        ("_Zebra", "_Zebra"),
        ("", ""),
    ],
)
def test_a_kernel_is_called_by_its_own_name(name, own):
    assert unmangled(name) == own


def _one_node(code, *words):
    return (
        Node("kernel", (("machine code", code), ("parameter 0", b"".join(w.to_bytes(8, "little") for w in words)))),
    )


@pytest.mark.parametrize("code", [f"function 0x1f {UNKNOWN_CODE}", "ab12"])
def test_addresses_of_the_host_that_a_library_gets_are_no_work(code):
    def host(address):
        return 1000 <= address < 2000

    graphs = [without_host_addresses(_one_node(code, 7, address), host) for address in (1000, 1500)]
    # Other kernels keep every byte, and so do numbers that are no addresses.
    assert (graphs[0] == graphs[1]) is (UNKNOWN_CODE in code)
    assert without_host_addresses(_one_node(code, 7, 2500), host) == _one_node(code, 7, 2500)
    assert without_host_addresses(_one_node(code, 8, 1000), host) != graphs[0]
