"""Map the arrays of a file that ``numpy.savez`` wrote into memory, so that only used parts are read.

NumPy itself maps only files that hold a single array. An uncompressed archive holds such a file for each array, after a
header
(https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html).
"""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

#: Bytes of a member's header before the member's name, and where the header stores the lengths of name and extra field.
_HEADER, _LENGTHS = 30, slice(26, 30)


def mapped(path: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays of the file by name, mapped into memory. Changes of the arrays do not reach the file.

    Args:
        path: the path of the file. Writers must replace the file and not change it in place, because the arrays show
            changes of the mapped file.

    Raises:
        OSError: the file does not exist or cannot be read.
        ValueError, zipfile.BadZipFile: the file is damaged or compressed.
    """
    arrays = {}
    with zipfile.ZipFile(path) as archive:
        # A plain array is faster: every slice of a memmap runs Python code.
        content = np.asarray(np.memmap(path, np.uint8, "c"))
        for member in archive.infolist():
            with archive.open(member) as file:
                if npy.read_magic(file) != (1, 0) or member.compress_type != zipfile.ZIP_STORED:
                    raise ValueError(f"{path}: {member.filename} does not have the form that numpy.savez writes")
                shape, columns_first, dtype = npy.read_array_header_1_0(file)
                before = file.tell()
            member_bytes = content[member.header_offset :]
            start = _HEADER + sum(struct.unpack("<HH", member_bytes[_LENGTHS].tobytes()))
            flat = member_bytes[start + before : start + member.file_size].view(dtype)
            arrays[member.filename.removesuffix(".npy")] = flat.reshape(shape, order="F" if columns_first else "C")
    return arrays
