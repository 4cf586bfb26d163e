"""Arrays of an archive that are read only where they are looked at."""

import zipfile

import numpy as np
import pytest

from lockstep.alerts.analysis.mapped_arrays import mapped

ARRAYS = {
    "wide": np.arange(12.0).reshape(3, 4),
    "columns first": np.asfortranarray(np.arange(6).reshape(2, 3)),
    "empty": np.empty((0, 5)),
    "text": np.array(["one", "zwölf"]),
    "alone": np.array("state"),
}


def test_they_are_what_was_saved(tmp_path):
    np.savez(tmp_path / "some.npz", **ARRAYS)
    found = mapped(tmp_path / "some.npz")
    assert found.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert found[name].dtype == array.dtype
        assert np.array_equal(found[name], array)
    found["wide"][:] = 0.0
    assert np.array_equal(mapped(tmp_path / "some.npz")["wide"], ARRAYS["wide"])
    (tmp_path / "some.npz").unlink()
    found.release()
    assert np.array_equal(found["wide"], ARRAYS["wide"])


def test_a_file_that_cannot_be_mapped_is_reported(tmp_path):
    path = tmp_path / "some.npz"
    np.savez_compressed(path, **ARRAYS)
    with pytest.raises(ValueError, match="does not have the form that"):
        mapped(path)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(zipfile.BadZipFile):
        mapped(path)
