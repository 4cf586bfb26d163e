"""Counters count what they name: the cases of one commit, and commits where their number is known."""

import pytest
from trees import record

from lockstep.asv.progress_display import Progress


@pytest.mark.parametrize(
    ("commits", "first", "last"),
    [
        (None, "aaaaaaaa [   1/2] ", "cccccccc [   2/2] "),  # HASHFILE, ALL: asv alone knows
        (1, "aaaaaaaa [   1/2] ", "cccccccc [   2/2] "),
        (3, "aaaaaaaa (1 of 3) [   1/2] ", "cccccccc (3 of 3) [   2/2] "),
        (2, "aaaaaaaa (1 of 2) [   1/2] ", "cccccccc (3 of 3) [   2/2] "),
    ],
)
def test_no_counter_passes_its_total(capsys, commits, first, last):
    progress = Progress(2, commits)
    for letter in "abc":
        progress.begin(40 * letter)
        for _ in range(2):
            progress.case([record()], 60.0, measured=True)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith(first)
    assert lines[-1].startswith(last)
    for line in lines:
        done, total = line.split("[")[1].split("]")[0].split("/")
        assert int(done) <= int(total)


def test_the_time_left_is_of_all_commits_that_are_known(capsys):
    for commits, left in [(None, "about 60 s left"), (1, "about 60 s left"), (3, "about 5 min left")]:
        progress = Progress(2, commits)
        progress.begin(40 * "a")
        progress.case([record()], 60.0, measured=True)
        assert capsys.readouterr().err.strip().endswith(left)


def test_cases_without_a_number_share_a_line(capsys):
    progress = Progress(3, 1)
    progress.begin(40 * "a")
    for one in (record(), record(state="na", reason="no GPU here"), record(state="na", reason="no GPU here")):
        progress.case([one], 1.0, measured=True)
    progress.finish()
    first, last = capsys.readouterr().err.splitlines()
    assert first.startswith("aaaaaaaa [   1/3] ")
    assert last == "2 cases not measured: no GPU here"
