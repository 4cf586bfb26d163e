"""``lockstep bisect --package``: which release of a package made calls slower or wrong?"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from lockstep.commands.gate import Gate, compare
from lockstep.gate.bisect_releases import FirstBad, ReleaseSearch
from lockstep.gate.model import SeriesKey
from lockstep.gate.report.report import Report, headline
from lockstep.processes.exit_status import BAD_NEWS, BROKEN, OK
from lockstep.processes.toolchain.releases import releases
from lockstep.record.console import line_console
from lockstep.record.json_output import print_json

#: Options that are those of ``lockstep gate``.
_OPTIONS = ("script", "family", "case", "variant", "budget", "min_effect", "quick")


def add_package_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--package`` and the options of the gate that select and limit what is compared."""
    parser.add_argument(
        "--package",
        metavar="liger-kernel==0.5.0..0.6.4",
        help="in place of an alert: find the release that made calls slower or wrong; the options below go with it",
    )
    for action in _gate()._actions:
        if action.dest in _OPTIONS and action.dest != "quick":
            parser._add_action(action)


def _gate() -> argparse.ArgumentParser:
    """Return a parser of the gate's options."""
    parser = argparse.ArgumentParser(add_help=False)
    Gate.add_options(parser)
    return parser


def bisect_package(conf: Any, args: argparse.Namespace) -> int:
    """Search the releases of a range, print what was found, and return the exit status."""
    say = line_console(stderr=True).print

    def of(low: str, high: str, keys: Sequence[SeriesKey]) -> Report:
        asked = _gate().parse_args([])
        vars(asked).update({name: getattr(args, name) for name in _OPTIONS}, base=low, head=high)
        if keys:
            asked.case, asked.variant = (
                [*dict.fromkeys(names)] for names in zip(*((k.case, k.variant) for k in keys), strict=True)
            )
            asked.family = [] if args.script else [*dict.fromkeys(key.suite for key in keys)]
        return compare(conf, asked, say)

    search = ReleaseSearch(releases(args.package), of, say)
    ends = search.run()
    sentences = [_sentence(found) for found in search.found] or [headline(ends)]
    if args.json:
        releases_found = [found.release for found in search.found]
        print_json({"first_bad": releases_found, "found": search.found, "told": sentences})
    else:
        print("\n".join(sentences))
    return OK if search.found else BROKEN if ends.state in ("infrastructure", "interrupted") else BAD_NEWS


def _sentence(found: FirstBad) -> str:
    lines = [f"the first bad release is {found.release}, compared with {found.before}:"]
    for verdict in found.verdicts:
        change = f"{verdict.change.value:+.2%}" if verdict.change else ""
        told = filter(None, (verdict.outcome, change, verdict.reason, *verdict.code[:1]))
        lines.append(f"  {verdict.key}: {'; '.join(told)}")
    return "\n".join(lines)
