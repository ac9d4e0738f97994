"""Values as a document in the canonical form that `fmt` gives: for thousands of documents, made at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from reconciler.manifests.editing.scalartext import yaml_text
from reconciler.manifests.yamlprint import MAX_WIDTH

if TYPE_CHECKING:
    from collections.abc import Iterator

_STEP = "  "


def laid_out(content: Mapping[str, Any]) -> str:
    """Return a document: its spec over several lines, everything below in brackets as long as it fits on one."""
    lines: list[str] = []
    for key, value in content.items():
        if key == "spec" and value:
            lines += ["spec:", *_entries(value, _STEP)]
        elif key != "spec":
            lines += _entry(key, value, "")
    return "".join(f"{line}\n" for line in lines)


def _entry(key: str, value: Any, indent: str) -> Iterator[str]:
    yield from _placed(f"{indent}{yaml_text(key)}:", value, indent)


def _placed(lead: str, value: Any, indent: str) -> Iterator[str]:
    """Yield a value after its key or dash."""
    line = f"{lead} {yaml_text(value)}"
    is_collection = isinstance(value, Mapping | list | tuple) and len(value) > 0
    if not is_collection or len(line) <= MAX_WIDTH:
        yield line
        return
    yield lead
    yield from _entries(value, indent + _STEP)


def _entries(value: Any, indent: str) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _entry(str(key), item, indent)
        return
    for item in value:
        is_long = len(f"{indent}- {yaml_text(item)}") >= MAX_WIDTH  # one less than after a key, as `fmt` has it
        if isinstance(item, Mapping | list | tuple) and item and is_long:
            # The first line of what is nested follows the dash.
            first, *rest = _entries(item, indent + _STEP)
            yield f"{indent}- {first.removeprefix(indent + _STEP)}"
            yield from rest
        else:
            yield f"{indent}- {yaml_text(item)}"
