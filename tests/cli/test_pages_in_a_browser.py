"""The pages in a real browser: read, searched, filtered, printed, by keyboard, light and dark, on a narrow screen.

Screenshots are left in `build/pages/`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from playwright.sync_api import Browser, Error, Page, expect

from reconciler.cli.html.plan_report import build_plan_report
from reconciler.cli.html.report import render_page
from reconciler.process import Forge
from reconciler.runtime.text import escape_invisible
from tests.cli import sample_results
from tests.cli.test_foreign_text import _plan
from tests.cli.test_pages import BREAKERS
from tests.servers.browser import axe_script, chromium

if TYPE_CHECKING:
    from reconciler.planning.plan import Plan
    from tests.cli.conftest import Run

pytestmark = [pytest.mark.thorough, pytest.mark.xdist_group("browser")]

PICTURES: Final = Path(__file__).parents[2] / "build" / "pages"
FORGE: Final = Forge("https://git.example/a/b/blob/c/", "https://git.example/a/b/commit/")
LOOKS: Final[Mapping[str, Mapping[str, Any]]] = {
    "light": {"color_scheme": "light", "viewport": {"width": 1280, "height": 900}},
    "dark": {"color_scheme": "dark", "viewport": {"width": 1280, "height": 900}},
    "narrow": {"color_scheme": "light", "viewport": {"width": 400, "height": 800}},
}
SECOND_MS: Final = 1000
_TRIES: Final = 10


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture
def opened(browser: Browser, tmp_path: Path) -> Iterator[Callable[..., Page]]:
    """Open a page; nothing may be said on its console, asked of the network or thrown."""
    wrong: list[str] = []
    contexts = []

    def start(body: bytes, **look: Any) -> Page:
        file = tmp_path / f"page{len(contexts)}.html"
        file.write_bytes(body)
        context = browser.new_context(**(LOOKS["light"] | look))
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: wrong.append(message.text))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("dialog", lambda dialog: wrong.append(dialog.message))
        page.on("request", lambda asked: None if asked.url == file.as_uri() else wrong.append(asked.url))
        page.goto(file.as_uri())
        return page

    yield start
    for context in contexts:
        context.close()
    assert wrong == []


def body_of(plan: Plan) -> bytes:
    return render_page(build_plan_report(plan), FORGE)


def violations(page: Page) -> list[str]:
    page.evaluate(axe_script())
    found = page.evaluate("axe.run({resultTypes: ['violations']})")
    return [f"{each['id']}: {[node['target'] for node in each['nodes']]}" for each in found["violations"]]


def keep(page: Page, name: str) -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    for attempt in range(_TRIES):
        try:
            page.screenshot(path=PICTURES / f"{name}.png", full_page=True)
        except Error as error:
            # So it answers until it has painted for the first time.
            if "Unable to capture" not in error.message or attempt == _TRIES - 1:
                raise
        else:
            return


def status(page: Page) -> str:
    return page.get_by_role("status").inner_text()


PLANS: Final = {
    "everything": sample_results.everything,
    "empty": sample_results.empty,
    "refused": sample_results.refused,
    "mounts": sample_results.mount_plan,
    "roles": sample_results.roles,
}


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("name", PLANS)
def test_a_plan_is_open_to_everybody_in_every_look(opened: Callable[..., Page], name: str, look: str) -> None:
    page = opened(body_of(PLANS[name]()), **LOOKS[look])
    keep(page, f"plan-{name}-{look}")
    assert violations(page) == []
    unfold = page.get_by_role("button", name="Unfold all")
    if unfold.count():
        unfold.click()
        assert page.locator("details:not([open])").count() == 0
        keep(page, f"plan-{name}-{look}-unfolded")
        assert violations(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_the_pages_of_the_commands(opened: Callable[..., Page], run: Run, tmp_path: Path) -> None:
    assert run("init").returncode == 0
    topics = next(path for path in (tmp_path / "manifests").glob("*.yaml") if "kind: Topic" in path.read_text())
    topics.write_text(topics.read_text().replace("  partitions: 3", "  partitions: 3\n  configs: {retention.ms: 7d}"))
    for command in ("apply --yes", "topic alter topic/west/shop:orders --set retention.ms=1h --no-state"):
        assert run(*command.split()).returncode == 0, command
    for command, code in {"drift": 3, "plan": 0}.items():
        said = run(command, "--format", "html")
        assert said.returncode == code, said.stderr
        page = opened(said.stdout.encode())
        keep(page, command)
        assert violations(page) == []
    (tmp_path / "manifests" / "broken.yaml").write_text("kind: [\n")
    page = opened(run("plan", "--format", "html").stdout.encode())
    keep(page, "errors")
    assert page.get_by_role("heading", level=1).inner_text().endswith("was not planned")
    assert violations(page) == []


def test_rows_are_found_by_words_chips_and_choices_and_the_count_is_told(opened: Callable[..., Page]) -> None:
    page = opened(body_of(sample_results.everything()))
    assert status(page) == "18 rows"
    page.keyboard.press("/")
    page.keyboard.type("retention 3d")
    expect(page.get_by_role("status")).to_have_text("1 of 18 rows")
    assert page.locator(".row .name").all_inner_texts() == ["topic/west/shop:eu:logs"]
    page.keyboard.press("Escape")
    assert status(page) == "18 rows"
    blocked = page.get_by_role("button", name="blocked", exact=False).first
    blocked.click()
    assert blocked.get_attribute("aria-pressed") == "true"
    assert status(page) == "2 of 18 rows"
    blocked.click()
    page.get_by_label("kind").select_option("mirror")
    assert {name.partition("/")[0] for name in page.locator(".row .name").all_inner_texts()} <= {
        "mirror",
        "catch-up mirror",
        "mirror mirror",
    }
    page.get_by_role("searchbox").fill("nothing is called so")
    page.get_by_role("button", name="Show all").click()
    assert status(page) == "18 rows"


def test_owners_are_chosen_by_their_labels(opened: Callable[..., Page]) -> None:
    topics = [sample_results.topic(f"shop:eu:t{number}") for number in range(3)]
    owned = [
        each.model_copy(update={"metadata": each.metadata.model_copy(update={"labels": labels})})
        for each, labels in zip(topics, ({"team": "checkout"}, {"owner": "growth", "team": "x"}, {}), strict=True)
    ]
    actions = tuple(sample_results.Create(address=each.address, after=each) for each in owned)
    page = opened(body_of(dataclasses.replace(sample_results.empty(), actions=actions)))
    assert page.get_by_label("owner").locator("option").all_inner_texts() == ["all", "checkout (1)", "growth (1)"]
    page.get_by_label("owner").select_option("growth")
    assert page.locator(".row .name").all_inner_texts() == ["topic/west/shop:eu:t1"]


def test_all_of_it_is_done_by_keyboard(opened: Callable[..., Page]) -> None:
    page = opened(body_of(sample_results.everything()))
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.keyboard.press("j")
    first = page.locator("details.row").first
    assert first.locator("summary").evaluate("each => each === document.activeElement")
    assert first.evaluate("each => each.open")
    page.keyboard.press("Enter")
    assert not first.evaluate("each => each.open")
    page.keyboard.press("j")
    page.keyboard.press("k")
    assert first.locator("summary").evaluate("each => each === document.activeElement")


def test_what_is_to_be_pasted_is_copied_whole(opened: Callable[..., Page]) -> None:
    page = opened(body_of(sample_results.everything()))
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy digest").click()
    expect(page.get_by_role("status")).to_have_text("Copied.")
    assert page.evaluate("navigator.clipboard.readText()") == sample_results.DIGEST


def test_files_are_linked_at_their_lines(opened: Callable[..., Page]) -> None:
    page = opened(body_of(sample_results.refused()))
    link = page.get_by_role("link", name="manifests/topics.yaml:88")
    assert link.get_attribute("href") == f"{FORGE.files}manifests/topics.yaml#L88"


@pytest.mark.parametrize("name", BREAKERS)
def test_a_hostile_name_is_only_ever_seen(opened: Callable[..., Page], name: str) -> None:
    page = opened(body_of(_plan(name)))
    page.get_by_role("button", name="Unfold all").click()
    assert escape_invisible(f"topic/west/{name}") in page.locator(".row .name").all_text_contents()
    assert page.locator("img, iframe, b, script:not(#data)").count() == 1, "our own script alone"
    assert page.evaluate("document.title") == f"Plan for {escape_invisible(name)} ({escape_invisible(name)})".replace(
        "\t", " "
    )


def test_ten_thousand_actions_are_open_within_a_second(opened: Callable[..., Page]) -> None:
    body = body_of(sample_results.many(10_000))
    times = []
    for _ in range(3):
        page = opened(body)
        times.append(page.evaluate("performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd"))
    keep(page, "plan-10000")
    print(f"10,000 actions: {len(body) / 2**20:.1f} MiB, open after {min(times):.0f} ms")  # noqa: T201
    assert min(times) < SECOND_MS
    assert status(page) == "10,004 rows"
    took = page.evaluate(
        """async () => {
          const box = document.getElementById("search");
          const began = performance.now();
          box.value = "topic-009999";
          box.dispatchEvent(new Event("input"));
          while (!document.querySelector("[role=status]").textContent.startsWith("1 of")) {
            await new Promise(requestAnimationFrame);
          }
          return performance.now() - began;
        }"""
    )
    assert took < SECOND_MS
    page.get_by_role("searchbox").fill("")
    expect(page.get_by_role("status")).to_have_text("10,004 rows")
    page.locator(".more-rows:visible").first.scroll_into_view_if_needed()
    expect(page.locator(".row").nth(150)).to_be_attached()


def test_on_paper_everything_is_unfolded_and_nothing_can_be_pressed(opened: Callable[..., Page]) -> None:
    page = opened(body_of(sample_results.everything()))
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details:not([open])").count() == 0
    assert page.locator("button:visible, input:visible, select:visible").count() == 0
    keep(page, "plan-on-paper")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("details:not([open])").count() > 0
    assert page.pdf(format="A4").startswith(b"%PDF")


def test_without_scripts_danger_is_read_all_the_same(opened: Callable[..., Page]) -> None:
    page = opened(body_of(sample_results.everything()), java_script_enabled=False)
    keep(page, "plan-without-scripts")
    assert page.get_by_text("data loss: about 18 GiB expire now").is_visible()
    assert page.get_by_text("needs its own script").is_visible()
