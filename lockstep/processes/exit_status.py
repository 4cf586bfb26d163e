"""Exit statuses that every verb shares, and those of worker processes. Each verb defines 1 and 2 itself;
docs/exit-statuses.md has the table.
"""

from __future__ import annotations

import signal

#: The verb succeeded and has nothing bad to report.
OK = 0

#: The verb succeeded and reports a problem, for example that a kernel became slower.
BAD_NEWS = 1

#: The verb could not finish: a machine, a file or a process cannot be used, or an unexpected error occurred.
BROKEN = 3

#: A wrong command line, configuration or suite.
USAGE = 4

#: The user pressed Ctrl-C. Shells report the same status.
INTERRUPTED = 128 + signal.SIGINT

#: A worker process whose CUDA context broke; its parent starts another.
CONTEXT_LOST = 70


class UsageError(ValueError):
    """A mistake in a command line, a configuration, a suite or a name. The message says what to write instead.

    A verb that raises it, or a subclass, ends with ``USAGE``.
    """


class Unusable(RuntimeError):
    """A machine, file or process cannot be used. A verb that raises it, or a subclass, ends with ``BROKEN``."""
