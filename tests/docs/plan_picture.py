"""Draws the README's pictures, docs/plan.svg and docs/comment.png, from what `plan` prints: `make schemas`."""

from __future__ import annotations

import html
import re
import struct
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Final

from markdown_it import MarkdownIt
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from tests.cli.conftest import environment
from tests.cli.terminals import on_terminal
from tests.docs import markdown

FILE: Final = markdown.ROOT / "docs" / "plan.svg"
COMMENT: Final = markdown.ROOT / "docs" / "comment.png"
COMMAND: Final = "reconciler plan"
_RECONCILER: Final = Path(sys.executable).with_name("reconciler")
_COLUMNS: Final = 120
_BLOCKED: Final = 7
"""Exit code of a plan that is blocked."""
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

_CLUSTER: Final = """\
apiVersion: reconciler/v1
kind: Cluster
metadata: {name: prod}
spec: {embedded: {root: "file://.clusters/prod"}}
---
apiVersion: reconciler/v1
kind: Topic
metadata: {name: audit, cluster: prod}
spec: {partitions: 3, configs: {retention.ms: 90d}}
"""
_BEFORE: Final = """\
apiVersion: reconciler/v1
kind: Topic
metadata: {name: orders, cluster: prod}
spec: {partitions: 6, configs: {retention.ms: 7d}}
---
apiVersion: reconciler/v1
kind: Topic
metadata: {name: refunds, cluster: prod}
spec: {partitions: 6}
"""
"""What was applied before: the README's file without its changes."""
_RECORDS: Final = "".join(f'{{"id": {number}}}\n' for number in range(4321))


def readme_yaml() -> str:
    """Return the manifests that the README shows."""
    return next(block.text for block in markdown.blocks("yaml") if block.file == markdown.ROOT / "README.md")


@contextmanager
def workspace() -> Iterator[Path]:
    """Give a workspace in which the README's manifests are to be planned, after a change by hand."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "shop"
        _run("init", str(folder), cwd=Path(scratch))
        (folder / "manifests" / "example.yaml").write_text(_CLUSTER, encoding="utf-8")
        topics = folder / "manifests" / "topics.yaml"
        topics.write_text(_BEFORE, encoding="utf-8")
        _run("apply", "--yes", cwd=folder)
        produce = ("topic", "produce", "topic/prod/refunds", "--input", "-", "--input-format", "jsonl")
        _run(*produce, cwd=folder, text=_RECORDS)
        _run("topic", "alter", "topic/prod/audit", "--set", "retention.ms=1d", "--yes", cwd=folder)
        topics.write_text(readme_yaml(), encoding="utf-8")
        yield folder


def _run(*arguments: str, cwd: Path, text: str = "") -> None:
    subprocess.run([_RECONCILER, *arguments], cwd=cwd, input=text.encode(), capture_output=True, check=True)


def printed(folder: Path) -> str:
    """Return what `plan` prints on a terminal for the README's manifests."""
    code, text = on_terminal([str(_RECONCILER), "plan"], cwd=folder, environ=environment(TERM="xterm-256color"))
    assert code == _BLOCKED, text
    # the command ends with the error that the plan's last lines explain
    return text.replace("\r\n", "\n").partition("\x1b[1;31mError: ")[0]


def comment(folder: Path) -> str:
    """Return the comment of a pull request with the README's manifests."""
    command = [_RECONCILER, "plan", "--format", "markdown"]
    done = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == _BLOCKED, done.stderr
    return done.stdout


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
    text = re.sub(r"in [0-9.]+ m?s", "in … s", " ".join(words))
    return re.sub(r"digest(=| `| )[0-9a-f]{8,64}|until: [0-9-]+", "…", text).split()


def shown(svg: str) -> list[str]:
    """Return what of a picture is the same each time it is drawn."""
    return repeatable(words_in(svg))


_PAGE: Final = """\
<!doctype html><meta charset="utf-8"><style>
body {{ margin: 0; padding: 16px; width: 832px; color: #1f2328; }}
body {{ font: 14px/1.5 -apple-system, "Segoe UI", "Open Sans", sans-serif; }}
section {{ border: 1px solid #d1d9e0; border-radius: 6px; }}
header {{ padding: 8px 16px; background: #f6f8fa; border-bottom: 1px solid #d1d9e0; border-radius: 6px 6px 0 0; }}
main {{ padding: 4px 16px 12px; }}
h3, h4 {{ margin: 16px 0 8px; }}
ul {{ padding-left: 24px; }}
li {{ margin: 6px 0; }}
code {{ font: 85% ui-monospace, Menlo, "DejaVu Sans Mono", monospace; }}
code {{ background: #eff1f3; padding: 2px 5px; border-radius: 6px; }}
pre {{ background: #f6f8fa; padding: 12px; border-radius: 6px; overflow: hidden; }}
pre code {{ background: none; padding: 0; }}
details {{ margin: 8px 0; }}
.ins {{ color: #116329; background: #dafbe1; }}
.del {{ color: #82071e; background: #ffebe9; }}
.mod {{ color: #953800; background: #ffd8b5; }}
</style><section><header><b>github-actions</b> commented</header><main>{content}</main></section>
"""
_SIGNS: Final = {"+": "ins", "-": "del", "!": "mod"}
_KEYWORD: Final = b"Comment"
"""Of the chunk of the image that holds the words it shows."""


def comment_words(text: str) -> list[str]:
    return repeatable(text.split())


def comment_page(text: str) -> str:
    """Return a comment's Markdown as a page; one list of changes is open, as a reader would open it."""
    content = MarkdownIt("commonmark").render(text)
    lines = re.compile(r"""(?:(?<=\n)|(?<=diff">))([-+!])[^\n<]*""")

    def colour(block: re.Match[str]) -> str:
        return lines.sub(lambda line: f'<span class="{_SIGNS[line[1]]}">{line[0]}</span>', block[0])

    content = re.sub(r'<code class="language-diff">.*?</code>', colour, content, flags=re.DOTALL)
    return _PAGE.format(content=content.replace("<details>", "<details open>", 1))


def with_words(image: bytes, words: list[str]) -> bytes:
    """Return a PNG that holds the words it shows, so that a test need not draw it."""
    body = b"iTXt" + _KEYWORD + b"\0\0\0\0\0" + " ".join(words).encode()
    chunk = struct.pack(">I", len(body) - 4) + body + struct.pack(">I", zlib.crc32(body))
    end = image.rindex(b"IEND") - 4
    return image[:end] + chunk + image[end:]


def words_of(image: bytes) -> list[str]:
    """Return the words that a PNG holds."""
    start = image.index(b"iTXt" + _KEYWORD)
    (length,) = struct.unpack(">I", image[start - 4 : start])
    return image[start + 4 : start + 4 + length].split(b"\0")[-1].decode().split()


def _photograph(page: str) -> bytes:
    from tests.servers.browser import chromium  # noqa: PLC0415 - only who draws needs a browser

    with chromium() as browser:
        tab = browser.new_page(viewport={"width": 864, "height": 100}, device_scale_factor=1.5)
        tab.set_content(page)
        return bytes(tab.screenshot(full_page=True))


def main() -> None:
    """Draw what no longer shows what the command prints."""
    with workspace() as folder:
        plan, text = printed(folder), comment(folder)
    svg, words = picture(plan), comment_words(text)
    if not FILE.exists() or shown(svg) != shown(FILE.read_text(encoding="utf-8")):
        FILE.write_text(svg, encoding="utf-8")
    if not COMMENT.exists() or words != words_of(COMMENT.read_bytes()):
        COMMENT.write_bytes(with_words(_photograph(comment_page(text)), words))


if __name__ == "__main__":
    main()
