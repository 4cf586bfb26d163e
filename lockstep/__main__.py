"""Run the ``lockstep`` command as ``python -m lockstep``, with that Python."""

from lockstep.commands.cli import main

if __name__ == "__main__":
    main()
