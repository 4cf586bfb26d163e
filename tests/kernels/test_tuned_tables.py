"""Tables of what was tuned: which row answers, what is written, and that the ones in the repository are today's."""

import importlib
import tomllib
from typing import NamedTuple

import pytest
import torch

from benchmarks import grouped as grouped_suites
from benchmarks import hgemm as hgemm_suite
from benchmarks import w4a16 as w4a16_suite
from kernels import grouped, hgemm, kda, linear, norm_linear, w4a16
from kernels.common import tables as choices
from kernels.common.tables import FAMILIES, Table, TableError
from kernels.grouped.launch_plan import MLP_TRAIN, TILE_CONFIG_OF
from kernels.hgemm import tiles as hgemm_tiles
from kernels.kda import stream_kernel as kda_stream
from kernels.linear.gemv_kernel import VECTORS
from kernels.linear.product_kernel import SPLIT
from kernels.w4a16.planes_kernel import Tile as Planes
from kernels.w4a16.ring_warp_specialized_kernel import Ring
from kernels.w4a16.stream_tiles import Stream
from lockstep.suite.discovery import load_suites
from lockstep.suite.variants import load_family
from lockstep.tuning.search_space import search_space_of, table_of, tunable

META = torch.device("meta")


class Tile(NamedTuple):
    m: int
    swapped: bool = False


def table(tmp_path, text, gpu=choices.DEFAULT):
    folder = tmp_path / "toy" / "tables"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{choices.slug(gpu)}.toml").write_text(f'gpu = "{gpu}"\n{text}')
    return Table("toy", tmp_path)


ROWS = """
tile = [
    { where = "K=4096, M<=4", use = { m = 4 } },
    { where = "K<=2048, M<=16", use = { m = 16, swapped = true } },
    { where = "M>=100", use = { m = 128 } },
]
"""


@pytest.mark.parametrize(
    ("M", "K", "tile"),
    [(4, 4096, Tile(4)), (5, 4096, None), (4, 2048, Tile(16, True)), (100, 1, Tile(128)), (99, 4097, None)],
)
def test_the_first_row_that_fits_answers(tmp_path, M, K, tile):
    toy = table(tmp_path, ROWS)
    assert toy.maybe("tile", Tile, "M K")(META, M, K) == tile
    if tile is None:
        with pytest.raises(TableError, match=rf"nvidia-h200.toml: tile has no row for M={M}, K={K}"):
            toy.choice("tile", Tile, "M K")(META, M, K)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('tile = [{ where = "M<5", use = { m = 4 } }]', "must be like"),
        ("tile = [{ m = 4 }]", "use"),
        ('tile = [{ where = "N=5", use = { m = 4 } }]', "sizes are M, K"),
        ("tile = [{ use = { n = 4 } }]", "tile.*unexpected keyword"),
        ("tile = [", "nvidia-h200.toml"),
    ],
)
def test_a_mistake_names_the_file_and_what_is_wrong(tmp_path, text, message):
    with pytest.raises(TableError, match=message):
        table(tmp_path, text).choice("tile", Tile, "M K")(META, 1, 1)


def test_a_table_is_read_once(tmp_path):
    toy = table(tmp_path, ROWS)
    ask = toy.choice("tile", Tile, "M K")
    assert ask(META, 4, 4096) == Tile(4)
    (tmp_path / "toy" / "tables" / "nvidia-h200.toml").unlink()
    assert ask(META, 4, 4096) == Tile(4)
    assert ask(META, 4, 2048) == Tile(16, True)


def test_what_is_tuned_comes_before_what_was_there_and_only_once(tmp_path):
    toy = table(tmp_path, ROWS)
    ask = toy.choice("tile", Tile, "M K", upto="M")
    about = {"date": "2026-11-21", "protocol": 1}
    for m in (7, 8):
        for M in (16, 8):
            path = toy.save("Toy GPU", about, [("tile", {"M": M, "K": 4096}, Tile(m * M))])
    assert path.name == "toy-gpu.toml"
    rows = toy.rows(path)["tile"]
    assert [row.where for row in rows[:3]] == [
        (("K", "=", 4096), ("M", "<=", 4)),
        (("K", "=", 4096), ("M", "<=", 8)),
        (("K", "=", 4096), ("M", "<=", 16)),
    ]
    assert [row.use["m"] for row in rows] == [4, 64, 128, 16, 128]
    written = tomllib.loads(path.read_text())
    assert written["gpu"] == "Toy GPU"
    assert written["protocol"] == 1
    assert sum(line.startswith("    {") for line in path.read_text().splitlines()) == 5
    # The default's own file is left alone, and a machine without a GPU still asks there.
    assert ask(META, 4, 4096) == Tile(4)
    assert toy.rows(toy.path(choices.DEFAULT))["tile"][0].use == {"m": 4}


def test_whoever_asks_is_told_of_a_new_table_after_it_was_written(tmp_path, monkeypatch):
    toy = table(tmp_path, ROWS)
    tile = toy.choice("tile", Tile, "M K", upto="M")
    told = []
    monkeypatch.setattr(choices, "ON_CHANGE", [lambda: told.append(tile(META, 8, 4096))])
    for _ in range(2):  # the second time changes nothing
        toy.save(choices.DEFAULT, {}, [("tile", {"M": 8, "K": 4096}, Tile(17))])
    assert told == [Tile(17)]


def test_tuning_keeps_where_the_other_rows_come_from(tmp_path):
    toy = table(tmp_path, f'source = "a sweep"\n{ROWS}')
    toy.choice("tile", Tile, "M K", upto="M")

    def source(gpu, said, m):
        rows = [("tile", {"M": rows, "K": 4096}, Tile(m)) for rows in (8, 16)]
        path = toy.save(gpu, {"source": said}, rows)
        return tomllib.loads(path.read_text())["source"]

    assert source(choices.DEFAULT, "lockstep tune", 7) == "a sweep; lockstep tune: tile"
    assert source(choices.DEFAULT, "lockstep tune", 8) == "a sweep; lockstep tune: tile"
    # The rows of another GPU say so, and not how that GPU was measured.
    assert source("Toy GPU", "lockstep tune", 9) == f"rows of the {choices.DEFAULT}; lockstep tune: tile"


def test_what_a_table_already_applies_adds_no_row(tmp_path):
    toy = table(tmp_path, ROWS)
    ask = toy.choice("tile", Tile, "M K", upto="M")
    before = toy.path(choices.DEFAULT).read_text()
    assert (
        toy.save(choices.DEFAULT, {"date": "2026-11-26"}, [("tile", {"M": 8, "K": 2048}, ask(META, 8, 2048))]) is None
    )
    assert toy.path(choices.DEFAULT).read_text() == before


def test_a_row_for_more_rows_leaves_what_was_tuned_before_as_it_was(tmp_path):
    toy = table(tmp_path, ROWS)
    ask = toy.choice("tile", Tile, "M K", upto="M")
    settled = [("tile", {"M": M, "K": 2048}, Tile(m)) for M, m in ((8, 8), (64, 16), (256, 32))]
    for number, (name, sizes, config) in enumerate(settled):
        toy.save(choices.DEFAULT, {}, [(name, sizes, config), *settled[:number]])
    # A win at more rows with the configuration of the fewest.
    toy.save(choices.DEFAULT, {}, [("tile", {"M": 1024, "K": 2048}, Tile(8)), *settled])
    assert [ask(META, M, 2048) for M in (8, 64, 256, 1024)] == [Tile(8), Tile(16), Tile(32), Tile(8)]


def test_tuning_leaves_the_general_rows_in_their_order(tmp_path):
    """The first that fits is taken: one that was moved behind a wider one would never be asked again."""
    general = [("aligned=0, M>=2048", 1), ("aligned=0", 2), ("M<=32", 3), ("N=8, M<=64", 4)]
    listed = "\n".join(f'{{ where = "{where}", use = {use} }},' for where, use in general)
    toy = table(tmp_path, f"best = [{listed}]")
    toy.choice("best", int, "M N aligned", upto="M")
    for M in (64, 16):
        path = toy.save(choices.DEFAULT, {}, [("best", {"M": M, "N": 8, "aligned": 1}, M)])
    assert [row.use for row in toy.rows(path)["best"]] == [16, 64, 1, 2, 3, 4]


def test_a_gpu_without_a_table_gets_the_default_and_says_so(tmp_path, monkeypatch):
    toy = table(tmp_path, ROWS)
    assert toy.note() == ""
    monkeypatch.setattr(choices, "gpu_name", lambda device: "Other GPU")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert toy.note() == "no table for Other GPU: tiles and dispatch are those of an NVIDIA H200"
    assert toy.choice("tile", Tile, "M K")(META, 4, 4096) == Tile(4)
    monkeypatch.setattr(hgemm, "TABLE", toy)
    assert load_family(hgemm_suite.Hgemm()).note == toy.note()


@pytest.mark.parametrize(
    "path", sorted(FAMILIES.glob("*/tables/*.toml")), ids=lambda path: f"{path.parts[-3]}/{path.stem}"
)
def test_every_row_of_the_repository_is_read_and_every_choice_has_one(path):
    family = importlib.import_module(f"kernels.{path.parts[-3]}").TABLE
    rows = family.rows(path)
    assert set(rows) <= set(family.choices)
    for name, listed in rows.items():
        choice = family.choices[name]
        for row in listed:
            assert {size for size, _, _ in row.where} <= set(choice.sizes), (name, row)
            made = choice.kind(**row.use) if isinstance(row.use, dict) else choice.kind(row.use)
            assert made == (row.use if not isinstance(row.use, dict) else tuple({**made._asdict(), **row.use}.values()))


def test_hgemm_calls_on_an_h200_what_was_measured_to_be_best():
    best = {case.label: hgemm.BEST(META, *sizes(case)) for case in hgemm_suite.Hgemm.cases}
    assert {label for label, name in best.items() if name != "cublaslt"} == {"M=512,N=512,K=512"}
    other = [
        hgemm.BEST(META, M, N, K, False, M * N) for M, N, K in ((8192, 4096, 2048), (4096, 4096, 8192), (64, 64, 64))
    ]
    assert other == ["warp_specialized", "tma", "torch"]
    assert all(hgemm.ALGORITHM(META, *sizes(case)[:4]) for case in hgemm_suite.Hgemm.cases)
    assert set(best.values()) <= set(hgemm.CANDIDATES["best"](2048, 2048, 2048).configs)
    assert hgemm.TILE_CONFIG(META, 2048, 2048, 2048) in hgemm.CANDIDATES["warp_specialized"](2048, 2048, 2048).configs


def sizes(case):
    M, N, K = case["M"], case["N"], case["K"]
    return M, N, K, bool(dict(case).get("beta")), M * N


@pytest.mark.parametrize(
    ("op", "ragged", "B", "G", "name"),
    [
        ("linear", False, 2560, 12, "warp_specialized"),
        ("linear", False, 256, 12, "bmm"),
        ("linear", True, 2560, 12, "warp_specialized"),
        ("linear", True, 1024, 4, "warp_specialized"),
        ("linear", True, 256, 12, "tma"),
        ("linear_train", False, 2560, 12, "warp_specialized"),
        ("linear_train", False, 256, 12, "warp_specialized"),
        ("linear_train", True, 2560, 12, "warp_specialized"),
        ("linear_train", True, 1024, 4, "tma"),
        ("mlp", False, 256, 12, "tma"),
        ("mlp", False, 2560, 12, "warp_specialized"),
        ("mlp", True, 2560, 12, "tma"),
        ("mlp_train", False, 2560, 12, "warp_specialized"),
        ("mlp_train", False, 1024, 4, "warp_specialized"),
        ("mlp_train", True, 2560, 12, "tma"),
    ],
)
def test_grouped_calls_on_an_h200_what_was_measured_to_be_best(op, ragged, B, G, name):
    assert grouped.BEST[op](META, ragged, B, G, 1024, 3072) == name
    space = grouped.CANDIDATES[f"{op}.best"](B=B, G=G, K=1024, ragged=ragged, **{"N" if "linear" in op else "H": 3072})
    assert name in space.configs
    assert set(grouped_suites.Linear().variants()) >= set(space.configs)


@pytest.mark.parametrize(("B", "G"), [(2560, 12), (1024, 4), (256, 12)])
@pytest.mark.parametrize("op", ["linear", "linear_train", "mlp", "mlp_train"])
def test_grouped_offers_the_parts_that_an_h200_takes(op, B, G):
    space = grouped.CANDIDATES[f"{op}.warp_specialized"](B, G, 1024, 3072)
    taken = grouped.TABLE.choices[space.choice].demand(META, *space.sizes.values())
    assert taken in space.configs
    assert len(set(space.configs)) == len(space.configs) <= 12


@pytest.mark.parametrize("op", ["mlp", "mlp_train"])
def test_only_plain_products_of_ragged_groups_have_warp_specialized_candidates(op):
    assert not grouped.CANDIDATES[f"{op}.warp_specialized"](2560, 12, 1024, 3072, ragged=True).configs
    assert "warp_specialized" not in grouped.CANDIDATES[f"{op}.best"](2560, 12, 1024, True, H=3072).configs


@pytest.mark.parametrize(
    ("M", "K", "N", "name"),
    [
        (1, 4096, 2048, "gemv"),
        (3, 4096, 2048, "turns"),
        (3, 4096, 2112, "direct"),
        (8, 4096, 2048, "turns"),
        (16, 4096, 2048, "spread"),
        (32, 4096, 2048, "turns"),
        (32, 7168, 576, "spread"),
        (33, 4096, 2048, "split_k"),
        (32, 4096, 2049, "split_k"),
        (65, 4096, 2048, "torch"),
        (3, 7168, 576, "stream"),
        (3, 7168, 2112, "spread"),
        (33, 7168, 2112, "split_k"),
        (1, 512, 256, "torch"),
        (1, 1536, 3072, "gemv"),
        (8, 1536, 3072, "direct"),
        (32, 1536, 3072, "share"),
        (32, 1536, 2048, "stream"),
        (33, 1536, 3072, "torch"),
    ],
)
def test_linear_calls_on_an_h200_what_was_measured_to_be_best(M, K, N, name):
    assert linear.BEST(META, M, K, N) == name
    assert name in linear.CANDIDATES["best"](M=M, K=K, N=N).configs


@pytest.mark.parametrize(("M", "tried"), [(32, True), (33, False), (64, False)])
def test_kda_tries_stream_only_where_it_runs(M, tried):
    assert ("stream" in kda.CANDIDATES["best"](M=M, K=2304, heads=4).configs) == tried


@pytest.mark.parametrize(
    ("M", "heads", "name"),
    [
        (1, 8, "stream"),
        (2, 8, "stream"),
        (32, 4, "stream"),
        (33, 8, "torch"),
        (64, 4, "triton"),
        (4096, 4, "persistent"),
    ],
)
def test_kda_calls_on_an_h200_what_was_measured_to_be_best(M, heads, name):
    space = kda.CANDIDATES["best"](M=M, K=2304, heads=heads)
    assert kda.BEST(META, *space.sizes.values()) == name
    assert set(space.configs) <= set(kda.BACKENDS)
    assert name in space.configs


def crews(tokens, channels, stages, registers=128):
    return Stream(tokens, channels, 1, stages, 1, 4, registers, late=True)


#: Of each shape of the suite, what a sweep on an H200 found to be fastest.
W4A16_WAYS = {
    (8192, 8192, 128): {
        **dict.fromkeys((1, 2, 4), crews(8, 128, 2)),
        8: Stream(8, 64, 2, 2, 1, 4, 128, late=True),
        16: crews(16, 128, 2),
        32: Planes(32, 128, 8, 4, 2, scale_weights=True),
        64: Planes(64, 128, 8, 4, 2, scale_weights=True),
        128: Ring(128, 4, 2),
        256: Ring(128, 4),
        **dict.fromkeys((512, 1024, 4096), Ring(256, 2)),
    },
    (4096, 14336, 128): {
        1: crews(8, 128, 3),
        16: crews(16, 128, 3),
        32: Planes(32, 128, 8, 4, 2, scale_weights=True),
        64: Ring(64, 4),
        128: Ring(128, 4),
        256: Ring(256, 2),
    },
    (4096, 4096, 128): {
        1: crews(8, 128, 3),
        16: Stream(16, 64, 2, 4, 1, 2, 128, late=True),
        32: Planes(16, 128, 8, 4, 2, scale_weights=True),
        64: Planes(64, 64, 4, 4, 2, scale_weights=True),
        **dict.fromkeys((128, 256), Planes(128, 64, 4, 4, 1, scale_weights=True)),
    },
    (8192, 8192, "channel"): {
        1: crews(8, 64, 3, registers=64),
        16: crews(16, 64, 3, registers=64),
        64: Planes(64, 128, 8, 4, 2, scale_weights=True),
        256: Ring(128, 3),
        4096: Ring(256, 2),
    },
}


@pytest.mark.parametrize("case", w4a16_suite.W4A16.cases, ids=lambda case: case.label)
def test_w4a16_takes_on_an_h200_what_was_measured_to_be_best(case):
    M, K, N, group = case["M"], case["K"], case["N"], case["group"]
    asked = (META, M, K, N, group != "channel", K * N)
    name = w4a16.BEST(*asked)
    assert {"stream": w4a16.STREAM, "planes": w4a16.TILE, "ring": w4a16.RING}[name](*asked) == W4A16_WAYS[K, N, group][
        M
    ]
    assert name in w4a16.CANDIDATES["best"](**dict(case)).configs


@pytest.fixture
def on_an_h100(monkeypatch):
    """Ask the tables of an H100, and forget the answers afterwards."""
    monkeypatch.setattr(choices, "gpu_name", lambda device: "NVIDIA H100 80GB HBM3")
    asked = [choice for family in (grouped, hgemm, kda, linear, w4a16) for choice in family.TABLE.choices.values()]
    for choice in asked:
        choice.ask.cache_clear()
        choice.demand.cache_clear()
    yield
    for choice in asked:
        choice.ask.cache_clear()
        choice.demand.cache_clear()


@pytest.mark.usefixtures("on_an_h100")
def test_an_h100_takes_what_its_own_sweeps_found_to_be_fastest():
    best = {case.label: hgemm.BEST(META, *sizes(case)) for case in hgemm_suite.Hgemm.cases}
    assert {label for label, name in best.items() if name == "torch"} == {
        "M=1024,N=1024,K=1024",
        "M=2048,N=2048,K=2048",
        "M=8192,N=8192,K=512",
        "M=8192,N=8192,K=1024",
    }
    assert {label for label, name in best.items() if "alpha" not in label and name == "tma"} == {
        "M=512,N=512,K=512",
        "M=4096,N=4096,K=4096",
        "M=8192,N=8192,K=8192",
    }
    assert hgemm_tiles.TILE(META, 512, 512, 512) in hgemm.CANDIDATES["tma"](512, 512, 512).configs
    assert hgemm_tiles.TILE(META, 1024, 1024, 1024) is None
    for tokens in (8, 16, 32):
        assert kda_stream.STREAM(META, tokens) == kda.CANDIDATES["stream"](tokens).configs[0]
        asked = (META, tokens, 8192, 8192, True, 8192 * 8192)
        assert w4a16.BEST(*asked) == "stream"
        assert w4a16.STREAM(*asked)[1:6] in [
            config[1:6] for config in w4a16.CANDIDATES["stream"](tokens, 8192, 8192, 128).configs
        ]
    assert kda_stream.STREAM(META, 33) is None
    assert VECTORS(META, 1, 4096, 2048)[:2] == (2, 2048)
    assert SPLIT(META, 64, 4096, 2048).ahead == 2
    assert TILE_CONFIG_OF["linear_train"](META, 2560, 12, 1024, 3072) == "k64s3b4"
    assert set(MLP_TRAIN(META, 2560, 12, 1024, 3072)) == {"k64s3b4"}


@pytest.mark.parametrize("case", w4a16_suite.W4A16.cases, ids=lambda case: case.label)
@pytest.mark.parametrize("variant", ["planes", "stream", "ring"])
def test_w4a16_tunes_a_tile_only_where_the_variant_runs(variant, case):
    space = w4a16.CANDIDATES[variant](**dict(case))
    assert len(set(space.configs)) == len(space.configs) <= 12
    if w4a16.BEST(META, *space.sizes.values()) == variant:
        assert space.configs


@pytest.mark.parametrize(
    ("M", "linear_of_apart", "name"), [(2, "gemv", "overlapped"), (64, "split_k", "overlapped"), (65, None, "torch")]
)
def test_norm_linear_calls_on_an_h200_what_linear_does(M, linear_of_apart, name):
    assert norm_linear.APART(META, M, 4096, 2048) == linear_of_apart
    assert norm_linear.BEST(META, M, 4096, 2048) == name
    assert name in norm_linear.CANDIDATES["best"](M=M, K=4096, N=2048).configs


@pytest.mark.parametrize("name", load_suites(FAMILIES.parent / "benchmarks"))
def test_the_table_applies_something_at_every_case_that_can_be_tuned(name):
    suite = load_suites(FAMILIES.parent / "benchmarks")[name]
    for variant in tunable(suite):
        for case in suite.all_cases:
            space = search_space_of(suite, variant, case)
            if space.configs:
                table_of(suite).applied(choices.DEFAULT, space.choice, space.sizes)
