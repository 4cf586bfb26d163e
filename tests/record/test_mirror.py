"""Results at an address: a local copy that follows it, on an S3 server and in memory."""

import json
import threading
from pathlib import Path

import fsspec
import pytest
from history import Here, write_history
from verb import run_verb
from worker_processes import wait_until

from lockstep.history.store import Store
from lockstep.processes.exit_status import BROKEN, OK
from lockstep.record.mirror import Mirror, MirrorError, local


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "asv.conf.json").write_text(json.dumps({"version": 1, "repo": ".", "results_dir": "results"}))


@pytest.fixture
def bucket(monkeypatch):
    """The address of a bucket of a real S3 server."""
    moto = pytest.importorskip("moto.server", reason="moto is not installed: make venv")
    server = moto.ThreadedMotoServer("127.0.0.1", 0)
    server.start()
    host, port = server.get_host_and_port()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    fsspec.filesystem("s3").mkdir("fleet")
    yield "s3://fleet"
    fsspec.filesystem("s3").clear_instance_cache()
    server.stop()


@pytest.fixture
def memory():
    """An address in memory, and its files."""
    files = fsspec.filesystem("memory")
    files.pipe({"/fleet/results/a.json": b"a", "/fleet/results/box/b.json": b"b", "/fleet/results/.hidden": b""})
    yield "memory://fleet/results", files
    files.store.clear()


def texts(folder):
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_shards_merge_into_a_bucket_from_which_the_store_reads(bucket, tmp_path):
    files = fsspec.filesystem("s3")
    for place, uuid in enumerate(("GPU-a", "GPU-b")):
        commits = ["ab" * 20, "cd" * 20, "ef" * 20]
        write_history(tmp_path / uuid, "gpu", commits, lambda n, uuid=uuid: Here(host={"gpu_uuid": uuid}), first=place)
        assert run_verb("merge", tmp_path / uuid, "--into", f"{bucket}/shards/{uuid}") == OK
    assert run_verb("merge", f"{bucket}/shards", "--into", f"{bucket}/results") == OK
    stored = files.find(f"{bucket}/results", detail=True)
    assert run_verb("merge", f"{bucket}/shards", "--into", f"{bucket}/results") == OK
    files.invalidate_cache()
    assert files.find(f"{bucket}/results", detail=True) == stored, "nothing is stored twice"
    assert run_verb("ingest", "--results", f"{bucket}/results") == OK
    results = Store.open(Mirror.of(f"{bucket}/results").folder).current()
    assert [len(trend) for trend in results.trends(results.series())] == [3] * 12
    assert run_verb("ingest", "--results", f"{bucket}/nothing") == BROKEN


def test_a_copy_follows_its_address(memory):
    address, files = memory
    folder = local(address)
    assert texts(folder) == {"a.json": "a", "box/b.json": "b"}
    kept = (folder / "a.json").stat()
    files.pipe("/fleet/results/box/b.json", b"new")
    files.pipe("/fleet/results/box/c.json", b"c")
    assert texts(local(address)) == {"a.json": "a", "box/b.json": "new", "box/c.json": "c"}
    assert (folder / "a.json").stat().st_ino == kept.st_ino
    files.rm("/fleet/results/box/c.json")
    (folder / "a.json").unlink()
    assert texts(local(address)) == {"a.json": "a", "box/b.json": "new"}


def test_what_was_not_stored_yet_is_stored_later(memory):
    """A merge was interrupted after it had changed the copy."""
    address, files = memory
    folder = local(address)
    (folder / "a.json").write_text("merged")
    (folder / "d.json").write_text("d")
    (folder / ".part").write_text("")
    assert texts(local(address))["a.json"] == "merged"
    assert [Mirror.of(address).push() for _ in range(2)] == [2, 0]
    assert files.cat("/fleet/results/a.json") == b"merged"
    assert not files.exists("/fleet/results/.part")
    folder.joinpath("a.json").unlink()
    assert texts(local(address))["a.json"] == "merged"


def test_a_folder_knows_the_address_that_it_copies(memory, tmp_path):
    address, _ = memory
    assert Mirror.at(local(address)) == Mirror.of(address)
    assert Mirror.at(tmp_path) is None
    assert local("some/folder") == Path("some/folder")


def test_a_copy_is_followed_also_after_an_error(memory, caplog):
    address, files = memory
    folder, stop = local(address), threading.Event()
    files.store["/fleet/results/../out.json"] = files.store["/fleet/results/a.json"]
    thread = threading.Thread(target=Mirror.of(address).follow, args=(stop, 0.01))
    thread.start()
    try:
        wait_until(lambda: "leads out" in caplog.text)
        del files.store["/fleet/results/../out.json"]
        files.pipe("/fleet/results/a.json", b"new")
        wait_until(lambda: texts(folder)["a.json"] == "new")
    finally:
        stop.set()
        thread.join()


def test_a_name_that_leads_out_of_the_folder_is_refused(memory, tmp_path):
    address, files = memory
    files.store["/fleet/results/../../out.json"] = files.store["/fleet/results/a.json"]
    with pytest.raises(MirrorError, match=r"^memory://fleet/results: the name .*out.json leads out of the folder$"):
        local(address)
    assert not list(tmp_path.rglob("out.json"))


def test_an_address_of_an_unknown_kind_is_named():
    with pytest.raises(MirrorError, match=r"^nowhere://x: Protocol not known: nowhere$"):
        local("nowhere://x")
