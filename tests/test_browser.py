"""What the tests' own browser window promises."""

from browser import served


def test_a_page_knows_nothing_of_the_one_before(window, tmp_path):
    (tmp_path / "index.html").write_text("<title>x</title>")
    keep = "() => { localStorage.kept = 1; sessionStorage.kept = 1; document.cookie = 'kept=1; max-age=1000'; }"
    kept = "() => [localStorage.kept, sessionStorage.kept, document.cookie].filter(Boolean)"
    with served(tmp_path) as address:
        first = window.open(1280, 800)
        first.goto(address)
        first.evaluate(keep)
        assert len(first.evaluate(kept)) == 3
        second = window.open(1280, 800)
        second.goto(address)
        assert second.evaluate(kept) == []
        second.evaluate(keep)
        second.goto("about:blank")
        second.close()
        third = window.open(1280, 800)
        for page in (third, first):
            page.goto(address)
            assert page.evaluate(kept) == []
            page.close()


def test_a_phone_heeds_the_viewport_that_a_page_asks_for(window, tmp_path):
    (tmp_path / "asks.html").write_text("<meta name=viewport content='width=device-width'>")
    (tmp_path / "silent.html").write_text("<title>x</title>")
    with served(tmp_path) as address:
        page = window.open(390, 844, phone=True, color_scheme="dark")
        widths = {}
        for name in ("asks", "silent"):
            page.goto(f"{address}/{name}.html")
            widths[name] = page.evaluate("innerWidth")
        dark = page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
        page.close()
    assert (widths, dark) == ({"asks": 390, "silent": 980}, True)
