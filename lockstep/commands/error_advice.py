"""Give advice on errors of asv and git whose own messages do not say what to do."""

from __future__ import annotations

from asv import util

#: Exit status of git if it does not understand the command line.
_GIT_USAGE = 129

#: Advice for an asv message, by a part of the message.
_ADVICE = {
    "Environment type must be specified": 'asv.conf.json needs "environment_type": "lockstep", '
    'and ".lockstep.asv" among its "plugins"',
    "No `asv.conf` file found": "go to the folder that has asv.conf.json, or name the file with --config; "
    "Lockstep's docs/adopting.md has one to begin with",
    "what kind of DVCS": '"repo" in asv.conf.json must name a git repository, because commits are measured',
    "Failed to build the project": "asv imports the suites beside the newest commit of a branch: check that a branch "
    'that "branches" of asv.conf.json names has a commit, and read the lines above',
}


def advice_on(error: Exception) -> str:
    """Return advice that asv's error message lacks, or ""."""
    if isinstance(error, util.ProcessError):
        if "bad revision" in error.stderr:
            return (
                "this clone does not know that commit or branch: asv.conf.json names the branches, the command names "
                "commits; in a shallow clone, git fetch --unshallow fetches them"
            )
        if "rev-list" in error.args and error.retcode == _GIT_USAGE:
            return "name the commits: HEAD~5..HEAD for a range, 'HEAD^!' for one, NEW for those without results"
        return ""
    for part, advice in _ADVICE.items():
        if part in str(error):
            return advice
    return ""
