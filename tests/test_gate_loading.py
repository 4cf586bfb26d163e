"""Which kernels of two versions are loaded once."""

import json
import os
import subprocess
import sys
import textwrap

KERNEL = """
    import triton
    import triton.language as tl

    @triton.jit
    def scale(x, by, BLOCK: tl.constexpr):
        {comment}
        at = tl.arange(0, BLOCK)
        tl.store(x + at, tl.load(x + at) * by {change})
"""

PROGRAM = """
    import json, sys
    import torch
    from pathlib import Path
    from lockstep.compiling import intercept
    from lockstep.gate.loading import once

    loads = []

    def load(name, file, shared, device):
        loads.append(name)
        return len(loads)

    answers = []
    with intercept(90) as kernels:
        for folder in sys.argv[1:]:
            sys.path.insert(0, folder)
            from planted import scale
            del sys.modules["planted"], sys.path[0]
            for block in (128, 256):
                scale[(1,)](torch.empty(1024, device="meta"), 2.0, BLOCK=block)
    load = once(load)
    for kernel in kernels:
        answers.append(load(kernel.name, kernel.kernel, kernel.metadata.shared, 0))
    again = [load(kernel.name, kernel.kernel, kernel.metadata.shared, 1) for kernel in kernels]
    files = len({kernel.kernel for kernel in kernels})
    print(json.dumps({"answers": answers, "again": again, "files": files}))
"""


def test_the_same_machine_code_is_loaded_once_whatever_its_lines(tmp_path):
    versions = {
        "base": ("", ""),
        "head": ("# A comment, which moves the lines\n        # and makes another file of it.", ""),
        "changed": ("", "+ 1.0"),
    }
    for name, (comment, change) in versions.items():
        (tmp_path / name).mkdir()
        text = textwrap.dedent(KERNEL.format(comment=comment, change=change))
        (tmp_path / name / "planted.py").write_text(text)
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, program, *(str(tmp_path / name) for name in versions)],
        capture_output=True, text=True, check=False, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    # Six kernels, six files (their lines or paths differ), four codes.
    assert answer["files"] == 6
    assert answer["answers"] == [1, 2, 1, 2, 3, 4]
    # Another device is another load.
    assert answer["again"] == [5, 6, 5, 6, 7, 8]
