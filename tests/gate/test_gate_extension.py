"""A package with a C++ extension: base and head are built apart and compared in one process."""

import json
import textwrap

import pytest
from project import make_project

#: Needs no header of torch but pybind11's, so that it is built in seconds. What differs is in a header, of which
#: torch does not know that the extension depends on it.
SOURCE = """
    #include <pybind11/pybind11.h>
    #include <cstdint>
    #include "factor.h"

    static void scale(std::uintptr_t x, std::uintptr_t out, std::int64_t n) {
      for (std::int64_t i = 0; i < n; ++i)
        reinterpret_cast<float*>(out)[i] = FACTOR * reinterpret_cast<const float*>(x)[i];
    }

    PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("scale", &scale); }
"""

PACKAGE = """
    import functools
    from pathlib import Path

    import torch


    @functools.cache
    def built():
        from torch.utils.cpp_extension import load

        return load("toy_scale", str(Path(__file__).with_name("scale.cpp")), ["-O1"])


    def plain(x, weight):
        product = x @ weight
        out = torch.empty_like(product)
        built().scale(product.data_ptr(), out.data_ptr(), out.numel())
        return out


    VARIANTS = {"plain": plain}
"""


@pytest.mark.timeout(500)
def test_each_side_calls_the_extension_that_its_sources_make(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "built"))
    project = make_project(tmp_path / "project", timeout=400.0)
    project.write("toy/product.py", textwrap.dedent(PACKAGE))
    project.write("toy/scale.cpp", textwrap.dedent(SOURCE))
    project.write("toy/factor.h", "#define FACTOR 1.0f\n")
    project.commit("Scale by an extension")
    project.write("toy/factor.h", "#define FACTOR 1.01f\n")
    report = project.root / "gate.json"
    shown = project.lockstep("gate", "--case", "M=2", "--variant", "plain", "--budget", "240s", "--json", str(report))
    [case] = json.loads(report.read_text())["cases"]
    assert (case["outcome"], case["in_base"]) == ("failed", False), shown.stdout
    assert "WrongResult" in case["reason"]
