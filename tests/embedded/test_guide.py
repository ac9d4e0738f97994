"""The guide's code runs as it stands, and prints what the guide says."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "embedded-library.md"
BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_guide_does_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    printed: str | None = None
    compared = 0
    for language, text in BLOCK.findall(GUIDE.read_text(encoding="utf-8")):
        if language == "python":
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile(text, str(GUIDE), "exec"), names)  # noqa: S102 - the page is ours
            printed = out.getvalue()
        elif printed is not None:
            assert printed == text
            printed, compared = None, compared + 1
    assert compared == 4
    folders = {str(path.parent.relative_to(tmp_path)) for path in tmp_path.rglob("*.*") if ".store" not in path.parts}
    assert {"clusters/west", "clusters/west/catalog", "clusters/west/topics/shop/eu/orders_2"} <= folders


@pytest.mark.parametrize(("page", "shown"), [("groups.md", 2), ("transactions.md", 4), ("upkeep.md", 1)])
def test_the_code_of_other_guides_prints_what_they_show(page: str, shown: int) -> None:
    names: dict[str, Any] = {}
    blocks = BLOCK.findall((GUIDE.parent / page).read_text(encoding="utf-8"))
    assert [language for language, _ in blocks] == ["python", "text"] * shown
    for (_, code), (_, said) in zip(blocks[::2], blocks[1::2], strict=True):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(code, page, "exec"), names)  # noqa: S102 - the page is ours
        assert out.getvalue() == said


def test_producing_and_consuming_takes_ten_lines() -> None:
    _, first = BLOCK.search(GUIDE.read_text(encoding="utf-8")).groups()  # type: ignore[union-attr]  # it has a block
    assert len([line for line in first.splitlines() if line and "import" not in line]) <= 10
