"""What a captured graph holds, asked of a driver that answers as NVIDIA's does."""

import ctypes

import pytest

from lockstep.timing.rules.graph_nodes import require_work
from lockstep.timing.rules.rule import Disqualified, Rule

KERNEL, HOST = 0, 3
INVALID_VALUE = 1


class Driver:
    def __init__(self, kinds):
        self.kinds = kinds

    def cuGraphGetNodes(self, graph, nodes, count):
        if nodes is not None:
            if not self.kinds:
                return INVALID_VALUE  # seen with driver 580
            for index in range(len(self.kinds)):
                nodes[index] = index + 1
        count._obj.value = len(self.kinds)
        return 0

    def cuGraphNodeGetType(self, node, kind):
        kind._obj.value = self.kinds[node.value - 1]
        return 0


@pytest.mark.parametrize("kinds", [[], [HOST], [KERNEL, HOST]])
def test_fewer_kernels_than_calls_are_refused(monkeypatch, kinds):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Driver(kinds))
    with pytest.raises(Disqualified, match=f"2 captured calls launched only {kinds.count(KERNEL)} kernels") as refused:
        require_work(1, 2)
    assert refused.value.rule is Rule.EMPTY_GRAPH


def test_a_kernel_for_each_call_passes(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Driver([KERNEL, HOST, KERNEL]))
    require_work(1, 2)
