"""Read the texts of parameter values, so that a value keeps its series when Python or NumPy writes it differently."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from lockstep.history.validation import short_name

#: asv's own rule for an object without a repr (``_repr_no_address`` in asv_runner 0.3.2).
_OBJECT = re.compile(r"(<.*) at 0x[\da-fA-F]*>")

#: A text in quotes. One without its end extends to the end, so that hostile texts take linear time.
_LITERAL = r"""b?(?:'(?:\\.|[^'\\])*(?:'|$)|"(?:\\.|[^"\\])*(?:"|$))"""

#: Longer texts keep the rest: they are cut off anyway.
_LONGEST = 2000

#: NumPy's reprs since version 2, and addresses within a text. The first alternative skips texts in quotes.
_CHANGING = re.compile(
    rf"""(?P<quoted>{_LITERAL})
    | (?<![\w.])np\.(?P<constant>True|False)_(?!\w)
    | (?<![\w.])np\.(?P<time>datetime64|timedelta64)(?=\()
    | (?<![\w.])np\.(?P<type>float\d+|longdouble|u?int\w+|u?long\w+|str_|bytes_|complex\d+|clongdouble)
      \((?P<value>{_LITERAL}|[^()'"]*)\)
    | [ ]at[ ]0x[\da-fA-F]+(?=>)""",
    re.VERBOSE,
)


def parameter_texts(values: Sequence[Any]) -> tuple[str, ...]:
    """Return the text of each value of a parameter, as one short printable line.

    Values that differ in their addresses alone get asv's numbers: ``<function f> (0)``, ``<function f> (1)``.

    ``values``: the values in a result file. asv writes Python's reprs, but other tools write any JSON value.
    """
    stored = [value if isinstance(value, str) else json.dumps(value, sort_keys=True) for value in values]
    texts = [steady(text) for text in stored]
    if len(set(texts)) < len(set(stored)):
        variants: dict[str, set[str]] = defaultdict(set)
        for text, original in zip(texts, stored, strict=True):
            variants[text].add(original)
        seen = Counter[str]()
        for place, text in enumerate(texts):
            if len(variants[text]) > 1:
                texts[place] = f"{text} ({seen[text]})"
                seen[text] += 1
    return tuple(map(short_name, texts))


def steady(text: str) -> str:
    """Return a repr without addresses, and with NumPy's scalars as NumPy 1 wrote them: ``np.float64(0.5)`` is ``0.5``.

    asv strips the address of a value that is a plain object (since version 0.4). Here addresses within lists and calls
    are stripped too.
    """
    if " at 0x" not in text and "np." not in text:
        return text
    if match := _OBJECT.fullmatch(text):
        text = f"{match[1]}>"
    return _CHANGING.sub(_replacement, text) if len(text) <= _LONGEST else text


def comparable(text: str) -> str:
    """Return a text that is the same for all forms in which a case was ever shown, for stored alerts."""
    return steady(text).replace("'", "").replace('"', "")


def _replacement(match: re.Match[str]) -> str:
    part = match.groupdict()
    if part["type"] is None:
        numpy = f"numpy.{part['time']}" if part["time"] else ""
        return part["quoted"] or part["constant"] or numpy
    value: str = part["value"]
    if part["type"] in ("str_", "bytes_"):
        return value
    value = value.strip("'\"")  # np.longdouble('0.5')
    parts = re.fullmatch(r".*[\d.nf][+-].+j", value)
    return f"({value})" if part["type"].startswith("c") and parts else value
