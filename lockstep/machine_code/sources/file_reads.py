"""Find whether a module's text may read files: of the packages, outside of them, or the texts of modules.

Whatever the text does not show counts as if it might be anything: a path that leads up in a loop may lead anywhere.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence

from lockstep.machine_code.sources.syntax_tree import word

#: Names by which code reads its own text; comments, docstrings and lines can then affect what it does.
TEXT_READERS = frozenset(
    {
        *("__doc__", "getdoc", "getsource", "getsourcelines", "getsourcefile", "findsource", "getcomments"),
        *("linecache", "get_docstring", "co_firstlineno", "co_lines", "co_positions", "f_lineno", "tb_lineno"),
        *("lineno", "tokenize", "currentframe", "getframeinfo", "cleandoc", "_getframe", "extract_stack", "docopt"),
        *("get_data", "getsize", "st_size", "st_mtime", "getmtime", "file_digest", "co_lnotab", "co_linetable"),
        *("extract_tb", "walk_tb", "format_exc", "format_tb", "format_stack", "format_exception"),
    }
)
#: Names by which code finds the paths of its files.
PLACES = frozenset(
    {"__file__", "__path__", "__spec__", "__loader__", "getfile", "getabsfile", "co_filename", "find_spec", "files"}
)
#: Functions that open a file or list a folder.
OPENERS = frozenset(
    {
        *("open", "read_text", "read_bytes", "iterdir", "listdir", "scandir", "glob", "rglob", "fromfile", "loadtxt"),
        *("genfromtxt", "memmap", "from_file", "load_file", "FileIO", "read_csv", "read_parquet", "CDLL"),
        *("LoadLibrary", "load_library", "walk", "isfile", "is_file", "exists", "isdir", "is_dir"),
    }
)
#: Functions that list a folder, so that code may read every file in it.
LISTERS = frozenset({"iterdir", "listdir", "scandir", "walk", "fwalk", "glob", "rglob", "iglob"})
#: Parts of a path, and functions of paths, after which code no longer holds the path of the file itself.
_FROM_FILE = frozenset({"parent", "parents", "with_name", "name", "stem", "dirname", "basename"})
#: Names by which a path may lead up any number of folders.
_ANY_CLIMB = frozenset({"pardir", "relpath", "commonpath"})
#: A text that may be the name of a file, relative to the working folder: "tables/h200.json".
_FILE_NAME = re.compile(
    r"(?:[\w.-]+/)*[\w.*-]*\.(?:json\w*|txt|[ct]sv|ya?ml|toml|ini|cfg|conf|bin|np[yz]|pth?|safetensors|pi?c?kle?|cuh?"
    r"|cubin|fatbin|ptx|hp?p?|c|cc|cpp|so|dat|parquet|xml|db|sqlite\d?|pkl)"
)


class FileReads:
    """The files that a module's text may read.

    Args:
        walk: the nodes of the module's syntax tree, each before its children.

    Attributes:
        places: ways to look up the path of a module's file; ``{"__file__"}`` if only that of the module itself.
        climbs: maximum number of folders that paths lead up, added together.
        sources: whether the module may read files of Python sources that its text does not name.
        text: whether the module may read the source text of a module: comments, docstrings or lines.
        opens: whether the module may open a file or list a folder.
        names_files: whether a string may be the name of a file, relative to the working folder.
    """

    def __init__(self, walk: Sequence[ast.AST]) -> None:
        self.places: set[str] = set()
        self.climbs: float = 0
        self.sources = self.text = self.opens = self.names_files = False
        self._walk = walk
        self._climbing: list[ast.AST] = []
        self._has_parts = False
        #: Nodes that name a function or a path in a form whose effect is known.
        self._known: set[int] = set()
        handlers: dict[type[ast.AST], Callable[..., None]] = {
            ast.alias: self._alias,
            ast.Call: self._call,
            ast.Subscript: self._subscript,
            ast.Attribute: self._attribute,
            ast.Name: self._name,
            ast.Constant: self._constant,
        }
        for node in walk:
            if handler := handlers.get(type(node)):
                handler(node)
        if (self._climbing and self._climbs_again()) or (self.places and self._has_parts):
            self.climbs = float("inf")

    def _alias(self, node: ast.alias) -> None:
        self.text |= node.name in TEXT_READERS
        if node.asname not in (None, node.name):
            self.sources |= node.name in LISTERS - {"glob"}  # glob is a module as well
            self.climbs = float("inf") if node.name == "dirname" else self.climbs

    def _call(self, node: ast.Call) -> None:
        called, owner = word(node.func), word(getattr(node.func, "value", node))
        self.opens |= called in OPENERS or (called == "load" and owner in ("np", "numpy", "torch"))
        if called in LISTERS and (owner == "ast" or _lists_no_source(node)):
            self._known.add(id(node.func))
        elif called == "dirname" and node.args:
            self._known.add(id(node.func))
            self._climb(node.args[0])
        elif called in ("split", "rsplit", "partition", "rpartition"):
            texts = [argument.value if isinstance(argument, ast.Constant) else word(argument) for argument in node.args]
            if owner == "path" or any(text == "sep" or (isinstance(text, str) and "/" in text) for text in texts):
                self.climbs = float("inf")
        if called in _FROM_FILE and node.args:
            self._known.add(id(_start(node.args[0])))

    def _subscript(self, node: ast.Subscript) -> None:
        owner = node.value
        if isinstance(owner, ast.Attribute) and owner.attr == "parents":
            self._known.add(id(owner))
            steps = node.slice.value if isinstance(node.slice, ast.Constant) else None
            self._climb(owner.value, steps + 1 if isinstance(steps, int) and steps >= 0 else float("inf"))
        elif word(owner) == "__file__" or (isinstance(owner, ast.Attribute) and owner.attr == "parts"):
            self.climbs = float("inf")

    def _attribute(self, node: ast.Attribute) -> None:
        if node.attr in _FROM_FILE:
            self._known.add(id(_start(node.value)))
        self._mention(node, node.attr)
        owner = word(node.value)
        self.text |= owner == "inspect" and node.attr in ("stack", "trace")
        self._has_parts |= node.attr == "parts"
        if node.attr == "parent":
            self._climb(node.value)
        elif owner == "__file__" or (node.attr == "parents" and id(node) not in self._known):
            self.climbs = float("inf")  # without a number the path may lead up to the root

    def _name(self, node: ast.Name) -> None:
        self._mention(node, node.id)

    def _mention(self, node: ast.AST, name: str) -> None:
        is_known = id(node) in self._known
        self.text |= name in TEXT_READERS or (name == "__file__" and not is_known)
        self.sources |= name in LISTERS and not is_known
        if name in PLACES:
            self.places.add(name if isinstance(node, ast.Name) else f".{name}")
        if name in _ANY_CLIMB or (name == "dirname" and not is_known):
            self.climbs = float("inf")

    def _constant(self, node: ast.Constant) -> None:
        text = node.value
        if isinstance(text, str):
            self.sources |= text.endswith((".py", ".py*")) and " " not in text
            self.text |= text in TEXT_READERS
            self.climbs += text.split("/").count("..")
            self.names_files |= _FILE_NAME.fullmatch(text) is not None

    def _climb(self, path: ast.AST, steps: float = 1) -> None:
        self.climbs += steps
        self._climbing.append(path)

    def _climbs_again(self) -> bool:
        """Return whether a path may lead up more often than the text shows: in a loop, or from an argument."""
        arguments = {node.arg for node in self._walk if isinstance(node, ast.arg)}
        repeated = {id(part) for node in self._walk for again in _repeated(node) for part in ast.walk(again)}
        return any(id(path) in repeated or word(_start(path)) in arguments for path in self._climbing)


def _start(node: ast.AST) -> ast.AST:
    """Return the name or attribute that a path starts from: ``__file__`` for ``Path(__file__).resolve().parent``."""
    while True:
        match node:
            case ast.Call(func=ast.Attribute(value=value), args=[]):
                node = value
            case ast.Call(args=[argument, *_]):
                node = argument
            case ast.Attribute(value=value, attr=name) if name != "__file__":
                node = value
            case ast.Subscript(value=value):
                node = value
            case _:
                return node


def _repeated(node: ast.AST) -> list[ast.AST]:
    """Return the parts of a loop or a comprehension that may run more than once."""
    match node:
        case ast.For(body=body) | ast.AsyncFor(body=body):
            return [*body]
        case ast.While(test=test, body=body):
            return [test, *body]
        case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            first, *others = node.generators
            results = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
            return [*results, *first.ifs, *others]
    return []


def _lists_no_source(node: ast.Call) -> bool:
    """Return whether a call lists only files of a type that is not Python's: ``folder.glob("*.json")``."""
    match node.args:
        case [ast.Constant(value=str(pattern))]:
            return re.search(r"\.(?!py)\w+$", pattern) is not None
    return False
