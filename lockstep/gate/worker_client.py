"""Start the gate's worker process, send it requests and return its answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from lockstep.gate.model import Group, GroupRequest, SideFacts, Verdict
from lockstep.processes.watched_worker import Watched
from lockstep.processes.worker import spelled, typed
from lockstep.same_work.work import Observed


@dataclass(frozen=True)
class Setup:
    """The code that a worker imports, and the settings of its measurements.

    Attributes:
        base, head: folders that hold the packages of base and of head.
        seed: seed of inputs, placement of buffers, and order.
        packages, benchmark_dir, quick, tuned, retune: see ``lockstep.gate.request.Request``.
        skip: imports ("suite@side") that are known to hang or kill the worker.
        alone: "base" or "head" to import only this version; "" to import both.
    """

    base: Path
    head: Path
    packages: tuple[str, ...]
    benchmark_dir: Path
    suites: tuple[str, ...]
    seed: int
    quick: bool = False
    tuned: Path | None = None
    retune: bool = False
    skip: tuple[str, ...] = ()
    alone: str = ""


class GateWorker(Watched):
    """A worker process of the gate, which imports base and head. Call ``ready`` before all other methods.

    ``judge`` and ``observe`` raise ``WorkerDied`` if the worker hangs, dies or loses its CUDA context; its ``variant``
    may end in "@base" or "@head".

    Attributes:
        clock_state: text of ``ClockState.label``; "cpu" without a GPU.
        controls: result of ``Controls.summary`` after the last request.
        group: the group whose cases the worker is judging; ``None`` before the first.
    """

    def __init__(self, setup: Setup, silence_s: float) -> None:
        super().__init__("lockstep.gate.measuring.worker", [spelled(setup)], silence_s, warm=True)
        self.controls: Mapping[str, Mapping[str, float | str]] = {}
        self.group: Group | None = None

    def ready(self) -> GateWorker:
        """Wait until the worker has imported base and head, and return the worker.

        Raise ``WorkerDied`` if the worker did not start; ``variant`` is the "suite@side" that it was importing, if any.
        """
        ready = self.started()
        self.host: dict[str, str] = ready["host"]
        self.clock_state: str = ready["clock_state"]
        self.imported = {
            suite: {side: typed(SideFacts, row) for side, row in sides.items()}
            for suite, sides in ready["found"].items()
        }
        return self

    def judge(self, requests: Sequence[GroupRequest], seconds: float, say: Callable[[str], None]) -> Iterator[Verdict]:
        """Yield the verdict of each case of some groups as soon as the case is decided.

        No epoch starts after ``seconds``. ``say`` is called with each line of progress.
        """
        self.say = say
        self.ask({"judge": [asdict(request) for request in requests], "seconds": seconds})
        for event in self.until("judged"):
            match event["event"]:
                case "verdict":
                    yield typed(Verdict, event["verdict"])
                case "group":
                    self.group = typed(Group, event["group"])
                case "judged":
                    self.controls = event["controls"]

    def observe(self, group: Group) -> Iterator[tuple[str, Observed]]:
        """Yield each variant of a group with what its captured graphs say."""
        self.ask({"observe": asdict(group)})
        for event in self.until("observed"):
            if event["event"] == "work":
                yield event["variant"], typed(Observed, event)
