"""Options for the results, their repository and the store's cache. All verbs share these options."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asv.config import Config

from lockstep.commands.config import CONFIGS
from lockstep.history.asv_project import open_project, repository_of
from lockstep.processes.exit_status import UsageError
from lockstep.record.mirror import local

if TYPE_CHECKING:
    from lockstep.history.store import Store


def add_location_options(parser: argparse.ArgumentParser) -> None:
    """Add the options ``--results``, ``--repo`` and ``--cache``."""
    add_folder_options(parser)
    parser.add_argument("--cache", type=Path, help="folder for the store's cache (default: in the user's cache folder)")


def add_folder_options(parser: argparse.ArgumentParser) -> None:
    """Add the options ``--results`` and ``--repo``."""
    parser.add_argument(
        "--results",
        type=local,
        help="results folder, or its address, such as s3://bucket/results (default: results_dir of asv.conf.json, or "
        "./results)",
    )
    parser.add_argument(
        "--repo",
        type=Path,
        help="git repository with the order and subjects of the commits (default: the local repository that "
        "asv.conf.json names, else that of the results)",
    )


def results_folder(args: argparse.Namespace) -> Path:
    """Return the results folder: ``--results``, or the folder in asv.conf.json if that file exists, or ``results``."""
    if args.results:
        return Path(args.results)
    conf = load_config(args)
    return Path(conf.results_dir if conf else "results")


def check_locations(args: argparse.Namespace) -> None:
    """Check that the folders exist, so that a mistyped name does not look like results without changes.

    An existing results folder may be empty, before the first measurement.

    Raises:
        UsageError: the results folder, or the repository of ``--repo``, does not exist.
    """
    folder = results_folder(args)
    if not folder.is_dir():
        if args.results:
            raise UsageError(f"--results {folder}: there is no such folder")
        raise UsageError(
            f"there are no results: no folder {folder}. `lockstep run` creates it, --results names another. "
            "asv.conf.json is read from the current folder, or from the path of --config"
        )
    if args.repo and not args.repo.is_dir():
        raise UsageError(f"--repo {args.repo}: there is no such folder")


def load_config(args: argparse.Namespace) -> Any | None:
    """Load asv's configuration, from ``--config`` or the current folder; ``None`` if there is none.

    Keep it in ``args``: asv takes 16 ms to read it, and a verb asks for it six times.
    """
    if "configuration" not in args:
        has_config = args.config or any(Path(name).exists() for name in CONFIGS)
        args.configuration = Config.load(args.config) if has_config else None
    return args.configuration


def repository(args: argparse.Namespace) -> Path:
    """Return a folder in the commits' git repository: ``--repo``, else asv's local repository, else the results."""
    if args.repo:
        return Path(args.repo)
    return repository_of(_config_of_results(args), results_folder(args))


def _config_of_results(args: argparse.Namespace) -> Any | None:
    """Return asv's configuration, unless ``--results`` or ``--repo`` names a folder that it does not name."""
    conf = load_config(args)
    if conf is None or args.config:
        return conf
    chosen = [(args.results, conf.results_dir), (args.repo, conf.repo)]
    return None if any(given and given.resolve() != Path(own or "").resolve() for given, own in chosen) else conf


def open_store(args: argparse.Namespace) -> Store:
    """Open the store of the results that the command line names, without reading results.

    Raises:
        lockstep.history.store.StoreError: the cache folder is inside the results folder.
    """
    return open_project(_config_of_results(args), results_folder(args), repository(args), args.cache)
