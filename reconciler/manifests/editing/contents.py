"""The same changes to what a document says: what its text has to mean afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reconciler.manifests.positions import Path


def at(content: Any, path: Path) -> Any:
    """Return what stands at a path; `None` where nothing does."""
    for part in path:
        match content, part:
            case dict(), str() if part in content:
                content = content[part]
            case list(), int() if part < len(content):
                content = content[part]
            case _:
                return None
    return content


def put(content: Any, path: Path, value: Any) -> None:
    """Set what stands at a path, and make the mappings on the way to it."""
    for part in path[:-1]:
        content = content.setdefault(part, {}) if isinstance(content, dict) else content[part]
    content[path[-1]] = value


def take(content: Any, path: Path) -> None:
    """Remove what stands at a path, and what that leaves empty above it, but never the whole."""
    parent = at(content, path[:-1])
    del parent[path[-1]]
    if not parent and len(path) > 1:
        take(content, path[:-1])


def copied(content: Any) -> Any:
    """Return a copy in which nothing is shared: aliases of YAML stand for one value in several places."""
    match content:
        case dict():
            return {key: copied(value) for key, value in content.items()}
        case list():
            return [copied(value) for value in content]
        case _:
            return content
