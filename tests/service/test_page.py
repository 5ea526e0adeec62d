"""A person's way through the page, in a real browser."""

from __future__ import annotations

import os
import shutil
from importlib.resources import files
from pathlib import Path

import pytest
from tests.service.conftest import CANARY, LONGEST, Deployment, prepare

import epsilearn

FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip


@pytest.fixture(scope="module")
def browser():
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        reason = "no Chromium on this machine; install Debian's chromium package"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=program, args=FLAGS)
        yield made
        made.close()


@pytest.fixture
def served(clinic, tmp_path):
    made = Deployment(tmp_path, str(tmp_path / "state.db"))
    prepare(made, clinic)
    yield made.start()
    made.stop()


class Person:
    """Somebody in front of a screen, who notices everything the browser complains about."""

    def __init__(self, browser, served, width=1280, height=900, scheme="light") -> None:
        self.context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, accept_downloads=True
        )
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", self._noticed)
        self.page.goto(served.url)

    def _noticed(self, message) -> None:
        # The browser itself notes every refused request; the page shows them.
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.complaints.append(message.text)

    def sign_in(self, key: str) -> None:
        self.find("sign-in-key").fill(key)
        self.find("sign-in-key").press("Enter")
        self.find("who").wait_for()

    def find(self, test: str, **attributes: str):
        more = "".join(f'[data-{name}="{value}"]' for name, value in attributes.items())
        return self.page.locator(f'[data-test="{test}"]{more}')

    def fits(self) -> bool:
        """Whether nothing sticks out at the side."""
        return self.page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")

    def download(self, document: str, folder: Path) -> str:
        with self.page.expect_download() as started:
            self.find("download", document=document).click()
        path = folder / document
        started.value.save_as(path)
        return path.read_text()

    def leave(self) -> None:
        self.context.close()
        assert self.complaints == []


def used(person, name):
    return float(person.find("budget", name=name).first.locator('[role="meter"]').get_attribute("aria-valuenow"))


def register(person):
    person.find("register-open").click()
    form = person.find("register-form")
    form.locator("[name=name]").fill("stays")
    form.locator("[name=file]").select_option("table.csv")
    form.locator("[name=epsilon]").fill("5")
    form.locator("[name=delta]").fill("1e-5")
    form.locator("[name=rule]").select_option("pure")
    form.locator("[name=schema_file]").select_option("table.toml")
    person.find("register-review").click()
    person.page.locator("[data-test=register-dialog] [data-test=confirm]").click()
    person.find("budget", name="stays").first.wait_for()


def open_release(person, kind, **fields):
    """Through the bill, which debits nothing, to the button that does."""
    before = used(person, "stays")
    person.find("open-release-open").click()
    form = person.find("open-release-form")
    form.locator("[name=kind]").select_option(kind)
    for name, value in fields.items():
        field = form.locator(f"[name={name}]")
        if field.evaluate("element => element.tagName") == "SELECT":
            field.select_option(value)
        else:
            field.fill(value)
    person.find("show-bill").click()
    person.find("bill").wait_for()
    assert "epsilon" in person.find("bill").inner_text()
    person.find("open-release").click()
    person.page.locator('[data-test="release-status"]', has_text="open").wait_for(timeout=60_000)
    return before


def test_the_whole_way_of_a_holder_and_an_analyst(browser, served, tmp_path):
    process, key = what_the_holder_does(Person(browser, served), served.key("holder", "ruth"), tmp_path)
    anna = Person(browser, served, width=390, height=844, scheme="dark")
    anna.sign_in(key)
    what_the_analyst_sees(anna, tmp_path)
    before = used(anna, "stays")
    asks_for_predictions(anna, process, tmp_path)
    asks_for_a_statistic(anna)
    assert used(anna, "stays") == pytest.approx(before + 100 * 0.5 / 5, rel=1e-6)
    assert CANARY not in anna.page.content()
    anna.find("sign-out").click()
    anna.find("sign-in-form").wait_for()
    assert anna.page.evaluate("sessionStorage.length") == 0
    anna.leave()


def what_the_holder_does(person, holder_key, tmp_path):
    """Registers a table, opens two releases, makes a key; where the first release is, and that key."""
    person.page.get_by_label("Key", exact=False).first.wait_for()
    person.page.locator('[data-test="sign-in-key"]').fill("epsk_wrong")
    person.page.locator('[data-test="sign-in-button"]').click()
    person.find("sign-in-fault").wait_for()
    assert "not valid" in person.find("sign-in-fault").inner_text()
    person.sign_in(holder_key)
    register(person)
    if "datasets/stays" not in person.page.url:
        person.find("dataset-link").first.click()
    person.find("open-release-open").wait_for()
    assert used(person, "stays") == 0
    open_release(person, "process", target="died", epsilon="1", delta="1e-6", kernel="linear", note="for the wards")
    process = person.page.url
    person.page.go_back()
    person.find("open-release-open").wait_for()
    assert used(person, "stays") > 0
    open_release(person, "statistics", epsilon="1")
    person.find("nav-keys").click()
    person.find("create-key-open").click()
    form = person.find("create-key-form")
    form.locator("[name=name]").fill("anna")
    person.find("create-key").click()
    dialog = person.page.locator("[data-test=create-key-dialog]")
    if dialog.locator("[data-test=confirm]").is_visible():
        dialog.locator("[data-test=confirm]").click()
    person.find("new-key").wait_for()
    analyst_key = person.find("new-key").input_value()
    assert analyst_key.startswith("epsk_")
    person.find("key-kept").click()
    person.find("nav-log").click()
    person.find("log-row").first.wait_for()
    person.page.screenshot(path=tmp_path / "log.png", full_page=True)
    person.leave()
    return process, analyst_key


def what_the_analyst_sees(anna, tmp_path):
    anna.find("dataset-link").first.click()
    anna.find("spending-plot").wait_for()
    assert anna.find("register-open").count() == 0
    assert anna.find("open-release-open").count() == 0
    assert anna.fits()
    anna.page.screenshot(path=tmp_path / "data-set.png", full_page=True)


def asks_for_predictions(anna, process, tmp_path):
    anna.page.goto(process)
    anna.find("predict-form").wait_for()
    anna.find("predict-button").click()
    anna.find("prediction-value").wait_for()
    first = anna.find("prediction").inner_text()
    with anna.page.expect_response(lambda answer: answer.url.endswith("/predict"), timeout=1000 * LONGEST) as again:
        anna.find("predict-button").click()
    again.value.finished()
    assert anna.find("prediction").inner_text() == first
    assert "Private answers about died" in anna.download("report.html", tmp_path)
    assert epsilearn.Guarantee.from_json(anna.download("guarantee.json", tmp_path)).epsilon == 1.0
    assert anna.fits()
    anna.page.screenshot(path=tmp_path / "release.png", full_page=True)


def asks_for_a_statistic(anna):
    """The debit is shown before it happens."""
    anna.find("nav-datasets").click()
    anna.find("dataset-link").first.click()
    anna.page.locator('[data-test="release-row"]', has_text="tatistics").locator("[data-test=release-link]").click()
    form = anna.find("statistic-form")
    form.locator("[name=statistic]").select_option("mean")
    form.locator("[name=column]").select_option("age")
    form.locator("[name=epsilon]").fill("0.5")
    anna.find("ask-button").click()
    anna.find("debit").wait_for()
    assert "0.5" in anna.find("debit").inner_text()
    anna.page.locator("[data-test=statistic-dialog] [data-test=confirm]").click()
    anna.find("statistic-value").wait_for()
    anna.find("nav-datasets").click()
    anna.find("budget", name="stays").first.wait_for()


def test_the_page_needs_nothing_from_elsewhere(served):
    names = [file.name for file in files("epsilearn.service").joinpath("page").iterdir()]
    assert {"index.html", "app.js", "style.css"} < set(names)
    for name in names:
        status, headers, body = served.raw("GET", "/" if name == "index.html" else f"/{name}")
        assert status == 200
        assert "charset=utf-8" in headers["content-type"]
        text = body.decode().replace("http://www.w3.org/2000/svg", "")
        assert "http://" not in text
        assert "https://" not in text
        assert "innerHTML" not in text
