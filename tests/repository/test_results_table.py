"""The recorded table of benchmarks is that of the suites, so that a run leaves a clean checkout clean."""

import json
import subprocess
import sys
from pathlib import Path

from asv.benchmarks import Benchmarks

from lockstep.asv.undiscovered_benchmarks import keep, read_table, undiscovered
from lockstep.asv.whole_files import write_json

ROOT = Path(__file__).parents[2]

DISCOVERY = """
import sys
from asv_runner import discovery
discovery.list_benchmarks(sys.argv[1], open(sys.argv[2], "w"))
"""


def test_a_run_would_write_the_table_of_benchmarks_that_is_committed(tmp_path):
    found = tmp_path / "found.json"
    subprocess.run([sys.executable, "-c", DISCOVERY, ROOT / "benchmarks", found], cwd=ROOT, check=True)
    discovered = {entry["name"]: entry for entry in json.loads(found.read_text())}
    write_json(str(tmp_path / "benchmarks.json"), discovered, Benchmarks.api_version)
    keep(tmp_path, undiscovered(ROOT / "results"))
    committed, written = read_table(ROOT / "results"), read_table(tmp_path)
    lagging = {name for name in committed.keys() | written.keys() if committed.get(name) != written.get(name)}
    assert lagging == set(), "`lockstep run 'HEAD^!' --bench just-discover` writes results/benchmarks.json anew"
