"""Exit statuses that every verb shares. A verb gives 1 and 2 its own meaning; docs/exit-statuses.md has the table."""

from __future__ import annotations

import signal

#: Done, and nothing bad to report.
OK = 0

#: The verb's own bad news, for example that something became slower.
BAD_NEWS = 1

#: No verdict: a machine, a file or a process is not fit, or an unexpected error.
BROKEN = 3

#: A wrong command line, configuration or suite.
USAGE = 4

#: Ctrl-C, as shells report it.
INTERRUPTED = 128 + signal.SIGINT
