"""Map the arrays of a file that ``numpy.savez`` wrote into memory, so that only used parts are read.

NumPy itself maps only files that hold a single array. An uncompressed archive holds such a file for each array, after a
header
(https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html).
"""

from __future__ import annotations

import mmap
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

#: Bytes of a member's header before the member's name, and where the header stores the lengths of name and extra field.
_HEADER, _LENGTHS = 30, slice(26, 30)


class MappedArrays(dict[str, NDArray[Any]]):
    """Arrays by name, which are parts of ``content``, a file that is mapped into memory."""

    def __init__(self, content: mmap.mmap) -> None:
        self.content = content

    def release(self) -> None:
        """Give back the memory of the parts that were read, and drop changes. Arrays are read again when used."""
        self.content.madvise(mmap.MADV_DONTNEED)


def mapped(path: Path) -> MappedArrays:
    """Return the arrays of the file by name, mapped into memory. Changes of the arrays do not reach the file.

    Args:
        path: the path of the file. Writers must replace the file and not change it in place, because the arrays show
            changes of the mapped file.

    Raises:
        OSError: the file does not exist or cannot be read.
        ValueError, zipfile.BadZipFile: the file is damaged or compressed.
    """
    with path.open("rb") as stream, zipfile.ZipFile(stream) as archive:
        arrays = MappedArrays(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_COPY))
        content = np.frombuffer(arrays.content, np.uint8)
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
