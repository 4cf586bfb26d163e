"""The digest of a graph is the same in another process, which has other addresses, and differs for other work."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.same_work.work import UNKNOWN_CODE, Buffer, Edge, Node, Unknown, portable_digest

#: Sizes of the shared buffers of a process, and of the blocks that a variant keeps.
SIZES = {"x 0": 512, "w 0": 2048, "out 0": 512}
KEPT = {"table": 256, "counters": 64}


class Process:
    """The addresses of one process: where each buffer lies, and the handles of libraries' functions."""

    def __init__(self, base, handle):
        self.at, self.handle, address = {}, handle, base
        for name, size in (SIZES | KEPT).items():
            self.at[name] = address
            address += size + 4096

    def digest(self, work, library_memory=True):
        shared = [Buffer(name, self.at[name], self.at[name] + size, self.at[name]) for name, size in SIZES.items()]

        def own(address, library):
            for name, size in KEPT.items():
                if self.at[name] <= address < self.at[name] + size:
                    return Buffer(f"{size} bytes {name}", self.at[name], self.at[name] + size, self.at[name])
            if address >= 1 << 32:
                if library and library_memory:
                    return Buffer("its own", address, address + 1, address)
                raise Unknown
            return None

        return portable_digest(tuple(self.node(*one) for one in work), shared, own)

    def node(self, code, grid, arguments, after):
        library = code if code.startswith(("_Z", "nvjet", "triton_")) else ""
        machine_code = f"function {self.handle + len(code):#x} {library}, {UNKNOWN_CODE}" if library else code
        facts = [("machine code", machine_code), ("grid", grid)]
        for number, value in enumerate(arguments):
            word = self.at[value[0]] + value[1] if isinstance(value, tuple) else value
            facts.append((f"parameter {number}", word.to_bytes(8, "little")))
        return Node("kernel", tuple(facts), tuple(Edge(number) for number in after))


arguments = st.one_of(
    st.integers(0, 1 << 31), st.tuples(st.sampled_from([*SIZES, *KEPT]), st.integers(0, 7).map(lambda word: 8 * word))
)
codes = st.sampled_from(["4fa0c2", "91bb03", "_ZN2at6native3addE", "nvjet_tst_64x8"])
nodes = st.tuples(
    codes, st.tuples(st.integers(1, 9), st.just(1), st.just(1)), st.lists(arguments, max_size=4), st.just(())
)
works = st.lists(nodes, min_size=1, max_size=5)
processes = st.builds(
    Process, st.integers(1 << 40, 1 << 44).map(lambda base: base // 512 * 512), st.integers(1 << 33, 1 << 40)
)


@given(works, processes, processes)
def test_another_process_gives_the_same_digest(work, one, other):
    assert one.digest(work) == other.digest(work) != ""


@given(works, works, processes, processes)
def test_other_work_has_another_digest(work, changed, one, other):
    assert (one.digest(work) == other.digest(changed)) is (work == changed)


@pytest.fixture
def process():
    return Process(1 << 40, 1 << 33)


def test_which_of_two_equal_blocks_a_kernel_gets_is_part_of_its_work(process):
    twice = [("4fa0c2", (1, 1, 1), [("table", 0), ("table", 0)], ())]
    both = [("4fa0c2", (1, 1, 1), [("table", 0), ("counters", 0)], ())]
    assert process.digest(twice) != process.digest(both)
    first = [("4fa0c2", (1, 1, 1), [("table", 0)], ()), ("4fa0c2", (1, 1, 1), [("counters", 0)], ())]
    assert process.digest(first) != process.digest([first[0], first[0]])


def test_waiting_for_another_node_is_other_work(process):
    row = ("4fa0c2", (1, 1, 1), [], ())
    assert process.digest([row, row]) != process.digest([row, (*row[:3], (0,))])


@pytest.mark.parametrize("code", ["triton_poi_fused_mul_0", "triton_tem_fused_mm_1"])
def test_the_name_of_a_kernel_that_torch_compile_generates_is_not_its_code(code, process):
    known, generated = ("4fa0c2", (1, 1, 1), [("x 0", 0)], ()), (code, (1, 1, 1), [("x 0", 0)], ())
    assert process.digest([known]) != ""
    assert process.digest([known, generated]) == ""


def test_memory_of_unknown_role_makes_a_kernel_unknown_and_a_librarys_does_not(process):
    work = [("4fa0c2", (1, 1, 1), [(1 << 45) + 8], ())]
    assert process.digest(work) == ""
    assert process.digest([("nvjet_tst_64x8", *work[0][1:])]) != ""


def test_a_table_that_torch_reads_counts_by_its_contents_and_the_workspace_of_a_library_does_not():
    asked = []

    def own(address, library):
        asked.append(library)
        return Buffer("table", address, address + 8, address)

    for name in ("_ZN2at6native3addE", "nvjet_tst_64x8", ""):
        code = f"function 0x7f00 {name}, {UNKNOWN_CODE}" if name else "4fa0c2"
        parameter = ("parameter 0", (1 << 45).to_bytes(8, "little"))
        assert portable_digest((Node("kernel", (("machine code", code), parameter)),), [], own) != ""
    assert asked == [False, True, False]


def test_an_unknown_node_makes_the_work_unknown():
    node = Node("kernel", (("machine code", "4fa0c2"),))
    assert portable_digest((node,), [], lambda address, library: None) != ""
    assert portable_digest((node, replace(node, unknown="its work is not known")), [], lambda a, library: None) == ""


def test_memory_that_a_library_sets_before_its_kernel_is_known_and_a_kernel_of_triton_that_gets_it_is_not(process):
    def digest(*codes):
        address = (1 << 45).to_bytes(8, "little")
        set_ = Node("set", (("target", address), ("value", 0), ("extent", (64, 1))))
        kernels = [Node("kernel", (("machine code", code), ("parameter 0", address))) for code in codes]

        def own(address, library):
            if library:
                return Buffer("its own", address, address + 1, address)
            raise Unknown

        return portable_digest((set_, *kernels), [], own)

    library = f"function 0x7f00 nvjet_hsh_256x128, {UNKNOWN_CODE}"
    assert digest(library) != digest() != ""
    assert digest(library, "4fa0c2") == ""
