"""Damage of a SQLite file is told from other errors, because a damaged cache is thrown away."""

import sqlite3

import pytest

from lockstep.alerts.analysis.analysis_file import is_damage


def failure(path, statement, close=False):
    connection = sqlite3.connect(path, timeout=0)
    if close:
        connection.close()
    with pytest.raises(sqlite3.DatabaseError) as raised:
        connection.execute(statement)
    connection.close()
    return raised.value


def test_only_damage_throws_a_cache_away(tmp_path):
    (tmp_path / "text").write_text("this is a text and not a database " * 100)
    assert is_damage(failure(tmp_path / "text", "SELECT * FROM a"))
    with sqlite3.connect(tmp_path / "whole") as connection:
        connection.execute("CREATE TABLE a (b)")
        connection.execute("BEGIN IMMEDIATE")
        assert not is_damage(failure(tmp_path / "whole", "INSERT INTO a VALUES (1)")), "locked"
    connection.close()
    assert not is_damage(failure(tmp_path / "whole", "SELECT * FROM a", close=True)), "closed"
    assert not is_damage(OSError("no such file"))
