"""Check asv.conf.json before asv reads it: asv accepts a value of any type and fails later with a traceback."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from asv import util
from asv.config import Config

from lockstep.processes.exit_status import UsageError

#: Names of asv's configuration file, if ``--config`` names none.
CONFIGS = ("asv.conf.json", "asv.conf.jsonc")


def _text(value: Any) -> bool:
    return isinstance(value, str) and "\0" not in value


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_text, value))


def _seconds(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and 0 < value < 1e9


def _branches(value: Any) -> bool:
    return isinstance(value, list) and all(item is None or _text(item) for item in value)


_FOLDER = (_text, "a folder's name")
_NAME = (_text, "a text")

#: Keys that asv or Lockstep reads for every verb, with a check of the value and a text that states the required value.
_KEYS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "project": _NAME,
    "repo": (lambda value: _text(value) and value != "", "a folder or the address of a repository"),
    "repo_subdir": _FOLDER,
    "branches": (_branches, 'a list of branches, ["main"]'),
    "environment_type": _NAME,
    "plugins": (_texts, 'a list of modules, [".lockstep.asv"]'),
    "benchmark_dir": _FOLDER,
    "results_dir": _FOLDER,
    "env_dir": _FOLDER,
    "html_dir": _FOLDER,
    "hash_length": (lambda value: type(value) is int and 0 < value <= 64, "a number of digits from 1 to 64"),
    "default_benchmark_timeout": (_seconds, "a number of seconds above 0"),
    "lockstep": (lambda value: isinstance(value, dict), 'an object, {"packages": ["your_package"]}'),
}

#: Keys of the object "lockstep".
_OURS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "packages": (_texts, 'a list of top-level packages, ["your_package"]'),
    "targets": (_texts, 'a list of targets, ["sm_90"]'),
    "preload": (_texts, 'a list of modules of installed libraries, ["transformers"]'),
}


def check_config(config: str | None) -> Mapping[str, Any]:
    """Return the object "lockstep" of asv's configuration, empty without one; raise if it cannot be used.

    Args:
        config: the path of ``--config``; without it, the ``CONFIGS`` in the working directory are checked.

    Raises:
        UsageError: the file is not JSON or not an object, or a value has the wrong type.
        asv.util.UserError: asv refuses the version of the configuration's format.
        OSError: the file cannot be read.
    """
    section: Mapping[str, Any] = {}
    for path in [config] if config else [name for name in CONFIGS if Path(name).exists()]:
        try:
            content = util.load_json(path, js_comments=True)
        except RecursionError as error:
            raise UsageError(f"{path} is not JSON: it is nested too deeply") from error
        except ValueError as error:
            raise UsageError(f"{path} is not JSON: {error}") from error
        if not isinstance(content, dict):
            raise UsageError(f"{path} must hold a JSON object, but holds {_kind(content)}")
        version = content.get("version")
        if type(version) is not int:
            raise UsageError(f'{path}: "version" must be {Config.api_version}, but is {_kind(version)}')
        _expect(path, "", content, _KEYS)
        section = content.get("lockstep", {})
        _expect(path, "lockstep.", section, _OURS)
        for key in section:
            if key not in _OURS:
                raise UsageError(f'{path}: "lockstep" has no key {key!r}; its keys are {", ".join(_OURS)}')
    return section


def _expect(
    path: str, prefix: str, content: Mapping[str, Any], keys: Mapping[str, tuple[Callable[[Any], bool], str]]
) -> None:
    for key, (right, description) in keys.items():
        if key in content and not right(content[key]):
            raise UsageError(f'{path}: "{prefix}{key}" must be {description}, but is {_kind(content[key])}')


def _kind(value: Any) -> str:
    """Return a short description of a JSON value."""
    if value is None:
        return "missing or null"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list" if len(value) > 3 else repr(value)[:60]
    return repr(value)[:60]
