"""Reports: the file in a real browser without a network, its answers against the server's, what it must not hold."""

import asyncio
import base64
import gzip
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import LAPTOP, ODD_NAME, View, fill_known, watched
from commands import Run
from playwright.sync_api import Browser, expect
from sample_trials import PROVENANCE, fill_store, store_url
from starlette.routing import Router
from store_samples import start

from protein.config.resolve import load
from protein.errors import UsageError
from protein.ports import Store
from protein.space import Float, Space
from protein.storage import open_store
from protein.types import Measurement, Outcome, Suggestion, SuggestionKind, SweepSpec, TrialEnd
from protein.web import report
from protein.web.packing import PackingError
from protein.web.report import Refused, address, ask, finished
from protein.web.viewer import Viewer

NOTE = 'ends here: </script><script>alert("note")</script><img src=x onerror=alert(1)> ünïcode \u2028 "quoted" \'too\''
SHOWN = ("pong", "loss", ODD_NAME, "failed")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """The URL of a store with unusual sweeps, and a report of four of them."""
    folder = tmp_path_factory.mktemp("report")
    url = store_url(folder)
    fill_known(url)
    store = open_store(url)
    sweeps = {sweep.spec.name: sweep for sweep in store.list_sweeps()}
    store.annotate(sweeps["pong"].id, [1], note=NOTE, tags=["</style>", "good"])
    store.annotate(sweeps["pong"].id, [4], excluded=True)
    file = folder / "a report's <file> & more.html"
    file.write_text(report.write(store, [sweeps[name] for name in SHOWN]).document, encoding="utf-8")
    store.close()
    return url, file


@pytest.fixture(scope="module")
def kept_page(browser: Browser, written: tuple[str, Path]) -> Iterator[View]:
    context = browser.new_context(**LAPTOP, offline=True)
    page = context.new_page()
    page.on("dialog", lambda dialog: pytest.fail(f"the report ran a script of its data: {dialog.message}"))
    yield watched(page, written[1].as_uri())
    context.close()


@pytest.fixture
def opened(kept_page: View) -> Iterator[View]:
    """The page of the report, from its file, without a network, which tests share."""
    kept_page.forget()
    yield kept_page
    kept_page.page.set_viewport_size(LAPTOP["viewport"])
    kept_page.check()


def unpacked(file: Path) -> dict[str, Any]:
    """What a report carries along."""
    match = re.search(r'id="pack">([^<]*)<', file.read_text(encoding="utf-8"))
    assert match is not None
    found: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(match.group(1))))
    return found


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ("table?sweep=pong", "7 trials"),
        ("front?sweep=pong", "Best config under"),
        ("front?sweep=pong&sweep=loss", "Score against cost"),
        ("curves?sweep=loss", "12 of 34"),
        ("compare?sweep=pong&sel=pong:0-1", "learning_rate"),
        ("compare?sweep=pong&sweep=failed", "has no complete trial yet"),
        ("parameters?sweep=pong", "Parallel coordinates"),
        ("parameters?sweep=loss", "Any two fields"),
        ("trial/pong/1", "Trial 1"),
        ("trial/loss/5", "crashed"),
        ("overview?sweep=pong", "What matters?"),
        ("overview?sweep=failed", "diverged"),
    ],
)
def test_every_page_opens_from_the_file(opened: View, place: str, text: str) -> None:
    opened.open(place)
    expect(opened.page.locator("main").get_by_text(text).first).to_be_visible()
    expect(opened.page.locator("main .state.loading")).to_have_count(0)
    text = opened.page.locator("main").inner_text()
    assert "defect" not in text and "report does not hold" not in text
    assert "as of" in opened.page.locator("header.bar").inner_text()


def test_texts_of_the_store_stay_texts(opened: View) -> None:
    opened.open("trial/pong/1")
    expect(opened.page.locator("main")).to_contain_text('</script><script>alert("note")</script>')
    expect(opened.page.locator("main")).to_contain_text("</style>")
    opened.open("table?sweep=pong")
    opened.page.locator("header.bar .picker-button").click()
    opened.page.get_by_role("button", name=ODD_NAME).click()
    expect(opened.page.locator("header.bar .picker-button")).to_contain_text(ODD_NAME)
    expect(opened.page.locator("main")).to_contain_text("<script>alert(2)</script>")
    assert opened.page.evaluate("document.querySelectorAll('main script, main b, main i, main img[src=x]').length") == 0


def test_rows_are_sorted_selected_and_saved_in_the_browser(opened: View, tmp_path: Path) -> None:
    opened.open("table?sweep=loss&sort=score")
    rows = opened.page.locator("tbody tr[data-index]")
    expect(rows.first).to_have_attribute("data-number", "20")
    opened.page.locator("thead").get_by_role("button", name="cost", exact=True).click()
    expect(rows.first).to_have_attribute("data-number", "39")
    with opened.page.expect_download() as saving:
        opened.page.get_by_role("button", name="Save CSV").click()
    lines = Path(saving.value.path()).read_text().splitlines()
    assert len(lines) == 41 and lines[1].startswith("39,")
    assert not opened.page.get_by_label("Filter trials").is_visible()
    opened.check_accessible()
    rows.nth(3).click()
    bar = opened.page.get_by_role("toolbar", name="Selected trials")
    expect(bar).to_contain_text("1 selected")
    assert "Exclude" not in bar.inner_text()  # nothing can be changed
    opened.page.keyboard.press("?")
    expect(opened.page.get_by_text("select all trials that match")).to_be_visible()
    assert opened.page.get_by_text("exclude the selected trials").count() == 0


QUESTIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("/table", {"sweep": ["pong"], "limit": 1000}),
    ("/table", {"sweep": ["loss", "pong"], "sort": "-score,number", "limit": 7, "offset": 3}),
    ("/table", {"sweep": ["loss"], "sort": "params.optimizer,-cost_seconds", "column": ["number", "params.width"]}),
    ("/table", {"sweep": ["loss"], "sort": "params.width", "column": ["number", "params.width"]}),
    ("/table", {"sweep": ["pong"], "limit": 0}),
    ("/trials", {"sweep": ["loss"], "sort": "-score"}),
    ("/front", {"sweep": ["loss", "pong"]}),
    ("/front/config", {"sweep": ODD_NAME, "number": 1}),
    ("/front/within", {"sweep": "loss", "least_cost": 5, "most_cost": 20, "least_score": 0.1, "most_score": 2}),
    ("/curves", {"sweep": ["loss"], "pick": "best", "limit": 5, "points": 100}),
    ("/curves", {"sweep": ["loss", "pong"], "pick": "spread", "limit": 9, "points": 100, "group": "params.lr"}),
    ("/curves", {"sweep": ["pong"], "pick": "newest", "limit": 500, "points": 100}),
    ("/curves", {"sweep": ["loss", "pong"], "pick": "selected", "sel": "loss:3.1,pong:2", "limit": 9, "points": 100}),
    ("/compare", {"sel": "pong:1.3,loss:0"}),
    ("/compare", {"sel": "pong:0-1"}),
    ("/scatter", {"sweep": ["loss"], "x": "cost_seconds", "y": "score", "color": "params.optimizer", "limit": 5000}),
    ("/scatter", {"sweep": ["loss"], "x": "params.lr", "y": "steps", "color": "params.layers", "limit": 5000}),
    ("/parallel", {"sweep": ["loss"], "limit": 1000}),
    ("/expected", {"sweep": "pong"}),
    ("/sweep/calibration", {"sweep": "pong"}),
)
# What tells two moments or two processes apart, or is only there for updates; and what a report carries fewer of.
UNLIKE = {"version", "schema", "epoch", "metrics", "scales"}


def test_the_report_answers_as_the_server_does(opened: View, written: tuple[str, Path]) -> None:
    opened.open("table?sweep=pong")
    store = open_store(written[0])
    viewer, router = served(store, written[0])
    ask_report = "async ([path, params]) => JSON.parse(JSON.stringify(await proteinApi.get(path, params)))"
    unlike: list[Any] = []
    try:
        for path, params in QUESTIONS:
            expected = finished(answered(router, path, params))
            found = opened.page.evaluate(ask_report, [path, params])
            if comparable(found) != comparable(expected):
                unlike.append((path, params, _first_difference(comparable(found), comparable(expected))))
    finally:
        viewer.stopping.set()
        store.close()
    assert not unlike


def _first_difference(one: Any, other: Any, where: str = "") -> str:
    if isinstance(one, dict) and isinstance(other, dict) and set(one) == set(other):
        return next(_first_difference(one[key], other[key], f"{where}.{key}") for key in one if one[key] != other[key])
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return next(
            _first_difference(a, b, f"{where}[{i}]") for i, (a, b) in enumerate(zip(one, other, strict=True)) if a != b
        )
    return f"{where}: {one!r:.300} != {other!r:.300}"


def served(store: Store, url: str) -> tuple[Viewer, Router]:
    viewer = Viewer(store, url, threading.Event())
    return viewer, report.router(viewer)


async def answered(router: Router, path: str, params: dict[str, Any]) -> Any:
    while True:
        found = await ask(router, path, params)
        if found.get("state") != "computing":
            return found
        await asyncio.sleep(0.05)


def comparable(value: Any) -> Any:
    """An answer without what may differ: sweeps are named by place, so places become names; commands name the store."""
    if isinstance(value, dict):
        value = {key: one for key, one in value.items() if key not in UNLIKE}
        if "keys" in value and "sweeps" in value:
            value["keys"] = [[value["sweeps"][at], number] for at, number in value["keys"]]
            del value["sweeps"]
        if {"words", "codes"} == set(value):
            return [value["words"][code] for code in value["codes"]]
        return {key: comparable(one) for key, one in value.items() if key not in ("write", "train", "ladder")}
    if isinstance(value, float):
        return float(f"{value:.6g}")  # as precise as what is sent for charts
    return [comparable(one) for one in value] if isinstance(value, list) else value


def test_a_question_that_the_report_cannot_answer_is_one_clear_line(opened: View) -> None:
    opened.open("table?sweep=pong")
    said = "([path, params]) => proteinApi.get(path, params).then(() => '', (error) => error.message)"
    not_held = "this report does not hold that; look at the sweep with protein view"
    for path, params, line in (
        ("/table", {"sweep": ["pong"], "filter": "x > 1"}, "filter: a report cannot filter; do it with protein view"),
        ("/trial", {"sweep": "pong", "number": 99}, not_held),
        ("/trial", {"sweep": "new", "number": 0}, not_held),
        ("/trial/log", {"sweep": "pong", "number": 0}, "a report does not carry the trials' logs"),
        ("/nothing", {}, not_held),
    ):
        assert opened.page.evaluate(said, [path, params]) == line


def test_a_narrow_screen_has_room_for_the_bar(opened: View) -> None:
    opened.page.set_viewport_size({"width": 390, "height": 780})
    opened.open("table?sweep=pong")
    name = opened.page.locator("header.bar .picker-label").bounding_box()
    date = opened.page.locator("header.bar .written").bounding_box()
    assert name is not None and date is not None
    assert name["width"] > 25 and name["x"] + name["width"] < date["x"]
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 390


def test_without_scripts_there_is_a_summary(browser: Browser, written: tuple[str, Path]) -> None:
    context = browser.new_context(java_script_enabled=False, offline=True)
    page = context.new_page()
    page.goto(written[1].as_uri())
    text = page.locator("main").inner_text()
    assert "pong: 4 complete, 1 capped, 1 failed, 1 interrupted" in text
    assert "train.learning_rate" in text and ODD_NAME in text
    assert page.locator("main img").count() == 3  # no trial of "failed" has a score
    assert page.evaluate("[...document.images].every((image) => image.naturalWidth > 300)")
    context.close()


def test_the_report_holds_no_path_and_no_other_sweep(written: tuple[str, Path]) -> None:
    url, file = written
    text = json.dumps(unpacked(file)["data"])
    assert str(file.parent) not in text and url not in text
    assert '"new"' not in text
    assert "pong" in text


def test_a_report_of_a_language_model_holds_no_path_and_draws_what_protein_view_draws(tmp_path: Path) -> None:
    store = open_store(store_url(tmp_path))
    config = load("text/python").run_config().to_dict()
    config["data"]["path"] = "/home/me/books/mine"
    spec = SweepSpec(
        name="mine",
        env="text/mine",
        method="protein",
        seed=0,
        space=Space([Float("train.learning_rate", 1e-3, 1.0, scale="log")]).to_dict(),
        config=config,
        provenance=PROVENANCE,
    )
    sweep = store.create_sweep(spec, None)
    for number, first in enumerate((1, 5)):
        suggestion = Suggestion(
            params={"train.learning_rate": 0.01},
            kind=SuggestionKind.CONTINUATION if number else SuggestionKind.INITIAL_CONFIG,
            origin="",
            continues=0 if number else None,
            continued_seconds=40.0 if number else 0.0,
        )
        trial = store.start_trial(
            sweep.id, suggestion, seed=0, owner="me", lease_seconds=60.0, suggest_seconds=0.1, provenance=PROVENANCE
        )
        points = [Measurement(steps=i, elapsed_seconds=10.0 * i / first, score=i / 9) for i in range(first, first + 4)]
        store.add_measurements(trial, points, 60.0)
        store.finish_trial(trial, Outcome(end=TrialEnd.COMPLETE, score=1.0, cost_seconds=40.0, steps=first + 3))
    file = tmp_path / "report.html"
    file.write_text(report.write(store, [sweep]).document, encoding="utf-8")
    store.close()
    found = unpacked(file)["data"]
    assert "/home/me" not in json.dumps(found)
    assert ["data.path", "mine"] in found["trials"]["mine"]["0"]["fixed"]
    first, second = found["curves"]["mine"]["curves"]
    assert "own_seconds" not in first and first["seconds"] == [10.0, 20.0, 30.0, 40.0]
    assert second["own_seconds"] == [10.0, 12.0, 14.0, 16.0] and second["seconds"] == [50.0, 52.0, 54.0, 56.0]


@pytest.mark.slow
def test_a_report_of_two_hundred_trials_fits_into_a_mail(folder: Path, run: Run) -> None:
    url = "sqlite:///runs/protein.db"
    (folder / "runs").mkdir()
    fill_long(url, 200, 150)
    printed = run("report long")
    assert re.fullmatch(r"report: long.html \(\d\.\d\d MiB\); open it in a browser\n", printed)
    size = (folder / "long.html").stat().st_size
    assert size < 2_000_000
    curves = unpacked(folder / "long.html")["data"]["curves"]["long"]["curves"]
    assert len(curves) == 200
    assert all(len(one["value"]) <= report.CURVE_POINTS and one["points"] == 150 for one in curves)


def fill_long(url: str, num_trials: int, num_points: int) -> None:
    store = open_store(url)
    spec = SweepSpec(name="long", env="own", method="random", seed=0, space={}, config={}, provenance=PROVENANCE)
    sweep = store.create_sweep(spec, None)
    for number in range(num_trials):
        trial = start(store, sweep, params={f"p{i}": (number * 37 % 101) / 101 + i for i in range(15)})
        points = [
            Measurement(steps=100 * i, elapsed_seconds=0.1 * i, score=(i * (number + 7)) % 89 / 89 + i / num_points)
            for i in range(num_points)
        ]
        store.add_measurements(trial, points, 600.0)
        store.finish_trial(trial, Outcome(end=TrialEnd.COMPLETE, score=-number / 7, cost_seconds=1.0 + number))
    store.close()


def test_what_cannot_be_reported_is_one_line(filled: Path, run: Run) -> None:
    fill_store("sqlite:///runs/protein.db", name="other")
    assert run.error("report").startswith("there are 2 sweeps; name one of them: pong, other")
    assert run.error("report pnog") == "there is no sweep 'pnog'; did you mean 'pong'?"
    assert run.error("report pong -o /proc/none/x.html").startswith("/proc/none/x.html cannot be written (")
    store = open_store("sqlite:///runs/protein.db")
    empty = store.create_sweep(
        SweepSpec(name="empty", env="own", method="random", seed=0, space={}, config={}, provenance=PROVENANCE), None
    )
    with pytest.raises(UsageError, match="there is nothing to report: 'empty' has no trial yet; let it run on"):
        report.write(store, [empty])
    store.close()


def test_a_sweep_without_a_trial_stands_in_a_report_of_several(filled: Path, run: Run) -> None:
    store = open_store("sqlite:///runs/protein.db")
    store.create_sweep(
        SweepSpec(name="empty", env="own", method="random", seed=0, space={}, config={}, provenance=PROVENANCE), None
    )
    store.close()
    run("report empty pong -o both.html")
    assert (filled / "both.html").stat().st_size > 100_000


def test_addresses_are_those_of_the_page(opened: View) -> None:
    opened.open("table?sweep=pong")
    params = {
        "sweep": [ODD_NAME, "b c+d"],
        "filter": "",
        "n": 0,
        "none": None,
        "flag": False,
        "sel": "a:1-3.5,b:2",
        "x": "~*'()!",
    }
    module = "async (params) => (await proteinImport('app.js', './lib/api.js')).address('/x', params)"
    assert opened.page.evaluate(module, params) == address("/x", params)


def test_refusals_keep_their_line_and_status() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 404, "headers": []})
        await send({"type": "http.response.body", "body": b'{"error": "there is no sweep"}'})

    with pytest.raises(Refused, match="there is no sweep") as caught:
        finished(ask(app, "/x"))
    assert caught.value.status == 404


def page_of(folder: Path, **files: str) -> Path:
    """A page's folder with the least that it needs, and some files; "__" stands for a slash, "_js" for the ending."""
    least = {
        "index.html": '<link rel="stylesheet" href="/static/css/a.css"><body><main></main></body>',
        "icon.svg": "<svg/>",
        "css/a.css": 'p { background: url("../icon.svg"); }',
        "css/report.css": "",
        "app.js": "",
        "report/boot.js": "",
        "lib/theme-first.js": "",
        "vendor/uPlot.iife.min.js": "",
    }
    given = {name.replace("__", "/").replace("_js", ".js"): text for name, text in files.items()}
    for name, text in {**least, **given}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_modules_are_packed_after_those_that_they_import(tmp_path: Path) -> None:
    app = 'import { a,\n  c } from "./lib/a.js";\nexport { b } from "./lib/b.js";\nn(await import(`./p/${n}.js`));'
    page = report.page(page_of(tmp_path, app_js=app, lib__a_js='import { b } from "./b.js";', lib__b_js=""))
    assert list(page.modules) == ["lib/b.js", "lib/a.js", "app.js"]
    assert page.modules["app.js"] == (
        'import { a,\n  c } from "\x01lib/a.js\x01";\nexport { b } from "\x01lib/b.js\x01";\n'
        'n(await proteinImport("app.js", `./p/${n}.js`));'
    )
    assert page.styles.startswith('p { background: url("data:image/svg+xml;base64,PHN2Zy8+"); }')


def test_modules_that_cannot_be_packed_are_a_defect(tmp_path: Path) -> None:
    circle = page_of(tmp_path / "a", lib__a_js='import { b } from "./b.js";', lib__b_js='import { a } from "./a.js";')
    with pytest.raises(PackingError, match=r"modules import each other: lib/a.js -> lib/b.js -> lib/a.js"):
        report.page(circle)
    with pytest.raises(PackingError, match=r"app.js imports lib/none.js, which is not there"):
        report.page(page_of(tmp_path / "b", app_js='import { a } from "./lib/none.js";'))
    closing = page_of(tmp_path / "c", report__boot_js="const a = '</script>';")
    with pytest.raises(PackingError, match="must not hold a closing tag"):
        report.document(report.page(closing), {}, title="", summary="", static=closing)


def test_of_a_long_sweep_the_fronts_the_best_and_the_newest_stay_whole(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "MAX_WHOLE", 12)
    monkeypatch.setattr(report, "MAX_TRIALS", 30)
    monkeypatch.setattr(report, "_ROWS", 20)
    (folder / "runs").mkdir()
    fill_long("sqlite:///runs/protein.db", 40, 3)
    printed = run("report long -o r.html").splitlines()
    assert printed[1] == (
        "left out, so that it can be sent: the 10 oldest of 40 trials of long; curves and details of 18 trials of long"
    )
    data = unpacked(folder / "r.html")["data"]
    assert [number for _, number in data["tables"]["long"]["keys"]] == list(range(10, 40))
    whole = {int(number) for number in data["trials"]["long"]}
    assert whole == {0, 10, 11, 12, 37, 38, 39, *range(32, 37)}  # the front, the best, the worst, the newest
    assert {one["number"] for one in data["curves"]["long"]["curves"]} == whole
