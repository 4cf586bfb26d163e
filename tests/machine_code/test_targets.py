"""Targets are read as people write them; occupancy follows NVIDIA's rules."""

import pytest

from lockstep.machine_code.targets import Target, TargetError, occupancy

H200 = Target(90, 132)


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("sm_90", Target(90, 132)),
        ("sm_80", Target(80, 108)),
        ("sm_100:160", Target(100, 160)),
        ("sm_121", Target(121, 48)),
        ("sm_87", Target(87, 16)),
    ],
)
def test_a_target_is_read(text, target):
    assert Target.parse(text) == target


@pytest.mark.parametrize(
    "text", ["", "hopper", "sm_9", "sm_70", "sm_90:0", "sm_90:", "gfx942", "sm_91", "sm_999", "sm_099", "sm90", "90"]
)
def test_a_text_that_is_not_a_target_is_refused(text):
    with pytest.raises(TargetError, match=f"'{text}' is not a target; give one of sm_80, sm_86, .*sm_121"):
        Target.parse(text)


def test_a_gpu_newer_than_the_tables_is_a_target_all_the_same():
    """Its driver answered; the limits are those of the nearest architecture below."""
    assert Target.of_host({"capability": "12.9", "sm_count": "20"}).limits.warps == 48


def test_a_hosts_gpu_is_a_target():
    assert Target.of_host({"capability": "9.0", "sm_count": "114"}) == Target(90, 114)


# Figures of cuda_occupancy.h of CUDA 13.0 for 9.0; all of 2,432 pairs of warps and registers agree with it.
@pytest.mark.parametrize(
    ("warps", "registers", "shared", "expected"),
    [
        (4, 32, 0, (16, "warps and registers")),
        (4, 168, 0, (3, "registers")),
        (8, 255, 0, (1, "registers")),
        (4, 128, 100 << 10, (2, "shared memory")),
        (1, 16, 0, (32, "blocks")),
        (1, 79, 0, (24, "registers")),
        (2, 40, 0, (24, "registers")),
        (21, 28, 0, (3, "warps and registers")),
        (8, 64, 113 << 10, (2, "shared memory")),
        (8, 32, 228 << 10, (0, "shared memory")),
        (16, 256 // 2 + 1, 0, (0, "registers")),
    ],
)
def test_occupancy_on_hopper(warps, registers, shared, expected):
    assert occupancy(H200, warps, registers, shared) == expected


def test_what_fits_an_a100_need_not_fit_a_consumer_gpu():
    assert occupancy(Target(80, 108), 4, 64, 100 << 10)[0] == 1
    assert occupancy(Target(120, 188), 4, 64, 100 << 10) == (0, "shared memory")
    assert occupancy(Target(100, 148), 4, 64, 0, tensor_columns=256) == (2, "tensor memory")
