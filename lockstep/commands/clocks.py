"""``lockstep clocks status | lock [MHz|base] | reset``.

Exit codes: 0 done, 1 the driver refused or the lock does not hold, 3 no GPU, 4 wrong usage.
"""

from __future__ import annotations

import argparse

from asv.commands import Command, common_args

from lockstep.commands.verb import Verb
from lockstep.gpu.clock_lock import ClocksHeld, clock_state, lock, recorded_state, reset
from lockstep.gpu.lock_file import read_record
from lockstep.gpu.nvml import ClockSample, Gpu, NoGpu, Refused, Target, all_gpus
from lockstep.processes.exit_status import BAD_NEWS, BROKEN, OK, USAGE
from lockstep.record.console import line_console


class Clocks(Verb, Command):  # type: ignore[misc]  # asv has no types
    """Lock GPU clocks, verify and reset them.

    Exit codes: 0 done, 1 the driver refused or the lock does not hold, 3 no GPU, 4 wrong usage.
    """

    @classmethod
    def add_options(cls, parser: argparse.ArgumentParser) -> None:
        """Add the options of the verb to its parser."""
        actions = parser.add_subparsers(dest="action", required=True)

        status = actions.add_parser("status", help="Show clocks, temperature, power, and who locked the clocks")
        status.add_argument("--verify", action="store_true", help="check under load that a recorded clock lock holds")

        locking = actions.add_parser("lock", help="Lock the clocks until `lockstep clocks reset`; check under load")
        locking.add_argument("target", nargs="?", type=clock_target, default="base", metavar="MHz|base")

        resetting = actions.add_parser("reset", help="Unlock the clocks, even if the process that locked them died")
        resetting.add_argument("--force", action="store_true", help="unlock even if the locking process still runs")

        for action in (status, locking, resetting):
            action.add_argument(
                "--gpu", metavar="INDEX|UUID", help="GPU, as nvidia-smi -L lists it; required with several GPUs"
            )
            # asv accepts its own options (-v, --config) after the verb, so they are also accepted after the action.
            common_args.add_global_arguments(action)

    @classmethod
    def run_from_args(cls, args: argparse.Namespace) -> int:
        """Run without asv.conf.json: clocks belong to the machine, not to a project."""
        try:
            gpus = (Gpu.open(args.gpu),) if args.gpu else all_gpus()
            if args.action == "status":
                return _status(gpus, args)
            if len(gpus) > 1:
                return _fail(args, USAGE, f"choose one of the {len(gpus)} GPUs with --gpu; `nvidia-smi -L` lists them")
            return _lock(gpus[0], args) if args.action == "lock" else _reset(gpus[0], args)
        except NoGpu as error:
            return _fail(args, BROKEN, str(error))
        except (ClocksHeld, Refused, OSError, ValueError) as error:
            return _fail(args, BAD_NEWS, str(error))


def clock_target(text: str) -> Target:
    """Parse a clock from the command line: MHz or "base"."""
    if text == "base":
        return "base"
    if text.isdigit() and int(text) > 0:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is neither a number of MHz nor 'base'")


def _status(gpus: tuple[Gpu, ...], args: argparse.Namespace) -> int:
    code = OK
    for gpu in gpus:
        record = read_record(gpu.uuid)
        sample = gpu.sample()
        state = clock_state(gpu) if args.verify else recorded_state(gpu)
        if state.reason:
            code = BAD_NEWS
        lines = [
            f"GPU {gpu.index}  {gpu.name}  {gpu.uuid}",
            f"  driver {_or_unknown(gpu.driver)}, CUDA {_or_unknown(gpu.cuda_driver)}, "
            f"VBIOS {_or_unknown(gpu.vbios)}, power limit {_or_unknown(gpu.power_limit_w)} W",
            f"  clocks {state.label}" + (f": {state.detail}" if state.detail else ""),
            f"  now    {_line(sample)}",
        ]
        if record is not None and record.left_behind:
            lines.append(f"  `lockstep clocks reset --gpu {gpu.uuid}` removes this lock")
        _say("\n".join(lines))
    return code


def _lock(gpu: Gpu, args: argparse.Namespace) -> int:
    state = lock(gpu, args.target)
    _say(f"GPU {gpu.uuid}: {state.label}: {state.detail}")
    if not state.locked:
        return BAD_NEWS
    _say("It stays locked until `lockstep clocks reset`, a reboot or a reload of the driver.")
    return OK


def _reset(gpu: Gpu, args: argparse.Namespace) -> int:
    before = reset(gpu, force=args.force)
    _say(f"GPU {gpu.uuid}: unlocked; it was {before.detail or 'not locked by lockstep'}")
    return OK


def _line(sample: ClockSample) -> str:
    reasons = "reasons unknown" if sample.reasons is None else ", ".join(sample.reasons) or "nothing holds it back"
    return (
        f"SM {_or_unknown(sample.sm_mhz)} MHz, memory {_or_unknown(sample.memory_mhz)} MHz, "
        f"{_or_unknown(sample.temperature_c)} °C, {_or_unknown(sample.power_w)} W ({reasons})"
    )


def _or_unknown(value: object) -> str:
    return "?" if value is None else str(value)


def _say(text: str, stderr: bool = False) -> None:
    # Without markup, because labels contain brackets. Without wrapping, because users copy the sudoers line.
    line_console(stderr=stderr).print(text)


def _fail(args: argparse.Namespace, code: int, message: str) -> int:
    _say(f"lockstep clocks {args.action}: {message}", stderr=True)
    return code
