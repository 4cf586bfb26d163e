"""What a table of statuses or of differences says of each series, one after another."""

from types import SimpleNamespace

import numpy as np

from lockstep.compare.verdict import LOUDEST


def each(table):
    """A namespace for each series: its row, and the table's columns; ``None`` for unknown numbers."""
    differences = getattr(table, "differences", table)
    columns = {
        name: column.tolist()
        for part in (differences, table)
        for name, column in vars(part).items()
        if isinstance(column, np.ndarray)
    }
    columns["percent"] = (100 * np.expm1(differences.of_number(differences.worse))).tolist()
    columns["verdict"] = [LOUDEST[code] for code in columns["verdict"]]
    for place, values in enumerate(zip(*columns.values(), strict=True)):
        known = (None if value != value else value for value in values)
        yield SimpleNamespace(row=table.rows[place], **dict(zip(columns, known, strict=True)))
