"""The plugin that older asv.conf.json files name."""

import importlib
import sys

import pytest


def test_an_old_configuration_is_still_read_and_says_what_to_name_instead():
    sys.modules.pop("lockstep.notify.asv_site", None)
    with pytest.warns(FutureWarning, match=r"name \.dashboard\.snapshot"):
        importlib.import_module("lockstep.notify.asv_site")
