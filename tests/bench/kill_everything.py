"""Kill each process of each verb at random moments, and count what is wrong afterwards.

    python tests/bench/kill_everything.py --kills 200

After a kill no process may survive, no lock be held, the next run must work; the dashboard must analyse everything
again, and its metrics say so.
"""

from __future__ import annotations

import argparse
import random
import resource
import sys
import tempfile
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]

from killing import DASHBOARD, VERBS, Tally, kill_dashboard, kill_once, make_place, run_whole  # noqa: E402


def main() -> int:
    """Print a line a verb, and everything that was wrong; exit status 1 if anything was."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="of all verbs together (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--verb", action="append", choices=[*VERBS, "dashboard"], help="only these")
    args = parser.parse_args()
    shares = {name: verb.share for name, verb in VERBS.items()} | {"dashboard": DASHBOARD}
    verbs, total = args.verb or list(shares), sum(shares.values())
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="lockstep-kills-") as folder:
        place = make_place(Path(folder) / "place")
        for name in verbs:
            # Its own draw, so that a verb alone does what it does among all.
            draw = random.Random(f"{args.seed} {name}")
            tally, began = Tally(), time.monotonic()
            kills = max(1, round(args.kills * shares[name] / total))
            if name == "dashboard":
                kill_dashboard(place, kills, draw, tally)
            else:
                verb = VERBS[name]
                seconds, trouble = run_whole(place, verb)
                while tally.kills < kills and not trouble:
                    kill_once(place, verb, seconds, draw, tally)
                    if tally.kills % 4 == 0:
                        taken, trouble = run_whole(place, verb)
                        seconds = (seconds + taken) / 2
                if not trouble:
                    trouble = run_whole(place, verb)[1]
                tally.wrong += [f"the next run {trouble}"] if trouble else []
            print(
                f"{name:12} {tally.kills:4} kills ({tally.roots} of the verb itself), {tally.missed} came too late, "
                f"{len(tally.wrong)} wrong, {time.monotonic() - began:.0f} s",
                flush=True,
            )
            for line in tally.wrong:
                print(f"  {line}", flush=True)
            wrong += len(tally.wrong)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"{wrong} wrong in all; {used.ru_utime + used.ru_stime:.0f} s of CPU in processes that ended by themselves")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
