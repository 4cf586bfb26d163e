"""A git repository with branches, and results that measure its commits."""

import os
import subprocess

from trees import DATE, open_store, write_plain

DAY = 86_400_000


class Repository:
    """A git repository whose commits are a day apart, and results that measure them."""

    def __init__(self, folder, results):
        self.folder, self.results = folder, results
        self.days = 0
        folder.mkdir()
        self.git("init", "-qb", "main")

    def git(self, *arguments):
        when = f"{(DATE + self.days * DAY) // 1000} +0000"
        named = {f"GIT_{who}_{what}": "x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        environment = {**os.environ, **named, "GIT_AUTHOR_DATE": when, "GIT_COMMITTER_DATE": when}
        command = ["git", "-C", str(self.folder), "-c", "commit.gpgsign=false", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout.strip()

    def commit(self, subject, seconds=None, *command):
        """Commit, and measure the commit if ``seconds`` says what it takes; return its hash."""
        self.days += 1
        self.git(*(command or ("commit", "-q", "--allow-empty", "-m", subject)))
        commit = self.git("rev-parse", "HEAD")
        if seconds is not None:
            write_plain(self.results, {"s.time_f": seconds}, commit=commit, date=DATE + self.days * DAY)
        return commit

    def switch(self, *arguments):
        self.git("switch", "-q", *arguments)

    def read(self, folder=None, **options):
        """Return the results, ordered by the repository or by a clone of it."""
        return open_store(self.results, repo=folder or self.folder, **options).current()
