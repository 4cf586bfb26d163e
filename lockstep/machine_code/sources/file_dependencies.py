"""Find what the text of one module shows: its imports, the files it may read, and whether it reads its own text.

A module is parsed once in a process, however many families depend on it.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from lockstep.machine_code.sources.file_reads import FileReads
from lockstep.machine_code.sources.imported_modules import ImportedModules
from lockstep.machine_code.sources.syntax_tree import nodes, parsed


@dataclass(frozen=True)
class Facts:
    """Facts that the text of a module shows.

    Attributes:
        imports: dotted names that may be modules.
        any_import: whether the module may import modules, or read their texts, that its own text does not name.
        placed: whether the module may look up the path of a module's file, as by ``__file__``.
        climbs: maximum number of folders that the module's paths lead up (``..``, ``parent``), added together.
        depth: number of folders that paths of the module may lead up without leaving its top-level package; 0 if the
            module looks up the path of another module, or of none.
        changes_path: whether the module uses ``sys.path``, so that imports may come from other folders.
        reads_text: whether the module may read the source text of a module: comments, docstrings or lines.
        opens: whether the module may open a file or list a folder.
        names_files: whether a string in the module may be the name of a file, relative to the working folder.
    """

    imports: frozenset[str] = frozenset()
    any_import: bool = False
    placed: bool = False
    climbs: float = 0
    depth: int = 0
    changes_path: bool = False
    reads_text: bool = False
    opens: bool = False
    names_files: bool = False


@functools.lru_cache(maxsize=8192)
def facts(text: bytes, module: str, is_package: bool) -> Facts:
    """Return what the text of a module shows: its imports, and the files that it may read.

    Args:
        module: dotted name of the module.
        is_package: whether the file is a package's ``__init__``; relative imports then start at the package.

    Returns:
        The facts; empty for a text that is not Python, because it cannot be imported.
    """
    tree = parsed(text)
    if tree is None:
        return Facts()
    walk = list(nodes(tree))
    imported, reads = ImportedModules(walk, module, is_package), FileReads(walk)
    return Facts(
        imports=frozenset(imported.names),
        any_import=imported.hidden or reads.sources,
        placed=bool(reads.places),
        climbs=reads.climbs,
        depth=module.count(".") + is_package if reads.places == {"__file__"} else 0,
        changes_path=imported.changes_path,
        reads_text=reads.text or reads.sources,
        opens=reads.opens,
        names_files=reads.names_files,
    )
