"""The wheel holds what it promises and nothing else."""

import zipfile

from hatchling.builders.wheel import WheelBuilder
from workflows import ROOT


def test_the_wheel_is_typed_and_holds_no_package_that_another_repository_may_have(tmp_path):
    [wheel] = WheelBuilder(str(ROOT)).build(directory=str(tmp_path))
    names = zipfile.ZipFile(wheel).namelist()
    info = next(name.partition("/")[0] for name in names if ".dist-info/" in name)
    assert {name.partition("/")[0] for name in names} == {"lockstep", "dashboard", info}
    assert {"lockstep/py.typed", "dashboard/py.typed", f"{info}/licenses/LICENSE"} <= set(names)
