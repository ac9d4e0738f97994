"""What the site needs beside the pages of `docs`: its home, the examples, the schemas, and links that leave the site.

mkdocs calls these functions by their names.
"""

from __future__ import annotations

import base64
import html
import os
import posixpath
import re
from pathlib import Path
from typing import Any

import mermaidx
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
_HOME = "README.md"
_LINK = re.compile(r"(!?)\[([^\]]+)\]\(([^)\s#]+)(#[^)\s]*)?\)")
_NOT_SEARCHED = re.compile(r"decisions/|facts\.md|benchmarks\.md")
"""Pages that would hide the guides in a list of results."""
_SEARCHED_FIRST = re.compile(r"tutorials/|guides/(manifests|plans|apply|deleting|drift|kafka-export)\.md")
"""Pages of every day."""
_LOADED = re.compile(
    r"<(?:script|img|iframe|link rel=\"?(?:stylesheet|preconnect|icon))[^>]*(?:src|href)=\"?https?:[^>]*>"
)
"""What a page would load over the network."""
_PICTURE = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_EXAMPLE = re.compile(r"examples/([a-z-]+)/README\.md")


def on_page_content(content: str, **_: object) -> str:
    """Let the empty head of a column be a cell: screen readers announce a heading that is empty."""
    return re.sub(r"<th[^>]*></th>", "<td></td>", content)


def on_post_page(output: str, page: Any, **_: object) -> str:
    """Name the dialog of the search, and refuse a page that loads anything over the network.

    Raises:
        PluginError: It does.
    """
    if found := _LOADED.search(output):
        raise PluginError(f"{page.file.src_uri} loads {found[0]}")
    return output.replace('role="dialog"', 'role="dialog" aria-label="Search"')


def _drawn(source: str, title: str) -> str:
    """Return a picture as an image that needs neither a network nor a script."""
    svg = mermaidx.render(source, theme="neutral").svg().encode()
    return (
        f'<img class="picture" alt="Picture: {title}" src="data:image/svg+xml;base64,{base64.b64encode(svg).decode()}">'
    )


def on_config(config: Any) -> Any:
    """Offer the other versions of the site where it is published as one of several."""
    if "MIKE_DOCS_VERSION" in os.environ:  # noqa: TID251 - a hook is told nothing else
        config.extra["version"] = {"provider": "mike"}
    return config


def on_files(files: Files, config: Any) -> Files:
    """Make the repository's README the home; add the page of each example, and the schemas at the address they name."""
    files.remove(files.src_uris[_HOME])
    files.append(File.generated(config, _HOME, content=(ROOT / _HOME).read_text("utf-8")))
    for schema in sorted((ROOT / "schemas").glob("*.json")):
        files.append(File.generated(config, f"schemas/{schema.name}", content=schema.read_text("utf-8")))
    for page in sorted((ROOT / "examples").glob("*/README.md")):
        files.append(File.generated(config, f"examples/{page.parent.name}.md", content=page.read_text("utf-8")))
    decisions = (file for file in files.documentation_pages() if file.src_uri.startswith("decisions/0"))
    for file in decisions:
        file.inclusion = file.inclusion.NOT_IN_NAV
    return files


def on_page_markdown(markdown: str, page: Any, **_: object) -> str:
    """Point links to pages of this site there, and draw pictures; of links to other files keep the text."""
    at = page.file.src_uri
    if _NOT_SEARCHED.match(at):
        page.meta["search"] = {"exclude": True}
    elif _SEARCHED_FIRST.match(at):
        page.meta["search"] = {"boost": 2}
    heading = re.search(r"^# (.+)$", markdown, re.MULTILINE)
    title = html.escape(heading[1] if heading else at, quote=True)
    markdown = _PICTURE.sub(lambda block: _drawn(block[1], title), markdown)
    example = at.startswith("examples/")
    here = f"examples/{posixpath.basename(at).removesuffix('.md')}" if example else f"docs/{posixpath.dirname(at)}"
    here = "." if at == _HOME else here

    def mended(link: re.Match[str]) -> str:
        picture, text, target, anchor = link[1], link[2], link[3], link[4] or ""
        if ":" in target:
            return link[0]
        path = posixpath.normpath(posixpath.join(here, target))
        if found := _EXAMPLE.fullmatch(path):
            path = f"docs/examples/{found[1]}.md"
        elif path.startswith("schemas/") and path.endswith(".json"):
            path = f"docs/{path}"
        elif path == _HOME:
            path = f"docs/{_HOME}"
        elif not path.startswith("docs/") or not path.endswith((".md", ".png", ".svg")):
            return text
        return (
            f"{picture}[{text}]({posixpath.relpath(path.removeprefix('docs/'), posixpath.dirname(at) or '.')}{anchor})"
        )

    return _LINK.sub(mended, markdown)
