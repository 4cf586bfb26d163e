"""``python -m tools scoreboard | evaluate | pictures``: the verbs of this repository beside those of ``lockstep``."""

from lockstep.commands.cli import main
from tools.evaluate.command import Evaluate
from tools.pictures.command import Pictures
from tools.scoreboard.command import Scoreboard

#: asv's parser makes a verb of every subclass of ``Command`` that is imported.
VERBS = (Evaluate, Pictures, Scoreboard)

if __name__ == "__main__":
    main("python -m tools")
