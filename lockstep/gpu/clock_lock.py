"""Lock a GPU's clocks, verify under load that the lock holds, and reset the clocks however the process ends.

In ``with locked(gpu, 1500) as state:``, ``state.label`` is "locked@1500". If the lock failed, the label gives the
reason: "unlocked(no permission)". A lock outlives the process that set it, so a record is written before the lock is
set.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from lockstep.gpu.clock_verification import ClockState, Load, torch_load, verify
from lockstep.gpu.lock_file import ClocksHeld, LockRecord, read_record, record_path, remove_record
from lockstep.gpu.nvml import Gpu, Refused, Target
from lockstep.processes.trouble import reason_of

__all__ = ["ClockState", "ClocksHeld", "Load", "clock_state", "lock", "locked", "recorded_state", "reset"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def lock(gpu: Gpu, target: Target, *, load: Load | None = None) -> ClockState:
    """Lock the clocks until ``reset`` is called, even if this process ends. Undo a lock that does not hold.

    Args:
        target: MHz, or "base" for the rated clock.
        load: keeps this GPU busy; by default torch matrix products, if torch has CUDA.

    Returns:
        The resulting state: locked, or unlocked with a reason ("no permission", "not supported", "no such clock",
        "does not hold", "not verified").

    Raises:
        ClocksHeld: a living process holds a lock on this GPU.
        Refused: the driver refuses to undo this lock, or a lock that another process left behind.
        ValueError: the record of an earlier lock is damaged.
    """
    hold = _Hold(gpu, target, load)
    with _released_on_signals(hold):
        try:
            state = hold.take()
            if state.locked:
                hold.keep()
        finally:
            hold.release()
    return state


@contextmanager
def locked(gpu: Gpu, target: Target, *, load: Load | None = None) -> Iterator[ClockState]:
    """Lock the clocks during a block. The arguments, the state and the errors are the same as for ``lock``.

    The clocks are reset at the end of the block and on an exception. In the main thread, where Python runs signal
    handlers, they are also reset on SIGINT, SIGTERM and SIGHUP before the signal has its previous effect. If an earlier
    call of ``lock`` left the same clocks locked, this lock is verified, used and left in place. Other clocks, left
    locked by such a call, raise ``ClocksHeld``.
    """
    record = read_record(gpu.uuid)
    if record is not None and record.kept:
        if record.target != target:
            raise ClocksHeld(f"GPU {gpu.uuid} is {record.describe()}; run it, or request the same clocks")
        yield clock_state(gpu, load)
        return
    hold = _Hold(gpu, target, load)
    with _released_on_signals(hold):
        try:
            yield hold.take()
        finally:
            hold.release()


def reset(gpu: Gpu, *, force: bool = False) -> ClockState:
    """Unlock the SM clocks, even if another tool locked them.

    The persistence mode is restored if the recorded lock changed it. ``force``: reset even if the process that set the
    lock still runs.

    Returns:
        The state recorded before the reset, or unlocked if there was no readable record.

    Raises:
        ClocksHeld: the process that set the lock still runs, the lock is not meant to outlive it, and ``force`` is not
            set.
        Refused: the driver refused; the message gives the command that root must run.
    """
    try:
        record = read_record(gpu.uuid)
    except ValueError:
        record = None
    if record is not None and record.owner_alive and not record.kept and not force:
        raise ClocksHeld(f"GPU {gpu.uuid} is {record.describe()}; stop the process, or reset with --force")
    _undo(gpu, record)
    return _as_recorded(record)


def recorded_state(gpu: Gpu) -> ClockState:
    """Return the clock state from the lock's record, without putting load on the GPU.

    A lock that another tool set (nvidia-smi) counts as unlocked, because NVML does not report it.
    """
    return _as_recorded(read_record(gpu.uuid))


def clock_state(gpu: Gpu, load: Load | None = None) -> ClockState:
    """Return the recorded clock state after verifying it under load.

    If the lock does not hold, the state is unlocked and gives the reason.
    """
    state = recorded_state(gpu)
    return verify(gpu, state, load or torch_load(gpu)) if state.locked else state


class _Hold:
    """A clock lock that this process sets and must undo, unless ``keep`` lets it outlive the process."""

    def __init__(self, gpu: Gpu, target: Target, load: Load | None) -> None:
        self._gpu = gpu
        self._target: Target = target
        self._load = load
        self._record: LockRecord | None = None

    @property
    def held(self) -> bool:
        # A forked child inherits this object and the signal handlers, but only its parent holds the lock.
        return self._record is not None and self._record.pid == os.getpid()

    def take(self) -> ClockState:
        gpu, requested = self._gpu, ClockState(self._target)
        load = self._load or torch_load(gpu)
        if load is None:
            detail = f"no load to verify the lock: install torch with CUDA, or make GPU {gpu.uuid} visible to torch"
            return ClockState(reason="not verified", detail=detail)
        if problem := _no_such_clock(gpu, requested):
            return ClockState(reason="no such clock", detail=problem)
        # Reset a lock that a dead process or an earlier `lock` left. Refuse if the lock's owner still runs.
        if read_record(gpu.uuid) is not None:
            reset(gpu)
        try:
            self.set()
        except Refused as refused:
            return ClockState(reason=refused.reason, detail=str(refused))
        except OSError as error:
            detail = (
                f"cannot write {record_path(gpu.uuid)} ({reason_of(error)}); set XDG_STATE_HOME to a writable folder"
            )
            return ClockState(reason="no lock record", detail=detail)
        state = verify(gpu, requested, load)
        if not state.locked:
            self.release()
        return state

    def set(self) -> None:
        """Record the lock in its file, then lock the clocks. If the driver raises ``Refused``, no clock is locked."""
        gpu = self._gpu
        record = LockRecord.of_this_process(gpu.uuid, self._target, gpu.persistence())
        record.write()
        self._record = record
        try:
            gpu.lock_sm(self._target)
        except Refused:
            # Nothing is locked, and the driver would refuse a reset too.
            remove_record(gpu.uuid)
            self._record = None
            raise
        if record.persistence is False:
            # Persistence mode is optional: without it a lock lasts only while a client has the driver loaded.
            with suppress(Refused):
                gpu.set_persistence(True)

    def keep(self) -> None:
        if self._record is not None:
            self._record.keep()
            self._record = None

    def release(self) -> None:
        if self.held:
            _undo(self._gpu, self._record)
            self._record = None


@contextmanager
def _released_on_signals(hold: _Hold) -> Iterator[None]:
    """Reset the clocks before a signal takes effect, and lock them again if the previous handler returns."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, frame: FrameType | None) -> None:
        former = before[signal.Signals(number)]
        was_held = hold.held
        try:
            hold.release()
        finally:
            if callable(former):
                former(number, frame)
            else:
                signal.signal(number, signal.SIG_DFL)
                os.kill(os.getpid(), number)
        if was_held:
            hold.set()

    # Ignored signals (nohup) stay ignored. ``None`` is a handler that Python did not install and cannot restore.
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    before = {number: former for number, former in before.items() if former not in (signal.SIG_IGN, None)}
    for number in before:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)


def _as_recorded(record: LockRecord | None) -> ClockState:
    return ClockState() if record is None else ClockState(record.target, detail=record.describe())


def _undo(gpu: Gpu, record: LockRecord | None) -> None:
    gpu.reset_sm()
    if record is not None and record.persistence is False:
        # Persistence mode that stays on only costs idle power.
        with suppress(Refused):
            gpu.set_persistence(False)
    remove_record(gpu.uuid)


def _no_such_clock(gpu: Gpu, requested: ClockState) -> str:
    """Return why the requested clock cannot be set; "" if the driver lists the clock, or has no list."""
    clocks = gpu.sm_clocks()
    if clocks is None or requested.target == "base" or requested.target is None or requested.target in clocks:
        return ""
    target = requested.target
    nearest = sorted(sorted(clocks, key=lambda mhz: abs(mhz - target))[:2])
    return f"{target} MHz is not an SM clock of this GPU; nearest are {' and '.join(map(str, nearest))} MHz"
