"""Where a verb finds results, their repository and the store's cache: the same options for all of them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asv.config import Config

from lockstep.commands.cli import UsageError
from lockstep.commands.config import CONFIGS

if TYPE_CHECKING:
    from lockstep.history.store import Store


def add_location_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--results``, ``--repo`` and ``--cache``."""
    parser.add_argument(
        "--results", type=Path, help="results folder (default: results_dir of asv.conf.json, or ./results)"
    )
    parser.add_argument(
        "--repo",
        type=Path,
        help="git repository that tells commits' order and subjects (default: around the results)",
    )
    parser.add_argument("--cache", type=Path, help="folder for the store's cache (default: in the user's cache folder)")


def results_folder(args: argparse.Namespace) -> Path:
    """The results folder; an asv.conf.json is used where there is one and not needed where there is none."""
    if args.results:
        return Path(args.results)
    conf = load_config(args)
    return Path(conf.results_dir if conf else "results")


def check_locations(args: argparse.Namespace) -> None:
    """Raise where there is nothing to read: a name that is mistyped must not pass for results without changes.

    A results folder that exists may be empty: nothing has been measured yet.

    Raises:
        UsageError: the results folder, or the repository that was named, does not exist.
    """
    folder = results_folder(args)
    if not folder.is_dir():
        if args.results:
            raise UsageError(f"--results {folder}: there is no such folder")
        raise UsageError(
            f"there are no results: no folder {folder}. `lockstep run` makes it, --results names another, and "
            "asv.conf.json is read in the current folder or where --config says"
        )
    if args.repo and not args.repo.is_dir():
        raise UsageError(f"--repo {args.repo}: there is no such folder")


def load_config(args: argparse.Namespace) -> Any | None:
    """asv's configuration; ``None`` where there is none."""
    there = args.config or any(Path(name).exists() for name in CONFIGS)
    return Config.load(args.config) if there else None


def open_store(args: argparse.Namespace) -> Store:
    """The store of these places; nothing is read yet.

    Raises:
        lockstep.history.store.StoreError: the cache would lie among the results.
    """
    from lockstep.history.store import Store  # takes half a second

    return Store.open(results_folder(args), args.repo, args.cache)
