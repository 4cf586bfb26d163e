"""``python -m lockstep``: the command, of the Python that is named."""

from lockstep.commands.cli import main

if __name__ == "__main__":
    main()
