"""Draws docs/plan.svg, the picture of the README, from what `reconciler plan` prints on a terminal: `make schemas`."""

from __future__ import annotations

import html
import re
import shutil
import subprocess
import sys
import tempfile
from io import StringIO
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from tests.cli.conftest import environment
from tests.cli.terminals import on_terminal
from tests.docs import markdown

FILE: Final = markdown.ROOT / "docs" / "plan.svg"
COMMAND: Final = "reconciler plan"
_RECONCILER: Final = Path(sys.executable).with_name("reconciler")
_COLUMNS: Final = 120
_FONT: Final = "ui-monospace, SFMono-Regular, Menlo, Consolas, monospace"
_FORM: Final = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: FONT; font-size: {char_height}px; line-height: {line_height}px; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: FONT; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
""".replace("FONT", _FONT)

_REFUNDS = """\
---
apiVersion: reconciler/v1
kind: Topic
metadata: {name: refunds, namespace: "shop:eu", cluster: local, labels: {team: checkout}}
spec:
  partitions: 6
"""


def printed() -> str:
    """Return what `plan` prints on a terminal after the edits that the README tells of."""
    with tempfile.TemporaryDirectory() as scratch:
        made = shutil.ignore_patterns(".*")
        folder = Path(
            shutil.copytree(markdown.ROOT / "examples" / "quickstart", Path(scratch) / "quickstart", ignore=made)
        )
        subprocess.run([_RECONCILER, "apply", "--yes"], cwd=folder, capture_output=True, check=True)
        edit(folder / "manifests" / "topics.yaml")
        code, text = on_terminal([str(_RECONCILER), "plan"], cwd=folder, environ=environment(TERM="xterm-256color"))
        assert code == 7, text  # it blocks a delete
        return text.replace("\r\n", "\n")


def edit(topics: Path) -> None:
    """Grow one topic, remove one, add one, and change what all of them inherit."""
    namespace, orders, _customers = topics.read_text(encoding="utf-8").split("---\n")
    namespace = namespace.replace("retention.ms: 30d", "retention.ms: 60d")
    orders = orders.replace("partitions: 6", "partitions: 12")
    topics.write_text(f"{namespace}---\n{orders}{_REFUNDS}", encoding="utf-8")


def picture(text: str) -> str:
    """Return the picture of what a terminal shows."""
    console = Console(record=True, width=_COLUMNS, file=StringIO(), force_terminal=True)
    console.print(Text.from_ansi(text))
    svg = console.export_svg(title=COMMAND, theme=MONOKAI, code_format=_FORM, unique_id="plan")
    return "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"


def words_in(svg: str) -> list[str]:
    """Return the words that a picture shows, in their order."""
    return html.unescape(" ".join(re.findall(r"<text[^>]*>([^<]*)</text>", svg))).split()


def repeatable(words: list[str]) -> list[str]:
    """Return a plan's words without times, and without the digest: it covers the ids a cluster was born with."""
    text = re.sub(r"digest [0-9a-f]{8}", "digest …", re.sub(r"in [0-9.]+ m?s", "in … s", " ".join(words)))
    return text.split()


def shown(svg: str) -> list[str]:
    """Return what of a picture is the same each time it is drawn."""
    return repeatable(words_in(svg))


if __name__ == "__main__":
    drawn = picture(printed())
    if not FILE.exists() or shown(drawn) != shown(FILE.read_text(encoding="utf-8")):
        FILE.write_text(drawn, encoding="utf-8")
