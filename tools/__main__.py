"""``python -m tools scoreboard | evaluate``: the verbs of this repository beside those of ``lockstep``."""

from lockstep.commands.cli import main
from tools.evaluate.command import Evaluate
from tools.scoreboard.command import Scoreboard

#: asv's parser knows every subclass of its Command; importing these makes them verbs.
VERBS = (Evaluate, Scoreboard)

if __name__ == "__main__":
    main()
