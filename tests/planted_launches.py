# ruff: noqa: E501 — the sources of generated modules stand here a line each
"""Packages that launch kernels, with a change planted in one of them, to look for changes that captured graphs hide.

Each change is a text of one file and what replaces it. ``CHANGES`` are changes of the work, ``WORDS`` are not.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

FILES = {
    "settings.py": """
        import os

        ROWS = 16
        BLOCK = 128
        SHARED = 64
        CLUSTER = 1
        TILES = int(os.environ.get("PLANTED_TILES", "4"))
        TABLE = b"0123"
        """,
    "kernels.py": '''
        def scale(pointer, count):
            """Scale."""
            total = pointer * 3
            return total + count


        def product(left, right):
            return left * right + 1
        ''',
    "more.py": """
        def scale(pointer, count):
            total = pointer * 5
            return total + count
        """,
    "streams.py": """
        import recorded_gpu as gpu


        def beside(kernel, grid, *args):
            gpu.fork("side")
            gpu.launch(kernel, grid, *args, stream="side")
            gpu.join("side")
        """,
    "work.py": """
        import recorded_gpu as gpu
        {imports}

        _TABLE = gpu.tensor(64, {settings}.TABLE)


        def plain(x, w, out):
            {late}gpu.launch({kernels}.scale, ({settings}.ROWS, 1, 1), x, out, {settings}.TILES, block={settings}.BLOCK, shared={settings}.SHARED)
            gpu.launch({kernels}.product, (4, 2, 1), w, out, 2.5, cluster={settings}.CLUSTER, pdl=True)


        def tables(x, w, out):
            {late}middle = gpu.empty(256)
            gpu.fill(middle, 0)
            gpu.launch("gemm_128", (8, 1, 1), gpu.descriptor(w, 64), middle, _TABLE, carveout=50)
            gpu.copy(out, middle, 256)


        def together(x, w, out):
            {late}gpu.fill(out, 7)
            {streams}.beside({kernels}.scale, (2, 1, 1), x.at(64), out)
            gpu.launch({kernels}.product, (x.values[0] * 0 + 3, 1, 1), x, w, out)


        VARIANTS = {{"plain": plain, "tables": tables, "together": together}}
        """,
}

#: Kinds of changes of the work: file, text, replacement.
CHANGES = {
    "grid": ("settings.py", "ROWS = 16", "ROWS = 8"),
    "block": ("settings.py", "BLOCK = 128", "BLOCK = 256"),
    "shared memory": ("settings.py", "SHARED = 64", "SHARED = 65"),
    "cluster": ("settings.py", "CLUSTER = 1", "CLUSTER = 2"),
    "launch attribute": ("work.py", "carveout=50", "carveout=51"),
    "constant of a kernel": ("kernels.py", "pointer * 3", "pointer * 4"),
    "operation of a kernel": ("kernels.py", "left * right", "left - right"),
    "scalar argument": ("work.py", "out, 2.5", "out, 2.25"),
    "kernel of equal name": ("work.py", "{kernels}.scale, ({settings}", "{more}.scale, ({settings}"),
    "order": (
        "work.py",
        "gpu.fill(middle, 0)\n            gpu.launch(\"gemm_128\", (8, 1, 1), gpu.descriptor(w, 64), middle, _TABLE, carveout=50)",
        "gpu.launch(\"gemm_128\", (8, 1, 1), gpu.descriptor(w, 64), middle, _TABLE, carveout=50)\n            gpu.fill(middle, 0)",
    ),
    "no fork": ("streams.py", 'gpu.fork("side")', "pass"),
    "no join": ("streams.py", 'gpu.join("side")', "pass"),
    "extra copy": ("work.py", "gpu.copy(out, middle, 256)", "gpu.copy(out, middle, 256)\n            gpu.copy(out, middle, 256)"),
    "other copy": ("work.py", "gpu.copy(out, middle, 256)", "gpu.copy(middle, out, 256)"),
    "shorter copy": ("work.py", "middle, 256)", "middle, 128)"),
    "edge": ("work.py", "pdl=True", "pdl=False"),
    "branch on the device": ("work.py", "gpu.copy(out", 'gpu.other("a branch on the device")\n            gpu.copy(out'),
    "host function": ("work.py", "gpu.copy(out", 'gpu.other("a function of the host")\n            gpu.copy(out'),
    "environment variable": ("settings.py", "PLANTED_TILES", "PLANTED_OTHER_TILES"),
    "default of an environment variable": ("settings.py", '"4"', '"5"'),
    "library function": ("work.py", '"gemm_128"', '"gemm_64"'),
    "descriptor": ("work.py", "(w, 64)", "(w, 32)"),
    "address in a descriptor": ("work.py", "descriptor(w,", "descriptor(x,"),
    "offset": ("work.py", "x.at(64)", "x.at(128)"),
    "swapped arguments": ("work.py", "(4, 2, 1), w, out", "(4, 2, 1), out, w"),
    "set value": ("work.py", "fill(middle, 0)", "fill(middle, 1)"),
    "table": ("settings.py", 'b"0123"', 'b"0124"'),
    "values": ("work.py", "x.values[0] * 0 + 3", "3 + x.values[0]"),
    "values on both sides": ("work.py", "x.values[0] * 0 + 3", "3 + x.values[0]"),
    "fewer kernels": ("work.py", "gpu.launch({kernels}.product, (x.values", "0 and gpu.launch({kernels}.product, (x.values"),
}  # fmt: skip

#: Changes after which base is changed as well: the work is equal, and says nothing about other values.
ON_BOTH = ("values on both sides",)

#: Changes that leave the work as it is.
WORDS = {
    "comment": ("kernels.py", "total = pointer", "# Words.\n            total = pointer"),
    "docstring": ("kernels.py", "Scale.", "Multiply, then add."),
    "name of a local": ("kernels.py", "total", "result"),
    "name of a parameter": ("kernels.py", "pointer", "source"),
    "comment of a launch": ("work.py", "gpu.copy(out", "# Words.\n            gpu.copy(out"),
    "another expression": ("settings.py", "ROWS = 16", "ROWS = 4 * 4"),
    "local of the host": ("work.py", "middle", "buffer"),
    "a function between": (
        "streams.py", "def beside(kernel, grid, *args):", "def beside(*args):\n            inner(*args)\n\n\n        def inner(kernel, grid, *args):",
    ),
    "unused code": ("more.py", "pointer * 5", "pointer * 7"),
}  # fmt: skip


@dataclass(frozen=True)
class Planted:
    """Two versions of some packages.

    Attributes:
        kind: name of the change.
        base, head: files by path below the root.
        packages: top-level packages.
        module: the module with ``VARIANTS``.
        source_folder: "src/" or "": where the packages lie in their repository.
    """

    kind: str
    base: dict[str, str]
    head: dict[str, str]
    packages: tuple[str, ...]
    module: str
    source_folder: str


def planted(kind: str, chance: random.Random) -> Planted:
    """Packages of a random layout with one change of this kind."""
    home = chance.choice(["toy", "toy.ops.family", "toy.ops"])
    homes = {name: chance.choice([home, "toy", "helpers", "toy.deep"]) for name in FILES}
    homes["work.py"] = home
    lazy = chance.choice([False, True])
    style = chance.choice(["import {home}.{name} as {name}_", "from {home} import {name} as {name}_"])
    names = {name.removesuffix(".py"): homes[name] for name in FILES if name != "work.py"}
    lines = [style.format(home=place, name=name) for name, place in names.items()]
    late = [line for line in lines if lazy and "settings" not in line]
    words = {name: f"{name}_" for name in names}
    file, text, replacement = (CHANGES | WORDS)[kind]
    assert text in FILES[file], kind

    def laid_out(changed: bool) -> dict[str, str]:
        found = {}
        for name, source in FILES.items():
            source = source.replace(text, replacement) if changed and name == file else source
            if name == "work.py":
                top = "\n        ".join(line for line in lines if line not in late)
                inside = "".join(f"{line}\n            " for line in late)
                source = source.format(imports=top, late=inside, **words)
            found[f"{homes[name].replace('.', '/')}/{name}"] = source
        for path in list(found):
            parts = path.split("/")[:-1]
            for depth in range(1, len(parts) + 1):
                found.setdefault("/".join([*parts[:depth], "__init__.py"]), "")
        return found

    packages = tuple(sorted({place.partition(".")[0] for place in homes.values()}))
    base, head = laid_out(kind in ON_BOTH), laid_out(True)
    return Planted(kind, base, head, packages, f"{home}.work", chance.choice(["", "src/"]))
