"""What the site needs beside the pages of `docs`: the pages of the examples, and links that leave the site.

mkdocs calls these functions by their names.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s#]+)(#[^)\s]*)?\)")
_EXAMPLE = re.compile(r"examples/([a-z-]+)/README\.md")


def on_files(files: Files, config: Any) -> Files:
    """Add the page of each example."""
    for page in sorted((ROOT / "examples").glob("*/README.md")):
        files.append(File.generated(config, f"examples/{page.parent.name}.md", content=page.read_text("utf-8")))
    decisions = (file for file in files.documentation_pages() if file.src_uri.startswith("decisions/0"))
    for file in decisions:
        file.inclusion = file.inclusion.NOT_IN_NAV
    return files


def on_page_markdown(markdown: str, page: Any, **_: object) -> str:
    """Point links to pages of this site there; of links to files that the site does not have, keep the text."""
    at = page.file.src_uri
    example = at.startswith("examples/")
    here = f"examples/{posixpath.basename(at).removesuffix('.md')}" if example else f"docs/{posixpath.dirname(at)}"

    def mended(link: re.Match[str]) -> str:
        text, target, anchor = link[1], link[2], link[3] or ""
        if ":" in target:
            return link[0]
        path = posixpath.normpath(posixpath.join(here, target))
        if found := _EXAMPLE.fullmatch(path):
            path = f"docs/examples/{found[1]}.md"
        elif not path.startswith("docs/") or not path.endswith(".md"):
            return text
        return f"[{text}]({posixpath.relpath(path.removeprefix('docs/'), posixpath.dirname(at) or '.')}{anchor})"

    return _LINK.sub(mended, markdown)
