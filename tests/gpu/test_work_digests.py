"""Digests of two processes that captured one version each show every planted change, and no change of words.

``LOCKSTEP_TEST_GPU=1 pytest tests/gpu/test_work_digests.py``. The changes are those of ``test_observed_work``, and
changes of what a variant prepares offline.
"""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PACKED = """
    import torch
    import triton
    import triton.language as tl


    @triton.jit
    def scale(x, w, out, count, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + at, tl.load(x + at, mask=at < count) * tl.load(w + at, mask=at < count), mask=at < count)


    def pack(w):
        return {"packed": w.t().contiguous()}


    def packed(x, packed, out):
        scale[(triton.cdiv(x.numel(), 1024),)](x, packed, out, x.numel(), BLOCK=1024)
        return out


    def plain(x, w, out):
        return torch.mm(x, w, out=out)


    VARIANTS = {"packed": packed, "plain": plain}
    PREPARE = {"packed": pack}
    """

#: Changes of what is prepared; the graph has equal addresses and sizes.
PREPARED = {"packing": (".t().contiguous()", ".clone()"), "scale of the packing": (".t()", ".t().mul(2)")}
UNCHANGED = {"other words of the packing": (".t().contiguous()", ".transpose(0, 1).contiguous()")}


def lay_out(folder):
    """Write two versions of a package for each change; return the kinds by package."""
    from test_observed_work import CHANGES, ON_BOTH, WORDS, planted

    packages, finders = {}, list(sys.meta_path)
    for kind in [*CHANGES, *WORDS]:
        if kind not in ON_BOTH:
            packages[name := f"toy{len(packages)}"] = kind
            planted(kind, folder, name)
    sys.meta_path[:] = finders
    for kind, (text, replacement) in (PREPARED | UNCHANGED).items():
        packages[name := f"toy{len(packages)}"] = kind
        for side, source in (("base", PACKED), ("head", PACKED.replace(text, replacement))):
            place = folder / name / side / name
            place.mkdir(parents=True)
            (place / "__init__.py").touch()
            (place / "work.py").write_text(textwrap.dedent(source))
    return packages


def digests(folder, side):
    """Return the digests of one version of every package, by package and variant."""
    from test_observed_work import suite_of

    from lockstep.same_work.variant_digests import works
    from lockstep.suite.variants import load_family
    from lockstep.timing.device import open_device
    from lockstep.timing.rules.changed_shared_code import Trusted

    device, trusted, found = open_device(), Trusted(), {}
    for place in sorted(folder.iterdir()):
        sys.path.insert(0, str(place / side))
        suite = suite_of(place.name)
        family = load_family(suite)
        trusted.accept_settings()
        rules = trusted.with_variants(family.variants)
        found[place.name] = works(
            suite, suite.cases[0], list(family.variants), family, device, rules, place / side, lambda name: None
        )
    return found


@pytest.fixture(scope="module")
def sides(tmp_path_factory):
    if not os.environ.get("LOCKSTEP_TEST_GPU"):
        pytest.skip("captures CUDA graphs")
    folder = tmp_path_factory.mktemp("planted")
    packages = lay_out(folder)
    found = {}
    for side in ("base", "head"):
        environment = os.environ | {"PLANTED_OTHER_TILES": "9"}
        done = subprocess.run([sys.executable, __file__, folder, side], capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stderr[-2000:]
        found[side] = json.loads(done.stdout.splitlines()[-1])
    return {packages[name]: (found["base"][name], found["head"][name]) for name in packages}


def test_every_planted_change_has_another_digest_in_another_process(sides):
    from test_observed_work import CHANGES

    def same(base, head):
        return all(base[name] == head[name] != "" for name in base)

    assert [kind for kind, pair in sides.items() if kind in CHANGES | PREPARED and same(*pair)] == []


def test_words_have_the_same_digest_in_another_process(sides):
    from test_observed_work import WORDS

    differ = {
        kind: {name: (base[name], head[name]) for name in base if base[name] != head[name]}
        for kind, (base, head) in sides.items()
        if kind in WORDS | UNCHANGED
    }
    assert {kind: names for kind, names in differ.items() if names} == {}
    # The work of a variant that copies a value to the host, "together", may be unknown.
    known = [base[name] for base, _ in sides.values() for name in base if name != "together"]
    assert sum(map(bool, known)) > 0.9 * len(known)


if __name__ == "__main__":
    print(json.dumps(digests(Path(sys.argv[1]), sys.argv[2])))
