"""``lockstep ingest``: read new results into the store."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from asv.commands import Command

from lockstep.commands.results_options import add_location_options, check_locations, open_store
from lockstep.commands.verb import Verb
from lockstep.processes.exit_status import BAD_NEWS, OK
from lockstep.record.console import line_console, plain_table, wide_console
from lockstep.record.json_output import print_json

if TYPE_CHECKING:
    from lockstep.history.snapshot import Results
    from lockstep.history.store import Refreshed


class Ingest(Verb, Command):  # type: ignore[misc]  # asv has no types
    """Read new results into the store.

    Read new and changed result files into the store that the dashboard and the other verbs use (they also update it
    themselves), and report every problem in these files. Exit status: 1 if something could not be read, 3 if the store
    cannot be used, 4 wrong usage.
    """

    @classmethod
    def add_options(cls, parser: argparse.ArgumentParser) -> None:
        """Add the options of the verb to its parser."""
        add_location_options(parser)
        parser.add_argument("--json", action="store_true", help="print what was read, and the problems, as JSON")

    @classmethod
    def run_from_args(cls, args: argparse.Namespace) -> int:
        """Read new results into the store, report them and every problem, and return the exit status."""
        from lockstep.history.problem_tally import problem_json, tally

        check_locations(args)
        store = open_store(args)
        done = store.refresh()
        results = store.current()
        if args.json:
            content = asdict(done) | {"results": str(store.root), "cache": str(store.cache)}
            content |= {"machines": _machines(results), "counts": tally(results).as_json()}
            content |= {"line": results.line_note}
            content |= {
                "problems": list(map(problem_json, results.problems)),
                "notes": list(map(problem_json, results.notes)),
            }
            print_json(content)
        else:
            _print(results, done)
        return BAD_NEWS if results.problems else OK


def _machines(results: Results) -> list[dict[str, Any]]:
    return [
        {
            "machine": machine.name,
            "commits": len(results.commits(machine.name)),
            "apart": len(results.apart(machine.name)),
            "series": len(results.series(machine=machine.name)),
            "newest": datetime.fromtimestamp(machine.last_date / 1000, UTC).date().isoformat(),
            "clocks": machine.clock_state,
        }
        for machine in results.machines.values()
    ]


def _print(results: Results, done: Refreshed) -> None:
    from lockstep.history.problem_tally import tally

    read = f"{done.changed} of {done.files} files read, {done.points} numbers, in {done.seconds:.2f} s"
    line_console().print(read + (f"; {done.gone} gone" if done.gone else ""))
    if results.machines:
        table = plain_table(("machine",), ("commits", "apart", "series"), ("newest", "clocks"))
        for machine in _machines(results):
            table.add_row(*map(str, machine.values()))
        wide_console().print(table)
    counted, lines = tally(results), [results.line_note] if results.line_note else []
    for reason, count in counted.notes:
        lines.append(f"{'1 note' if count == 1 else f'{count:,} notes'}: {reason} (read; --json lists them)")
    lines += [*counted.sentences(advice=""), *(f"{problem.path}: {problem.what}" for problem in results.problems)]
    for line in lines:
        line_console().print(line)
