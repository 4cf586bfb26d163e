"""Tables of tuned configurations, one file per GPU, read once at first use.

``kernels/<family>/tables/<gpu>.toml`` begins with the source of its numbers. Then each choice of the family has rows. A
row has a condition, and the configuration to use if the condition holds::

    split_k = [ { where = "M<=16", use = { m = 16, n = 64, k = 128, num_warps = 4, num_stages = 6 } }, { use = { m = 64,
    n = 32, k = 128, num_warps = 4, num_stages = 6 } }, ]

The first row whose condition holds is used. A GPU without a table uses the table of ``DEFAULT``, and every result says
so (``Table.note``). ``lockstep tune`` writes rows. Measuring never tunes.
"""

from __future__ import annotations

import functools
import operator
import os
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import torch

#: GPU whose table serves GPUs without one, and compiling without a GPU.
DEFAULT = "NVIDIA H200"

#: GPU for which code is traced and compiled on a machine without a GPU. The tracing process sets the variable.
TRACED = os.environ.get("LOCKSTEP_KERNEL_GPU", DEFAULT)

#: Folder whose subfolders, one per family, each have a folder ``tables``.
FAMILIES = Path(__file__).resolve().parents[1]

#: Functions to call after a table was written.
ON_CHANGE: list[Callable[[], None]] = []

T = TypeVar("T")
Backend = TypeVar("Backend")

_COMPARE: dict[str, Callable[[int, int], bool]] = {"=": operator.eq, "<=": operator.le, ">=": operator.ge}
_CONDITION = re.compile(r"(\w+)(<=|>=|=)(\d+)")


class TableError(ValueError):
    """A table cannot be read, or no row fits. The message names the file, the choice and the mistake."""


class SearchSpace(NamedTuple):
    """The configurations of one choice that `lockstep tune` tries at one case, and the case's sizes."""

    choice: str
    sizes: Mapping[str, int]
    configs: Sequence[Any]


@dataclass(frozen=True)
class Row:
    """One row of a table: ``use`` is the configuration if every condition (size, comparison, bound) holds."""

    where: tuple[tuple[str, str, int], ...]
    use: Any

    @property
    def form(self) -> tuple[tuple[str, str], ...]:
        """Size and comparison of each condition, without the bound; equal for all tuned rows of a choice."""
        return tuple((name, compare) for name, compare, _ in self.where)

    def fits(self, sizes: Mapping[str, int]) -> bool:
        """Return whether every condition holds for these sizes."""
        return all(_COMPARE[compare](sizes[name], bound) for name, compare, bound in self.where)


class Choice(Generic[T]):
    """One choice of a family that its tables decide, such as a tile; ``Table.choice`` describes the arguments.

    Attributes:
        ask: function of (device, size, …) that returns the configuration to use, or None if no row fits.
        demand: ``ask``, except that ``demand`` raises TableError if no row fits.
    """

    def __init__(self, table: Table, name: str, kind: Callable[..., T], sizes: str, upto: str, derived: str) -> None:
        self.table, self.name, self.kind = table, name, kind
        self.sizes, self.upto, self.derived = sizes.split(), upto.split(), derived.split()
        self.ask = functools.lru_cache(maxsize=4096)(self._look_up)
        self.demand = functools.lru_cache(maxsize=4096)(self._insist)

    def _insist(self, device: torch.device, *values: int) -> T:
        configuration = self._look_up(device, *values)
        if configuration is None:
            named = ", ".join(f"{name}={value}" for name, value in zip(self.sizes, values, strict=True))
            raise TableError(f"{self.table.path(gpu_name(device))}: {self.name} has no row for {named}; add a row")
        return configuration

    def _look_up(self, device: torch.device, *values: int) -> T | None:
        path = self.table.path(gpu_name(device))
        return self.applied(path, self.table.rows(path), dict(zip(self.sizes, values, strict=True)))

    def applied(self, path: Path, rows: Mapping[str, Sequence[Row]], sizes: Mapping[str, int]) -> T | None:
        """Return the configuration of the first row that fits; None if no row fits.

        Raises:
            TableError: a row, read from ``path``, has a condition on another size or does not fit ``kind``.
        """
        try:
            row = next((row for row in rows.get(self.name, ()) if row.fits(sizes)), None)
            if row is None:
                return None
            return self.kind(**row.use) if isinstance(row.use, dict) else self.kind(row.use)
        except (KeyError, TypeError) as error:
            raise TableError(f"{path}, {self.name}: {error} in a row; sizes are {', '.join(self.sizes)}") from error

    def row(self, sizes: Mapping[str, int], config: Any) -> Row:
        """Return a row that applies ``config`` at these sizes."""
        # Exact conditions come first, because rows sort by them, and then by ascending bounds.
        left_out = {*self.upto, *self.derived}
        exact = [(name, "=", int(sizes[name])) for name in self.sizes if name in sizes and name not in left_out]
        bounds = [(name, "<=", int(sizes[name])) for name in self.upto if name in sizes]
        return Row((*exact, *bounds), config._asdict() if hasattr(config, "_asdict") else config)


class Table:
    """The configurations of one family of kernels: a TOML file for each GPU, with rows for each choice."""

    def __init__(self, family: str, families: Path = FAMILIES) -> None:
        self.folder = families / family / "tables"
        self.choices: dict[str, Choice[Any]] = {}

    def choice(
        self, name: str, kind: Callable[..., T], sizes: str, upto: str = "", derived: str = ""
    ) -> Callable[..., T]:
        """Define a choice. Return a function of (device, size, …) that returns the configuration to use.

        The function caches its results. It raises TableError if the table has a mistake, or no row for the sizes.

        Args:
            name: the name of the choice in the table.
            kind: the type of a configuration: a named tuple, or ``str`` for the name of a variant.
            sizes: the names of the sizes that conditions may use, in the order of the function's arguments.
            upto: the sizes for which a tuned row also serves all smaller values; the others must match exactly.
            derived: the sizes that follow from the others, on which a tuned row has no condition.
        """
        return self._add(Choice(self, name, kind, sizes, upto, derived)).demand

    def maybe(
        self, name: str, kind: Callable[..., T], sizes: str, upto: str = "", derived: str = ""
    ) -> Callable[..., T | None]:
        """Define a choice as ``choice`` does, except that the function returns None if no row fits."""
        return self._add(Choice(self, name, kind, sizes, upto, derived)).ask

    def _add(self, choice: Choice[T]) -> Choice[T]:
        self.choices[choice.name] = choice
        return choice

    def path(self, gpu: str) -> Path:
        """Return the table's file for a GPU: the GPU's own, or that of ``DEFAULT`` if the GPU has none."""
        gpu_table = self.folder / f"{slug(gpu)}.toml"
        return gpu_table if gpu_table.is_file() else self.folder / f"{slug(DEFAULT)}.toml"

    def note(self) -> str:
        """Return a note for results if this machine's GPU has no table of its own; "" if the GPU has one."""
        gpu = gpu_name(torch.device("cuda")) if torch.cuda.is_available() else DEFAULT
        if (self.folder / f"{slug(gpu)}.toml").is_file():
            return ""
        return f"no table for {gpu}: tiles and dispatch are those of an {DEFAULT}"

    def rows(self, path: Path) -> dict[str, list[Row]]:
        """Return the rows of a table's file by choice; no rows if the file does not exist.

        Raises:
            TableError: the file is not TOML, or a condition cannot be read.
        """
        _, rows = _read(path)
        return rows

    def applied(self, gpu: str, name: str, sizes: Mapping[str, int]) -> Any:
        """Return the configuration that the choice ``name`` applies on ``gpu`` at these sizes; None if no row fits.

        Raises:
            TableError: the table has a mistake, or a row has a condition on a size that is not given.
        """
        path = self.path(gpu)
        return self.choices[name].applied(path, self.rows(path), sizes)

    def save(
        self, gpu: str, header: Mapping[str, str | int], tuned: Sequence[tuple[str, Mapping[str, int], Any]]
    ) -> Path | None:
        """Write tuned rows into the table of ``gpu``, before other rows. A new table starts as a copy of the default.

        A tuned row also serves smaller sizes. When this method returns, the table applies each given configuration at
        its sizes. A configuration that the table applies anyway adds no row.

        Args:
            header: the fields for the head of the file: date, toolchain, protocol, source. The source is added to that
                of the other rows.
            tuned: the (choice, sizes, configuration) that were tuned, and those that must stay as they are.

        Returns:
            The path of the written file; None if no row is new.
        """
        path = self.path(gpu)
        head, known = _read(path)
        rows = dict(known)
        # The largest sizes first: their rows also serve smaller sizes, which then get rows of their own.
        for name, sizes, config in sorted(tuned, key=self._bounds, reverse=True):
            choice = self.choices[name]
            if choice.applied(path, rows, sizes) == config:
                continue
            new = choice.row(sizes, config)
            remaining = [row for row in rows.get(name, []) if row.where != new.where]
            of_tuning = sorted([new, *(row for row in remaining if row.form == new.form)], key=lambda row: row.where)
            # Rows written by hand keep their order.
            rows[name] = [*of_tuning, *(row for row in remaining if row.form != new.form)]
        if rows == known:
            return None
        target = self.folder / f"{slug(gpu)}.toml"
        sources = _sources(head, gpu, str(header.get("source", "")), list(dict.fromkeys(name for name, _, _ in tuned)))
        # Whoever reads, or interrupts, meets a whole table.
        beside = target.with_suffix(".new")
        beside.write_text(_write({**head, "gpu": gpu, **header, **sources}, rows), encoding="utf-8")
        beside.replace(target)
        _read.cache_clear()
        for choice in self.choices.values():
            choice.ask.cache_clear()
            choice.demand.cache_clear()
        for changed in ON_CHANGE:
            changed()
        return target

    def _bounds(self, tuned: tuple[str, Mapping[str, int], Any]) -> list[int]:
        name, sizes, _ = tuned
        return [sizes[size] for size in self.choices[name].upto if size in sizes]


def _sources(head: Mapping[str, Any], gpu: str, new: str, names: Sequence[str]) -> dict[str, str]:
    """Return the field ``source`` for a table with this head that gets rows for the choices ``names`` from ``new``."""
    same = head.get("gpu", gpu) == gpu
    former = str(head.get("source", "")) if same else f"rows of the {head['gpu']}"
    added = f"{new}: {', '.join(names)}" if new else ""
    parts = [former, "" if added in former.split("; ") else added]
    return {"source": "; ".join(filter(None, parts))} if any(parts) else {}


@functools.cache
def gpu_name(device: torch.device) -> str:
    """Return the name of a CUDA device, ``TRACED`` for "meta", or ``DEFAULT`` for a CPU."""
    if device.type == "meta":
        return TRACED
    return torch.cuda.get_device_name(device) if device.type == "cuda" else DEFAULT


def slug(gpu: str) -> str:
    """Return a GPU's name as the tables' file names have it, such as ``nvidia-h200`` for ``NVIDIA H200``."""
    return re.sub(r"[^a-z0-9]+", "-", gpu.lower()).strip("-")


@functools.cache
def _read(path: Path) -> tuple[dict[str, Any], dict[str, list[Row]]]:
    """Return (head, rows by choice) of a table; the head and the rows are empty if the file does not exist."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        rows = {
            name: [Row(_conditions(row.get("where", "")), row["use"]) for row in listed]
            for name, listed in content.items()
            if isinstance(listed, list)
        }
    except (ValueError, KeyError, AttributeError) as error:
        raise TableError(f"{path} cannot be read: {type(error).__name__}: {error}") from error
    return {name: value for name, value in content.items() if not isinstance(value, list)}, rows


def first_that_can(backends: Sequence[Backend], compute: Callable[[Backend], T]) -> T:
    """Return the result of the first backend without NotImplementedError. If all raise it, raise the last error."""
    for backend in backends[:-1]:
        with suppress(NotImplementedError):
            return compute(backend)
    return compute(backends[-1])


def _conditions(text: str) -> tuple[tuple[str, str, int], ...]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    matches = [_CONDITION.fullmatch(part) for part in parts]
    if None in matches:
        raise ValueError(f'where = "{text}" must be like "M<=16, K=4096"')
    return tuple((match[1], match[2], int(match[3])) for match in matches if match)


def _write(head: Mapping[str, Any], rows: Mapping[str, Sequence[Row]]) -> str:
    lines = [f"{name} = {_literal(value)}" for name, value in head.items()]
    for name, listed in rows.items():
        lines += ["", f"{_key(name)} = ["]
        for row in listed:
            condition = ", ".join(f"{size}{compare}{bound}" for size, compare, bound in row.where)
            entry = {**({"where": condition} if condition else {}), "use": row.use}
            lines.append(f"    {_literal(entry)},")
        lines.append("]")
    return "\n".join(lines) + "\n"


def _literal(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_key(name)} = {_literal(part)}" for name, part in value.items()) + " }"
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)


def _key(name: str) -> str:
    return name if re.fullmatch(r"\w+", name) else f'"{name}"'
