"""Option ``--shard`` of ``lockstep run``: measure one GPU's cases into a folder that no other process writes."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from asv.console import log

from lockstep.fleet.merge import begin_shard
from lockstep.fleet.shard import Shard
from lockstep.gpu.nvml import find_gpu
from lockstep.gpu.preflight import Preflight, preflight
from lockstep.processes.exit_status import Unusable, UsageError
from lockstep.processes.only_one import only_one
from lockstep.record.provenance import Host
from lockstep.suite.definition import Suite
from lockstep.timing.tuners.choices import NAME as TUNED


def add_shard_option(parser: argparse.ArgumentParser) -> None:
    """Add the option ``--shard``."""
    parser.add_argument(
        "--shard",
        metavar="I/N",
        help="measure only the cases of shard I of N, into a folder of its own (RESULTS-shards/I-of-N); I/UUID,UUID,… "
        "names the GPUs and takes the I-th. `lockstep merge` joins the folders",
    )


class ShardRun:
    """The settings of a run that measures a shard.

    Attributes:
        shard: the cases to measure.
        results: the folder of all results.
        folder: the folder that this run writes.
        tuned: file of the tuners' choices. All shards share it, so that a kernel runs alike on all GPUs.
        machine_file: asv's file about machines. Shards of one host would write one file in the user's home.
    """

    def __init__(self, conf: Any, args: argparse.Namespace, suites: Sequence[Suite]) -> None:
        """Turn asv's configuration and arguments to the shard's cases and folders, and choose its GPU.

        Raises:
            UsageError: the text names no shard, or another process measures the shard.
        """
        self.shard = Shard.parse(args.shard)
        self.results = Path(conf.results_dir).absolute()
        self.folder = self.shard.folder(self.results)
        self.tuned, self.machine_file = self.results / TUNED, str(self.folder / ".asv-machine.json")
        self.folder.mkdir(parents=True, exist_ok=True)
        # The folder ignores itself, because a run in a changed working tree records a harness that is not committed.
        (self.folder.parent / ".gitignore").write_text("*\n", encoding="utf-8")
        self._held = ExitStack()  # until this process ends
        if not self._held.enter_context(only_one(self.folder, wait=False)):
            raise UsageError(f"another process measures shard {self.shard}: {self.folder} is in use")
        if self.shard.uuid:
            os.environ["CUDA_VISIBLE_DEVICES"] = self.shard.uuid
        conf.results_dir = str(self.folder)
        conf.env_dir = str(Path(conf.env_dir) / self.shard.name)
        if args.bench != ["just-discover"]:
            args.bench = self.shard.patterns(suites, args.bench or ())
        # asv would skip a benchmark that has any number of the commit. The records tell which cases are missing.
        args.skip_existing = args.skip_existing_successful = False

    def begin(self, host: Host, machine: str) -> None:
        """Take over what the results hold of this GPU.

        Raises:
            UsageError: the GPU is not the one that the shard names.
            Unusable: another process runs on the GPU, or it has a fault.
        """
        uuid = host.facts.get("gpu_uuid", "")
        if self.shard.uuid and uuid != self.shard.uuid:
            raise UsageError(f"--shard names {self.shard.uuid}, but the GPU at hand is {uuid or 'none'}")
        gpu = find_gpu(uuid) if uuid else None
        found = preflight(gpu) if gpu is not None else Preflight()
        if found.faults:
            raise Unusable(f"GPU {uuid} cannot measure now: {'; '.join(found.faults)}")
        for mark in found.marks:
            log.warning(f"Marked: GPU {uuid}: {mark}")
        log.info(f"Shard {self.shard.place} of {len(self.shard.gpus)}, into {self.folder}")
        begin_shard(self.results, self.folder, machine, uuid)
