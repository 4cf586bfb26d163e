"""NVIDIA's management library (NVML): identity of a GPU, its current clocks, and clock locks.

Only NVML names that remain in CUDA 14 are used. A read that the driver refuses returns ``None``; a change that the
driver refuses raises ``Refused``. This module never resets a GPU and never changes MIG or power limits.

Source for the meaning of each call: NVML API reference, "Device Commands" and "Device Queries".
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import pynvml

#: The clock to lock: a number of MHz, or the rated (TDP) clock.
Target = int | Literal["base"]

#: Names for the bits of nvmlDeviceGetCurrentClocksEventReasons. Every page uses these names.
REASONS = {
    pynvml.nvmlClocksEventReasonGpuIdle: "idle",
    pynvml.nvmlClocksEventReasonApplicationsClocksSetting: "applications setting",
    pynvml.nvmlClocksEventReasonSwPowerCap: "power cap",
    pynvml.nvmlClocksEventReasonHwSlowdown: "hardware slowdown",
    pynvml.nvmlClocksEventReasonSyncBoost: "sync boost",
    pynvml.nvmlClocksEventReasonSwThermalSlowdown: "thermal",
    pynvml.nvmlClocksEventReasonHwThermalSlowdown: "hardware thermal",
    pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown: "power brake",
    pynvml.nvmlClocksEventReasonDisplayClockSetting: "display setting",
}

#: Reasons that lower the clock of a running kernel. The other reasons are settings, or an idle GPU.
THROTTLING = frozenset({"power cap", "hardware slowdown", "thermal", "hardware thermal", "power brake"})

_REFUSALS = {
    pynvml.NVML_ERROR_NO_PERMISSION: "no permission",
    pynvml.NVML_ERROR_NOT_SUPPORTED: "not supported",
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: "driver too old",
    pynvml.NVML_ERROR_INVALID_ARGUMENT: "no such clock",
}

_T = TypeVar("_T")


class NoGpu(RuntimeError):
    """The NVIDIA driver, every GPU, or the named GPU is missing. The message says which."""


class Refused(RuntimeError):
    """The driver refused a change. ``reason`` is short enough for a label, for example "no permission"."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True)
class ClockSample:
    """One reading of a GPU's clocks, temperature and power. A value is ``None`` if the driver does not report it.

    ``reasons``: why the clock is not higher, in the words of ``REASONS``.
    """

    sm_mhz: int | None
    memory_mhz: int | None
    temperature_c: int | None
    power_w: float | None
    reasons: tuple[str, ...] | None


@dataclass(frozen=True)
class Health:
    """What may disturb a measurement. A value that the driver does not report is () or ``None``.

    Attributes:
        processes: ids of the processes with a CUDA context on the GPU.
        uncorrected: uncorrected errors of the memory (ECC) since the driver was loaded.
        remap_pending: whether a faulty row of the memory is replaced at the next reset.
        margin_c: °C to the temperature at which the GPU lowers its clock.
    """

    processes: tuple[int, ...]
    uncorrected: int | None
    remap_pending: bool | None
    margin_c: int | None


@dataclass(frozen=True)
class Gpu:
    """A GPU, of which NVML reads and locks the clocks.

    ``index`` is NVML's index (PCI order), which CUDA_VISIBLE_DEVICES does not change.
    """

    index: int | None
    uuid: str
    name: str | None
    driver: str | None
    cuda_driver: str | None
    vbios: str | None
    power_limit_w: float | None
    _handle: Any = field(repr=False, compare=False)

    @classmethod
    def open(cls, which: int | str = 0) -> Gpu:
        """Open a GPU by NVML index (3 or "3"), by NVML's UUID, or by torch's UUID, which lacks the prefix "GPU-".

        Torch's UUID is ``str(torch.cuda.get_device_properties(device).uuid)``. Raise ``NoGpu`` if there is no driver,
        or no such GPU.
        """
        count = _start()
        try:
            if isinstance(which, int) or which.isdigit():
                handle = pynvml.nvmlDeviceGetHandleByIndex(int(which))
            else:
                uuid = which if which.startswith(("GPU-", "MIG-")) else f"GPU-{which}"
                handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        except pynvml.NVMLError as error:
            raise NoGpu(f"no GPU {which!r} among the {count} of this machine ({error}); see `nvidia-smi -L`") from error
        index = _ask(pynvml.nvmlDeviceGetIndex, handle)
        version = _ask(pynvml.nvmlSystemGetCudaDriverVersion_v2)
        limit_mw = _ask(pynvml.nvmlDeviceGetEnforcedPowerLimit, handle)
        return cls(
            index=index,
            # A GPU without a UUID still needs a file name of its own for its lock.
            uuid=_ask(pynvml.nvmlDeviceGetUUID, handle) or f"unnamed-{which}",
            name=_ask(pynvml.nvmlDeviceGetName, handle),
            driver=_ask(pynvml.nvmlSystemGetDriverVersion),
            # NVML encodes 13.2 as 13020.
            cuda_driver=None if version is None else f"{version // 1000}.{version % 1000 // 10}",
            vbios=_ask(pynvml.nvmlDeviceGetVbiosVersion, handle),
            power_limit_w=None if limit_mw is None else limit_mw / 1000,
            _handle=handle,
        )

    def sample(self) -> ClockSample:
        """Read clocks, temperature, power and clock-event reasons now (about a millisecond).

        An idle GPU reads a low clock even when it is locked.
        """
        power_mw = _ask(pynvml.nvmlDeviceGetPowerUsage, self._handle)
        bits = _ask(pynvml.nvmlDeviceGetCurrentClocksEventReasons, self._handle)
        return ClockSample(
            sm_mhz=_ask(pynvml.nvmlDeviceGetClockInfo, self._handle, pynvml.NVML_CLOCK_SM),
            memory_mhz=_ask(pynvml.nvmlDeviceGetClockInfo, self._handle, pynvml.NVML_CLOCK_MEM),
            temperature_c=_ask(pynvml.nvmlDeviceGetTemperatureV, self._handle, pynvml.NVML_TEMPERATURE_GPU),
            power_w=None if power_mw is None else power_mw / 1000,
            reasons=None if bits is None else tuple(name for bit, name in REASONS.items() if bits & bit),
        )

    def health(self) -> Health:
        """Read what may disturb a measurement."""
        errors = pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC
        remapped = _ask(pynvml.nvmlDeviceGetRemappedRows, self._handle)
        processes = _ask(pynvml.nvmlDeviceGetComputeRunningProcesses, self._handle)
        return Health(
            processes=tuple(sorted(process.pid for process in processes or ())),
            uncorrected=_ask(pynvml.nvmlDeviceGetTotalEccErrors, self._handle, *errors),
            remap_pending=None if remapped is None else bool(remapped[2]),
            margin_c=_ask(pynvml.nvmlDeviceGetMarginTemperature, self._handle),
        )

    def energy_j(self) -> float | None:
        """Return the energy in joules that the board has used since the driver was loaded.

        ``None`` if the GPU does not count energy. The counter has a unit of a millijoule and advances in steps.
        Source: nvmlDeviceGetTotalEnergyConsumption.
        """
        millijoules = _ask(pynvml.nvmlDeviceGetTotalEnergyConsumption, self._handle)
        return None if millijoules is None else millijoules / 1000

    def sm_clocks(self) -> list[int] | None:
        """Return the SM clocks in MHz that the GPU can run at its highest memory clock, ascending."""
        memory_mhz = _ask(pynvml.nvmlDeviceGetMaxClockInfo, self._handle, pynvml.NVML_CLOCK_MEM)
        if memory_mhz is None:
            return None
        clocks = _ask(pynvml.nvmlDeviceGetSupportedGraphicsClocks, self._handle, memory_mhz)
        return sorted(clocks) if clocks else None

    def lock_sm(self, target: Target) -> None:
        """Lock the SM clock: set its minimum and maximum to ``target``.

        The clock may still differ after NVML reports success, so verify it. "base" sets both ends to the TDP limit
        (NVML API reference, nvmlDeviceSetGpuLockedClocks; nvbench does the same). nvidia-smi has no option for "base",
        so sudo cannot set it. Raise ``Refused`` if the driver refused.
        """
        mhz = pynvml.NVML_CLOCK_LIMIT_ID_TDP if target == "base" else target
        sudo = () if target == "base" else (f"-lgc {mhz},{mhz}", "-rgc")
        self._change("lock the SM clock", sudo, pynvml.nvmlDeviceSetGpuLockedClocks, mhz, mhz)

    def reset_sm(self) -> None:
        """Unlock the SM clock. Raises ``Refused``."""
        self._change("unlock the SM clock", ("-rgc",), pynvml.nvmlDeviceResetGpuLockedClocks)

    def persistence(self) -> bool | None:
        """Return whether persistence mode is on (the driver stays loaded while nothing uses the GPU); None if unknown.

        Clock locks are lost when the driver is unloaded.
        """
        mode = _ask(pynvml.nvmlDeviceGetPersistenceMode, self._handle)
        return None if mode is None else bool(mode)

    def set_persistence(self, on: bool) -> None:
        """Switch persistence mode on or off. Raises ``Refused``."""
        self._change("switch persistence mode", (), pynvml.nvmlDeviceSetPersistenceMode, int(on))

    def _change(self, what: str, sudo: tuple[str, ...], call: Callable[..., None], *arguments: int) -> None:
        """Change a setting, through sudo if NVML requires root.

        ``sudo``: nvidia-smi options. The first makes this change; the sudoers line in the message permits all of them.
        """
        try:
            call(self._handle, *arguments)
        except pynvml.NVMLError as error:
            reason = _REFUSALS.get(error.value, str(error).lower())
            message = f"the driver refused to {what} of GPU {self.uuid}: {error}"
            if error.value == pynvml.NVML_ERROR_NO_PERMISSION:
                if sudo and self._nvidia_smi_as_root(sudo[0]):
                    return
                message += "; run as root" + (f", or allow it in sudoers: {self._sudoers(sudo)}" if sudo else "")
            raise Refused(reason, message) from error

    def _nvidia_smi_as_root(self, options: str) -> bool:
        sudo, nvidia_smi = shutil.which("sudo"), shutil.which("nvidia-smi")
        if sudo is None or nvidia_smi is None:
            return False
        command = [sudo, "-n", nvidia_smi, "-i", self.uuid, *options.split()]
        # In a session of its own: Ctrl-C in the terminal must not kill the reset.
        return subprocess.run(command, capture_output=True, check=False, start_new_session=True).returncode == 0

    def _sudoers(self, sudo: tuple[str, ...]) -> str:
        """Return a line for sudoers(5) that permits nvidia-smi with these options only, without using wildcards."""
        program = shutil.which("nvidia-smi") or "/usr/bin/nvidia-smi"
        commands = ", ".join(f"{program} -i {self.uuid} {options}".replace(",", "\\,") for options in sudo)
        return f"USER ALL=(root) NOPASSWD: {commands}"


def find_gpu(which: int | str = 0) -> Gpu | None:
    """Return ``Gpu.open(which)``, or ``None`` if the driver or this GPU is missing."""
    try:
        return Gpu.open(which)
    except NoGpu:
        return None


def all_gpus() -> tuple[Gpu, ...]:
    """Return every GPU of this machine in NVML's order; ``NoGpu`` if there is no driver or no GPU."""
    return tuple(Gpu.open(index) for index in range(_start()))


def _start() -> int:
    """Load and initialise NVML, and return the number of GPUs. NVML counts references, so a repeated call is cheap."""
    try:
        pynvml.nvmlInit()
        count = int(pynvml.nvmlDeviceGetCount())
    except pynvml.NVMLError as error:
        raise NoGpu(f"no NVIDIA GPU can be used on this machine: {error}; `nvidia-smi` must work first") from error
    if count == 0:
        raise NoGpu("the NVIDIA driver is loaded but finds no GPU")
    return count


def _ask(read: Callable[..., _T], *arguments: object) -> _T | None:
    try:
        return read(*arguments)
    except pynvml.NVMLError:
        return None
