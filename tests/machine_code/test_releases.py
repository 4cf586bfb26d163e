"""The releases of a range come from pip, and each is compared with the one before it."""

import functools
import http.server
import threading

import pytest
from wheels import make_wheel

from lockstep.processes.toolchain.install_packages import ToolchainError
from lockstep.processes.toolchain.parse_toolchain import UnknownToolchain
from lockstep.processes.toolchain.releases import releases


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A package index on this machine with five releases of one package."""
    for version in ("1.9.0", "1.10.0", "1.10.1", "2.0.0", "2.1.0"):
        make_wheel(tmp_path / "simple" / "lockstep-probe", "lockstep_probe", version, "")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(tmp_path)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{server.server_port}/simple")
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX", "PIP_CONFIG_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    yield
    server.shutdown()
    server.server_close()


def test_a_range_holds_both_ends_and_all_between_by_version(index):
    assert releases("lockstep-probe==1.9.0..2.0.0") == [
        f"lockstep-probe=={version}" for version in ("1.9.0", "1.10.0", "1.10.1", "2.0.0")
    ]


def test_an_end_that_was_never_released_is_named_with_what_there_is(index):
    with pytest.raises(ToolchainError, match=r"has no release 1\.9\.7; it has 1\.9\.0, 1\.10\.0"):
        releases("lockstep-probe==1.9.7..2.0.0")
    with pytest.raises(ToolchainError, match="pip knows no releases of lockstep-nothing"):
        releases("lockstep-nothing==1.0..2.0")


@pytest.mark.parametrize("text", ["triton", "triton==3.6.0", "triton==3.6.0...", "lockstep-probe==2.0.0..1.9.0"])
def test_what_is_not_a_range_is_a_mistake(index, text):
    with pytest.raises(UnknownToolchain):
        releases(text)
