"""JSON for other programs: numbers that JSON lacks are null, whichever verb prints them."""

import json
import math
from pathlib import Path

import pytest

from lockstep.record.json_output import print_json
from lockstep.record.model import CostEstimate

COMMANDS = Path(__file__).parents[2] / "lockstep/commands"


def test_what_json_lacks_is_null(capsys):
    print_json({"cost": CostEstimate(2.0, 0.5, math.inf, 1), "left": [math.nan, -math.inf]})
    strict = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert strict == {"cost": {"value": 2.0, "low": 0.5, "high": None, "epochs": 1}, "left": [None, None]}


def test_each_verb_prints_by_it():
    by_json_dumps = [path.name for path in COMMANDS.glob("*.py") if "print(json.dumps(" in path.read_text()]
    assert by_json_dumps == []
