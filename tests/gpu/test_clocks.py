"""Locking clocks against a stand-in libnvidia-ml (tests/nvml/stand_in.c) that the real nvidia-ml-py loads."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from nvml import PREAMBLE

from lockstep.commands.clocks import Clocks
from lockstep.gpu.clock_verification import ClockState
from lockstep.gpu.nvml import ClockSample

ROOT = Path(__file__).parents[2]
NO_PERMISSION, NOT_SUPPORTED = "4", "3"
UUID = "GPU-00000000-0000-0000-0000-00000000000{}"

CLI = """
import argparse
from lockstep.commands.clocks import Clocks
clocks.torch_load = lambda gpu: lambda: load(gpu.index)
parser = argparse.ArgumentParser(prog="lockstep")
Clocks.setup_arguments(parser.add_subparsers())
args = parser.parse_args(["clocks", *sys.argv[1:]])
sys.exit(args.func(args))
"""


@dataclass
class Machine:
    """A machine with stand-in GPUs; what is locked outlives the processes run on it."""

    folder: Path
    library: Path | None
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(self, script: str, *arguments: str, **settings: str) -> subprocess.Popen[str]:
        environment = {
            "PATH": str(self.folder / "bin"),
            "PYTHONPATH": str(ROOT),
            "XDG_STATE_HOME": str(self.folder / "state"),
            "STAND_IN": str(self.folder),
            **settings,
        }
        if self.library is not None:
            environment["LD_LIBRARY_PATH"] = str(self.library)
        process = subprocess.Popen(
            [sys.executable, "-c", PREAMBLE + script, *arguments],
            env=environment,
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def run(self, script: str, **settings: str) -> str:
        """Output of a script that must succeed."""
        process = self.start(script, **settings)
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        return out.strip()

    def cli(self, *arguments: str, **settings: str) -> tuple[int, str, str]:
        process = self.start(CLI, *arguments, **settings)
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err

    @property
    def log(self) -> list[str]:
        """Changes asked of the driver, in order."""
        path = self.folder / "log"
        return path.read_text().splitlines() if path.exists() else []

    def sm_lock(self, index: int = 0) -> str | None:
        """What the driver has the SM clock locked to, as "min max"."""
        path = self.folder / f"sm-{index}"
        return path.read_text() if path.exists() else None

    @property
    def records(self) -> list[Path]:
        return sorted((self.folder / "state" / "lockstep").glob("*"))


@pytest.fixture
def machine(tmp_path: Path, library: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path, library)
    yield machine
    for process in machine.started:
        process.kill()


def wait_for_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


# Labels


@pytest.mark.parametrize(
    ("state", "label", "slug"),
    [
        (ClockState(1500), "locked@1500", "locked-1500"),
        (ClockState("base"), "base", "base"),
        (ClockState(), "unlocked", "unlocked"),
        (ClockState(reason="no permission"), "unlocked(no permission)", "unlocked"),
    ],
)
def test_label_and_slug(state: ClockState, label: str, slug: str) -> None:
    assert (state.label, state.slug) == (label, slug)


# Reading


def test_gpu_is_opened_by_index_uuid_and_torch_uuid(machine: Machine) -> None:
    out = machine.run(
        """
for which in (1, "1", nvml.Gpu.open(1).uuid, nvml.Gpu.open(1).uuid.removeprefix("GPU-")):
    gpu = nvml.Gpu.open(which)
    print(gpu.index, gpu.uuid, gpu.name, gpu.driver, gpu.cuda_driver, gpu.vbios, gpu.power_limit_w, sep="|")
print(len(nvml.all_gpus()), nvml.find_gpu(2))
""",
        STAND_IN_GPUS="2",
    )
    *opened, found = out.splitlines()
    assert opened == [f"1|{UUID.format(1)}|Stand-in GPU|580.65.06|13.2|96.00.A5|700.0"] * 4
    assert found == "2 None"


def test_sample_reads_everything(machine: Machine) -> None:
    out = machine.run("gpu = nvml.Gpu.open(); print(gpu.sample()); load(); print(gpu.sample())", STAND_IN_SAG="1395")
    assert out.splitlines() == [
        str(ClockSample(345, 3201, 41, 75.5, ("idle",))),
        str(ClockSample(1395, 3201, 41, 650.5, ("power cap",))),
    ]


def test_reads_that_the_driver_refuses_are_none(machine: Machine) -> None:
    out = machine.run(
        "gpu = nvml.Gpu.open(); print(gpu.vbios, gpu.power_limit_w); print(gpu.sample())", STAND_IN_READ="3"
    )
    assert out.splitlines() == ["None None", str(ClockSample(None, None, None, None, None))]


def test_without_the_library_there_is_no_gpu(tmp_path: Path) -> None:
    machine = Machine(tmp_path, None)
    out = machine.run(
        """
print(nvml.find_gpu())
try:
    nvml.all_gpus()
except nvml.NoGpu as error:
    print(error)
"""
    )
    found, message = out.splitlines()
    assert found == "None"
    assert "NVML Shared Library Not Found" in message


# Locking


LOCKED = """
gpu = nvml.Gpu.open()
with clocks.locked(gpu, {target}, load=load) as state:
    print(state.label, "|", state.detail)
    rest()
    print(gpu.sample().sm_mhz, clocks.recorded_state(gpu).label)
print(clocks.recorded_state(gpu).label)
"""


@pytest.mark.parametrize(
    ("target", "asked", "label", "mhz"),
    [("1500", "1500 1500", "locked@1500", 1500), ("'base'", f"{0xFFFFFF01} {0xFFFFFF01}", "base", 1305)],
)
def test_lock_is_verified_under_load_and_reset(machine: Machine, target: str, asked: str, label: str, mhz: int) -> None:
    taken, during, after = machine.run(LOCKED.format(target=target)).splitlines()
    assert taken.startswith(f"{label} | {mhz} MHz in ")
    assert during == f"345 {label}", "an idle GPU reads low although it is locked"
    assert after == "unlocked"
    assert machine.log == [f"sm 0 {asked}", "persistence 0 1 1", "sm-reset 0", "persistence-reset 0"]
    assert machine.records == []


UNLOCKED = """
with clocks.locked(nvml.Gpu.open(), {target}, load=load) as state:
    print(state.label, "|", state.detail)
    print((stand_in / "sm-0").exists())
"""


@pytest.mark.parametrize(
    ("code", "label"), [(NO_PERMISSION, "unlocked(no permission)"), (NOT_SUPPORTED, "unlocked(not supported)")]
)
def test_refusal_is_a_state_and_leaves_nothing(machine: Machine, code: str, label: str) -> None:
    script = """
with clocks.locked(nvml.Gpu.open(), 1500, load=load) as state:
    print(state.label, state.slug, state.detail, sep="|")
"""
    got, slug, detail = machine.run(script, STAND_IN_SET=code).split("|")
    assert (got, slug) == (label, "unlocked")
    sudoers = f"/usr/bin/nvidia-smi -i {UUID.format(0)} -lgc 1500\\,1500, /usr/bin/nvidia-smi -i {UUID.format(0)} -rgc"
    assert (sudoers in detail) == (code == NO_PERMISSION)
    assert machine.log == ["sm 0 1500 1500"]
    assert machine.records == []


@pytest.mark.parametrize("target", ["1500", "'base'"])
def test_lock_that_does_not_hold_under_load_is_undone_at_once(machine: Machine, target: str) -> None:
    taken, locked = machine.run(UNLOCKED.format(target=target), STAND_IN_SAG="1200").splitlines()
    label, detail = taken.split(" | ")
    assert label == "unlocked(does not hold)"
    assert "measured 1200 MHz" in detail
    assert "power cap" in detail
    assert locked == "False"
    assert machine.records == []


@pytest.mark.parametrize(("sag", "holds"), [("1485", True), ("1484", False)])
def test_one_clock_step_beside_the_asked_one_is_accepted(machine: Machine, sag: str, holds: bool) -> None:
    out = machine.run("print(clocks.lock(nvml.Gpu.open(), 1500, load=load).locked)", STAND_IN_SAG=sag)
    assert out == str(holds)


def test_clock_that_the_gpu_does_not_have_is_named_with_its_neighbours(machine: Machine) -> None:
    out = machine.run("state = clocks.lock(nvml.Gpu.open(), 1507, load=load); print(state.label, state.detail)")
    assert out.startswith("unlocked(no such clock)")
    assert "1500 and 1515" in out
    assert machine.log == []


@pytest.mark.parametrize(
    ("load", "hint"),
    [("None", "install torch with CUDA"), ("lambda: load(1)", "wrong GPU?")],
    ids=["no load", "load on another GPU"],
)
def test_what_cannot_be_verified_is_not_called_locked(machine: Machine, load: str, hint: str) -> None:
    out = machine.run(
        f"""
sys.modules["torch"] = None
state = clocks.lock(nvml.Gpu.open(), 1500, load={load})
print(state.label, state.detail)
"""
    )
    assert out.startswith("unlocked(not verified)")
    assert hint in out
    assert machine.sm_lock() is None


def test_failing_load_surfaces_and_the_lock_is_undone(machine: Machine) -> None:
    out = machine.run(
        """
calls = []
def failing():
    calls.append(1)
    load()
    if len(calls) > 2:
        raise RuntimeError("out of memory")
try:
    clocks.lock(nvml.Gpu.open(), 1500, load=failing)
except RuntimeError as error:
    print(error)
"""
    )
    assert out == "out of memory"
    assert machine.sm_lock() is None
    assert machine.records == []


def test_each_gpu_has_its_own_lock(machine: Machine) -> None:
    out = machine.run(
        """
one, two = nvml.all_gpus()
with clocks.locked(one, 1500, load=load), clocks.locked(two, 1200, load=lambda: load(1)):
    print(clocks.recorded_state(one).label, clocks.recorded_state(two).label)
    print((stand_in / "sm-0").read_text(), (stand_in / "sm-1").read_text())
""",
        STAND_IN_GPUS="2",
    )
    assert out.splitlines() == ["locked@1500 locked@1200", "1500 1500 1200 1200"]
    assert (machine.sm_lock(0), machine.sm_lock(1)) == (None, None)


def test_unwritable_state_folder_means_no_lock(machine: Machine) -> None:
    (machine.folder / "state").write_text("a file, not a folder")
    out = machine.run("state = clocks.lock(nvml.Gpu.open(), 1500, load=load); print(state.label, state.detail)")
    assert out.startswith("unlocked(no lock record)")
    assert "XDG_STATE_HOME" in out
    assert machine.log == []


def test_sudo_changes_what_the_driver_refuses_the_user(machine: Machine) -> None:
    bin_folder = machine.folder / "bin"
    bin_folder.mkdir()
    (bin_folder / "sudo").write_text('#!/bin/sh\n[ "$1" = -n ] || exit 1\nshift\nexec "$@"\n')
    (bin_folder / "nvidia-smi").write_text(
        '#!/bin/sh\necho "nvidia-smi $*" >> "$STAND_IN/log"\n'
        'case "$3" in -lgc) echo 1500 1500 > "$STAND_IN/sm-0";; -rgc) /bin/rm "$STAND_IN/sm-0";; *) exit 1;; esac\n'
    )
    for program in bin_folder.iterdir():
        program.chmod(0o755)
    taken, during, after = machine.run(LOCKED.format(target=1500), STAND_IN_SET=NO_PERMISSION).splitlines()
    assert taken.startswith("locked@1500 | 1500 MHz")
    assert (during, after) == ("345 locked@1500", "unlocked")
    asked = [line for line in machine.log if line.startswith("nvidia-smi")]
    assert asked == [f"nvidia-smi -i {UUID.format(0)} -lgc 1500,1500", f"nvidia-smi -i {UUID.format(0)} -rgc"]


# Letting go


HOLDING = """
{before}
with clocks.locked(nvml.Gpu.open(), 1500, load=load):
    print("held", flush=True)
    {work}
print("went on")
"""


def held(machine: Machine, before: str = "", work: str = "time.sleep(1000)", **settings: str) -> subprocess.Popen[str]:
    """A process that has locked GPU 0 to 1500 MHz and sleeps."""
    process = machine.start(HOLDING.format(before=before, work=work), **settings)
    assert wait_for_line(process) == "held"
    assert machine.sm_lock() == "1500 1500"
    return process


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signal_resets_and_takes_its_course(machine: Machine, number: signal.Signals) -> None:
    process = held(machine)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == -number
    assert ("KeyboardInterrupt" in err) == (number == signal.SIGINT)
    assert out == ""
    assert machine.sm_lock() is None
    assert machine.records == []


def test_sigterm_resets_both_of_two_gpus(machine: Machine) -> None:
    process = machine.start(
        """
one, two = nvml.all_gpus()
with clocks.locked(one, 1500, load=load), clocks.locked(two, 1200, load=lambda: load(1)):
    print("held", flush=True)
    time.sleep(1000)
""",
        STAND_IN_GPUS="2",
    )
    assert wait_for_line(process) == "held"
    process.terminate()
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGTERM
    assert (machine.sm_lock(0), machine.sm_lock(1)) == (None, None)
    assert machine.records == []


def test_sigterm_while_the_lock_is_verified_resets(machine: Machine) -> None:
    process = machine.start(
        """
clock_state.HOLD_S = 1000
def announce():
    load()
    if not (stand_in / "announced").exists():
        (stand_in / "announced").touch()
        print("loaded", flush=True)
clocks.lock(nvml.Gpu.open(), 1500, load=announce)
"""
    )
    assert wait_for_line(process) == "loaded"
    assert machine.sm_lock() == "1500 1500"
    process.terminate()
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGTERM
    assert machine.sm_lock() is None
    assert machine.records == []


def test_handler_that_lets_the_program_go_on_finds_the_clocks_locked_again(machine: Machine) -> None:
    process = held(
        machine,
        before="seen = []; signal.signal(signal.SIGTERM, lambda *_: seen.append((stand_in / 'sm-0').exists()))",
        work="""
    while not seen:
        time.sleep(0.01)
    print(*seen, (stand_in / 'sm-0').exists())
""",
    )
    process.terminate()
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert out.splitlines() == ["False True", "went on"]
    assert machine.sm_lock() is None


def test_ignored_signal_stays_ignored_and_handlers_are_restored(machine: Machine) -> None:
    out = machine.run(
        """
signal.signal(signal.SIGHUP, signal.SIG_IGN)
before = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
with clocks.locked(nvml.Gpu.open(), 1500, load=load):
    os.kill(os.getpid(), signal.SIGHUP)
    print((stand_in / "sm-0").read_text())
print(before == [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)])
"""
    )
    assert out.splitlines() == ["1500 1500", "True"]


def test_exception_resets(machine: Machine) -> None:
    script = """
with contextlib.suppress(ZeroDivisionError), clocks.locked(nvml.Gpu.open(), 1500, load=load):
    1 / 0
"""
    machine.run(script)
    assert machine.sm_lock() is None
    assert machine.records == []


def test_forked_child_does_not_reset_its_parents_lock(machine: Machine) -> None:
    out = machine.run(
        """
with clocks.locked(nvml.Gpu.open(), 1500, load=load):
    child = os.fork()
    if child == 0:
        (stand_in / "child").touch()
        time.sleep(30)
        os._exit(1)
    # Python drops a signal that comes while it forks.
    while not (stand_in / "child").exists():
        time.sleep(0.01)
    os.kill(child, signal.SIGTERM)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), (stand_in / "sm-0").read_text())
"""
    )
    assert out == "-15 1500 1500"
    assert machine.sm_lock() is None


def test_persistence_mode_that_was_on_stays_on(machine: Machine) -> None:
    (machine.folder / "persistence-0").touch()
    machine.run(LOCKED.format(target=1500))
    assert machine.log == ["sm 0 1500 1500", "sm-reset 0"]


# What outlives a process


def test_lock_left_by_a_killed_process_is_named_and_cleaned(machine: Machine) -> None:
    process = held(machine)
    process.kill()
    process.communicate(timeout=60)
    assert machine.sm_lock() == "1500 1500", "the lock outlives the process"

    code, out, _ = machine.cli("status")
    assert code == 0
    assert "clocks locked@1500" in out
    assert f"left behind by process {process.pid}, which is gone" in out

    code, out, _ = machine.cli("reset")
    assert code == 0
    assert f"left behind by process {process.pid}" in out
    assert machine.sm_lock() is None
    assert not (machine.folder / "persistence-0").exists()
    assert machine.records == []


def test_next_lock_cleans_what_a_killed_process_left(machine: Machine) -> None:
    process = held(machine)
    process.kill()
    process.communicate(timeout=60)
    assert machine.run("print(clocks.lock(nvml.Gpu.open(), 1200, load=load).label)") == "locked@1200"
    assert [line for line in machine.log if line.startswith("sm")] == ["sm 0 1500 1500", "sm-reset 0", "sm 0 1200 1200"]


def test_lock_of_a_living_process_is_respected(machine: Machine) -> None:
    process = held(machine)
    code, out, err = machine.cli("lock", "1200")
    assert (code, out) == (1, "")
    assert f"process {process.pid}, which is running" in err
    code, _, err = machine.cli("reset")
    assert code == 1
    assert machine.sm_lock() == "1500 1500"
    code, _, _ = machine.cli("reset", "--force")
    assert code == 0
    assert machine.sm_lock() is None
    process.terminate()
    process.communicate(timeout=60)


def rewrite_record(machine: Machine, **changes: object) -> None:
    (path,) = machine.records
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_reused_pid_is_no_owner_and_another_boot_ends_a_lock(machine: Machine) -> None:
    process = held(machine)
    process.kill()
    process.communicate(timeout=60)
    rewrite_record(machine, pid=os.getpid())
    status = """
from lockstep.gpu.lock_file import read_record
record = read_record(nvml.Gpu.open().uuid)
print(record and record.left_behind)
"""
    assert machine.run(status) == "True"
    rewrite_record(machine, boot="another")
    assert machine.run(status) == "None"
    assert machine.records == []


def test_damaged_record_is_an_error_that_reset_clears(machine: Machine) -> None:
    assert machine.cli("lock", "1500")[0] == 0
    machine.records[0].write_text("{")
    code, _, err = machine.cli("status")
    assert code == 1
    assert "`lockstep clocks reset` clears it" in err
    assert machine.cli("reset")[0] == 0
    assert machine.sm_lock() is None
    assert machine.records == []


# The command


def test_cli_lock_stays_is_used_and_reset(machine: Machine) -> None:
    code, out, _ = machine.cli("lock", "1500")
    assert code == 0
    assert out.startswith(f"GPU {UUID.format(0)}: locked@1500: ")
    assert machine.sm_lock() == "1500 1500"

    used = machine.run(
        """
gpu = nvml.Gpu.open()
print(clocks.clock_state(gpu, load).label)
with clocks.locked(gpu, 1500, load=load) as state:
    print(state.label)
try:
    with clocks.locked(gpu, 1200, load=load):
        print("wrong")
except clocks.ClocksHeld as held:
    print(held)
"""
    ).splitlines()
    assert used[:2] == ["locked@1500", "locked@1500"]
    assert "on purpose" in used[2]
    assert machine.sm_lock() == "1500 1500", "not ours to reset"

    code, out, _ = machine.cli("status", "--verify")
    assert code == 0
    assert "  clocks locked@1500: " in out
    assert "removes this lock" not in out

    assert machine.cli("reset")[0] == 0
    assert machine.sm_lock() is None


def test_lost_lock_does_not_verify(machine: Machine) -> None:
    machine.cli("lock", "1500")
    (machine.folder / "sm-0").unlink()
    code, out, _ = machine.cli("status", "--verify")
    assert code == 1
    assert "unlocked(does not hold): requested locked@1500, measured 1980 MHz" in out


def test_cli_relocks_to_another_clock(machine: Machine) -> None:
    assert machine.cli("lock", "1500")[0] == 0
    assert machine.cli("lock")[0] == 0
    assert machine.sm_lock() == f"{0xFFFFFF01} {0xFFFFFF01}"
    assert machine.cli("reset")[0] == 0
    assert not (machine.folder / "persistence-0").exists()


def test_cli_refusals_exit_with_1_and_say_what_to_do(machine: Machine) -> None:
    code, out, _ = machine.cli("lock", "1500", STAND_IN_SET=NO_PERMISSION)
    assert code == 1
    assert "unlocked(no permission)" in out
    assert "NOPASSWD" in out
    code, out, _ = machine.cli("lock", "1500", STAND_IN_SAG="1300")
    assert code == 1
    assert "unlocked(does not hold)" in out
    code, _, err = machine.cli("reset", STAND_IN_SET=NO_PERMISSION)
    assert code == 1
    assert "-rgc" in err


def test_cli_wants_to_know_which_of_several_gpus(machine: Machine) -> None:
    code, _, err = machine.cli("lock", "1500", STAND_IN_GPUS="2")
    assert code == 4
    assert "--gpu" in err
    assert machine.cli("lock", "1500", "--gpu", "1", STAND_IN_GPUS="2")[0] == 0
    assert (machine.sm_lock(0), machine.sm_lock(1)) == (None, "1500 1500")
    code, out, _ = machine.cli("status", STAND_IN_GPUS="2")
    assert code == 0
    assert [line.split()[1] for line in out.splitlines() if line.startswith("  clocks")] == ["unlocked", "locked@1500:"]


def test_cli_without_gpu_exits_with_3(tmp_path: Path) -> None:
    machine = Machine(tmp_path, None)
    for action in ("status", "lock", "reset"):
        code, _, err = machine.cli(action)
        assert code == 3
        assert "NVML Shared Library Not Found" in err


def test_cli_refuses_a_target_that_is_no_clock(machine: Machine) -> None:
    code, _, err = machine.cli("lock", "fast")
    assert code == 2
    assert "'fast' is neither a number of MHz nor 'base'" in err


def test_asv_takes_the_verb_and_its_own_options_behind_it(tmp_path: Path) -> None:
    process = Machine(tmp_path, None).start(
        """
import lockstep.commands.clocks
from asv.main import main
sys.argv = ["lockstep", "clocks", "status", "-v"]
main()
"""
    )
    _, err = process.communicate(timeout=60)
    assert process.returncode == 3, err
    assert "NVML Shared Library Not Found" in err


def test_entry_point_names_the_verb() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    target = project["entry-points"]["lockstep.commands"]["clocks"]
    assert EntryPoint("clocks", target, "lockstep.commands").load() is Clocks
