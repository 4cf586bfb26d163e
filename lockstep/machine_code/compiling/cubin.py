"""Read a compiled kernel: fingerprint, resources, and classes of instructions. A cubin is an ELF file.

``cuobjdump`` and ``nvdisasm`` are part of Triton's wheel. If one is missing or fails, functions raise RuntimeError.
"""

from __future__ import annotations

import hashlib
import re
import struct
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lockstep.gpu.triton_assembler import assembler_version
from lockstep.processes.end_with_parent import run
from lockstep.processes.trouble import reason_of

#: Prefixes of sections that affect execution. All others hold names, lines and paths, which a comment or a folder
#: changes.
RUN_WITH = (".text", ".nv.info", ".nv.constant", ".nv.global", ".nv.shared")

#: Launch attributes that are not in the cubin, named as in Triton's metadata.
LAUNCH = (
    *("num_warps", "num_ctas", "cluster_dims", "shared", "tmem_size", "launch_pdl", "launch_cooperative_grid"),
    *("global_scratch_size", "profile_scratch_size"),
)

#: Classes of instructions in reports, by their mnemonic (CUDA Binary Utilities, "Instruction Set Reference"): matrix
#: products of Hopper, Ampere and Blackwell; copies by TMA; cp.async; local memory, used for spills; barriers.
CLASSES = {
    "HGMMA": r"[HQIB]GMMA",
    "HMMA": r"[HIDQOB]MMA",
    "UTCMMA": r"UTC\w*MMA",
    "TMA": r"UTMA(?:LDG|STG|REDG)|UBLKCP",
    "LDGSTS": r"LDGSTS",
    "LDL": r"LDL",
    "STL": r"STL",
    "BAR": r"BAR|SYNCS|WARPSYNC",
    "LDG": r"LDG",
    "STG": r"STG|REDG?|ATOMG?",
    "LDS": r"LDSM?",
    "STS": r"STSM?",
}
_CLASS = re.compile("|".join(f"(?P<{name}>{pattern})" for name, pattern in CLASSES.items()))
_INSTRUCTION = re.compile(r"^\s*/\*([0-9a-f]+)\*/\s+(?:@!?U?P\w+\s+)?([A-Z]\w*)", re.MULTILINE)


#: First architecture for which the assembler's output varies: CUDA 13's assembler names some registers by addresses in
#: its own memory. Of 20 runs on one text, 13 gave one naming and 7 another. For sm_90 none of 60 kernels varied, each
#: assembled five times.
VARIES_FROM = 100
_LINES = re.compile(
    r"^\s*(?:\.loc|\.file)\b.*\n|^\$L__(?:tmp|func_begin|func_end|pc)\d*:\s*\n|[ \t]*//.*$",
    re.MULTILINE,
)


def fingerprint(asm: Mapping[str, Any], metadata: Any) -> str:
    """Return a digest of everything that affects execution: instructions with scheduling, constants, launch attributes.

    From ``VARIES_FROM`` on, it is the assembler's input and version that count. The kernel's name, line numbers,
    comments and paths are left out. ``asm`` has "ptx" and "cubin" of the kernel, ``metadata`` is Triton's.
    """
    digest = hashlib.sha256()
    target = re.search(r"^\.target sm_(\d+)", asm["ptx"], re.MULTILINE)
    if target and int(target[1]) >= VARIES_FROM:
        text = re.sub(rf"\b{re.escape(metadata.name)}(_param_\d+)?\b", r"\1", without_lines(asm["ptx"]))
        digest.update(f"{assembler_version(int(target[1]))} {text}".encode())
    else:
        for name, content in _sections(asm["cubin"]):
            if name.startswith(RUN_WITH):
                digest.update(f"{name.removesuffix(metadata.name)} {len(content)} ".encode() + content)
    digest.update(str([(name, getattr(metadata, name, None)) for name in LAUNCH]).encode())
    return digest.hexdigest()[:16]


def without_lines(ptx: str) -> str:
    """Return PTX without line numbers, comments and debug information; it does not depend on the source's folder."""
    return _LINES.sub("", ptx.partition("\t.section\t.debug_")[0])


def registers_and_stack(cubin: bytes) -> tuple[int, int]:
    """Return registers per thread and bytes of stack per thread; Triton's kernels use the stack only for spills."""
    printed = _run("cuobjdump", cubin, "-res-usage")
    usage = {name: int(value) for name, value in re.findall(r"\b(REG|STACK):(\d+)", printed)}
    if usage.keys() != {"REG", "STACK"}:
        raise RuntimeError(f"cuobjdump -res-usage reported no registers and stack; it printed:\n{printed}")
    return usage["REG"], usage["STACK"]


def mixes(cubins: Sequence[bytes], arch: int) -> list[dict[str, int]]:
    """Count the instructions of each of ``CLASSES``, and "all", in each cubin; classes without any are left out.

    nvdisasm runs once for all cubins: it takes 0.35 s to start, and almost no time for each kernel. ``arch`` is the
    number of the architecture, 90 for sm_90.
    """
    codes = [b"".join(content for name, content in _sections(cubin) if name.startswith(".text")) for cubin in cubins]
    counts: list[Counter[str]] = [Counter() for _ in codes]
    printed = _run("nvdisasm", b"".join(codes), "--binary", f"SM{arch}{'a' if arch >= 90 else ''}") if codes else ""
    index, end = -1, 0
    for address, mnemonic in _INSTRUCTION.findall(printed):
        while int(address, 16) >= end:
            index += 1
            end += len(codes[index])
        counts[index]["all"] += mnemonic != "NOP"
        kind = _CLASS.fullmatch(mnemonic)
        counts[index][(kind and kind.lastgroup) or ""] += 1
    return [{name: count[name] for name in (*CLASSES, "all") if count[name]} for count in counts]


def _sections(elf: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of each section of a 64-bit ELF file; for a section without content, yield its size."""
    (table,) = struct.unpack_from("<Q", elf, 0x28)
    size, count, names_at = struct.unpack_from("<HHH", elf, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", elf, table + index * size) for index in range(count)]
    names = headers[names_at][4]
    for name_at, kind, _, _, offset, length in headers:
        start = names + name_at
        name = elf[start : elf.index(b"\0", start)].decode()
        yield name, str(length).encode() if kind == 8 else elf[offset : offset + length]


def _run(tool: str, content: bytes, *options: str) -> str:
    import triton

    path = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / tool
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(content)
        file.flush()
        try:
            done = run([path, *options, file.name], text=True)
        except OSError as error:
            raise RuntimeError(
                f"{path} cannot be run ({reason_of(error)}); install Triton's wheel, which contains it"
            ) from error
    if done.returncode:
        raise RuntimeError(f"{tool} {' '.join(options)} failed: {(done.stderr or done.stdout).strip()}")
    printed: str = done.stdout
    return printed
