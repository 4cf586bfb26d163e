"""Check names before asv's ``show``. For an unknown name asv prints an empty list, with status 0."""

from __future__ import annotations

import argparse

from asv.benchmarks import Benchmarks
from asv.commands.show import Show
from asv.config import Config
from asv.machine import iter_machine_files
from asv.repo import NoSuchNameError, get_repo
from asv.results import iter_results_for_machine_and_hash
from asv.util import UserError, load_json


def expect_results(arguments: argparse.Namespace) -> None:
    """Raise if ``show`` is called with a commit without results, or with benchmarks that do not exist.

    Raises:
        UserError: the name does not exist; the message quotes the name.
    """
    if getattr(arguments.func, "__self__", None) is not Show:
        return
    conf = Config.load(arguments.config)
    machines = [load_json(path)["machine"] for path in iter_machine_files(conf.results_dir)]
    if not machines or (arguments.machine or machines[0]) not in machines:
        return  # asv reports unknown names here itself
    if arguments.bench and not Benchmarks.load(conf, regex=arguments.bench):
        raise UserError(
            f"no benchmark of the results matches {' '.join(arguments.bench)}; leave out --bench to show all"
        )
    if not arguments.commit:
        return
    try:
        commit = get_repo(conf).get_hash_from_name(arguments.commit)
    except NoSuchNameError:
        commit = arguments.commit  # the beginning of a hash that this clone does not know
    for machine in [arguments.machine] if arguments.machine else machines:
        if any(True for _ in iter_results_for_machine_and_hash(conf.results_dir, machine, commit)):
            return
    raise UserError(f"there are no results of {arguments.commit}; lockstep show lists the commits that have some")
