"""Shell completion of names from the workspace's files.

It reads only kind and metadata of manifests. After an error it prints nothing.
"""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from reconciler.resources.address import (
    Address,
    cluster_of,
    find_document_address,
    full_name_of,
    join_name,
    kind_of,
    split_name,
)

if TYPE_CHECKING:
    from typer._click.core import Command, Context, Parameter


COMPLETION_VARIABLE: Final = "_RECONCILER_COMPLETE"
"""Environment variable that completion scripts set."""
_SAFE: Final = re.compile(r"[A-Za-z0-9._/:@%+,-]+")
"""Names that no shell splits or expands; only these are offered."""
_MOST_RUNS: Final = 50


def is_completing() -> bool:
    """Return whether a shell requests completions."""
    return os.environ.get(COMPLETION_VARIABLE, "").startswith("complete_")


def print_completions(run: Callable[[], int]) -> int:
    """Print the completions that typer finds in `run`; return the exit code."""
    split = _join_words_of_bash() if os.environ[COMPLETION_VARIABLE] == "complete_bash" else ""
    # Otherwise pydantic searches all packages for plugins.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    output, code = io.StringIO(), 1
    with redirect_stdout(output), redirect_stderr(io.StringIO()):
        try:
            code = run()
        except SystemExit as leaving:
            code = leaving.code if isinstance(leaving.code, int) else 0
        except Exception:  # noqa: BLE001 - a traceback would appear in the command line
            return 1
    lines = (line.removeprefix(split) for line in output.getvalue().splitlines(keepends=True))
    sys.stdout.write("".join(lines))
    return code


# Bash splits words at `:` and `=`; completions replace only the last part.


_BREAKS: Final = re.compile(r"[:=]+")


def _join_words_of_bash() -> str:
    """Join words that bash split; return the prefix that completions must omit."""
    try:
        pieces, current = os.environ["COMP_WORDS"].split("\n"), int(os.environ["COMP_CWORD"])
    except (KeyError, ValueError):
        return ""
    if current >= len(pieces):
        return ""
    words, start = _join_split_words(pieces[: current + 1])
    os.environ["COMP_WORDS"], os.environ["COMP_CWORD"] = "\n".join(words), str(len(words) - 1)
    word = words[-1]
    value = word.index("=") + 1 if word.startswith("-") and "=" in word else 0
    return word[value:start]


def _join_split_words(pieces: Iterable[str]) -> tuple[list[str], int]:
    words: list[str] = []
    start, goes_on = 0, False
    for piece in pieces:
        is_break = _BREAKS.fullmatch(piece) is not None
        if words and (is_break or (goes_on and piece)):
            start = len(words[-1])
            words[-1] += piece
            if is_break:
                start = len(words[-1])
        else:
            words.append(piece)
            start = 0
        goes_on = is_break
    return words or [""], start


class CompletionItem(NamedTuple):
    """A completion with the attributes that typer reads."""

    value: str
    help: str | None = None
    type: str = "plain"


def add_completers(command: Command) -> None:
    """Complete a command's parameters with names from the workspace."""
    for parameter in command.params:
        values = _VALUES.get(_read_metavar(parameter))
        if values is not None:
            parameter.__dict__["shell_complete"] = _make_completer(values)


def _read_metavar(parameter: Parameter) -> str:
    metavar: str = getattr(parameter, "metavar", None) or ""
    return f"{parameter.name} {metavar}" if metavar == "NAME" else metavar.strip(".")


def _make_completer(values: Callable[[_CompletionRequest], Iterable[str]]) -> Callable[[Context, str], list[Any]]:
    def list_items(context: Context, incomplete: str) -> list[Any]:
        candidates = values(_CompletionRequest(context, incomplete))
        return [
            CompletionItem(value) for value in candidates if value.startswith(incomplete) and _SAFE.fullmatch(value)
        ]

    return list_items


class _CompletionRequest(NamedTuple):
    context: Context
    incomplete: str

    @property
    def folder(self) -> Path:
        from reconciler.manifests.files import find_workspace

        workspace = self.context.params.get("workspace")
        return find_workspace(Path.cwd() / (workspace or ""))

    @property
    def environment(self) -> str | None:
        environment: str | None = self.context.params.get("environment")
        return environment

    @property
    def group(self) -> str:
        return (self.context.parent.info_name if self.context.parent is not None else None) or ""


_KINDS: Final = {
    "link": {"link"},
    "mirror": {"mirror", "link"},
    "topic": {"topic", "mirror", "mounting"},
    "verify": {"topic", "mirror", "mounting", "link"},
}
"""Kinds of addresses by group or command; others accept every kind."""


def _list_addresses(request: _CompletionRequest) -> Iterator[str]:
    kinds = _KINDS.get(request.group) or _KINDS.get(request.context.info_name or "")
    return (
        address
        for address in list_declared_addresses(request.folder, request.environment)
        if kinds is None or kind_of(address) in kinds
    )


def _list_allowances(request: _CompletionRequest) -> Iterator[str]:
    verb, colon, _ = request.incomplete.partition(":")
    return (f"{verb}:{address}" for address in _list_addresses(request)) if colon else iter(())


def _list_environments(request: _CompletionRequest) -> Iterable[str]:
    from reconciler.manifests.files import list_environments

    return list_environments(request.folder)


def _list_clusters(request: _CompletionRequest) -> Iterable[str]:
    return sorted(
        {cluster_of(address) or "" for address in list_declared_addresses(request.folder, request.environment)} - {""}
    )


def _list_links(request: _CompletionRequest) -> Iterable[str]:
    addresses = list_declared_addresses(request.folder, request.environment)
    return sorted({full_name_of(address) for address in addresses if kind_of(address) == "link"})


def _list_runs(request: _CompletionRequest) -> Iterable[str]:
    from reconciler.objectstore.settings import StoreSettings

    state = _load_workspace(request.folder)["spec"]["state"]
    url = state if isinstance(state, str) else state["url"]
    if not url.startswith("file://"):
        return ()
    settings = StoreSettings(url).resolve_path(request.folder)
    if request.environment:
        settings = settings.join_prefix(f"env/{request.environment}")
    runs = Path(settings.url.removeprefix("file://")) / "runs"
    return sorted((folder.name for folder in runs.iterdir()), reverse=True)[:_MOST_RUNS]


_VALUES: Final[dict[str, Callable[[_CompletionRequest], Iterable[str]]]] = {
    **dict.fromkeys(("ADDR", "ADDRESS", "PATTERN", "ADDR|PLANFILE", "ADDR|CODE", "ADDRESS|CLUSTER"), _list_addresses),
    **dict.fromkeys(("CLUSTER", "cluster NAME"), _list_clusters),
    "VERB:ADDR": _list_allowances,
    "ENV": _list_environments,
    "link NAME": _list_links,
    "RUN": _list_runs,
}


_DOCUMENT: Final = re.compile(rb"^---[^\n]*$", re.MULTILINE)
_HEAD: Final = re.compile(rb"^(?:kind:[^\n]*|metadata:[^\n]*(?:\n(?:[ \t#][^\n]*)?)*)$", re.MULTILINE)
_LINK: Final = re.compile(rb"^kind:\s*MirrorLink\b", re.MULTILINE)


def list_declared_addresses(folder: Path, environment: str | None) -> list[Address]:
    """Return the addresses in manifests, sorted, except names with a variable."""
    from reconciler.manifests.files import OVERLAYS, find_manifests

    listed = _load_workspace(folder).get("spec", {}).get("manifests") or ["manifests"]
    apart = {folder / "reconciler.yaml", folder / OVERLAYS}
    files = find_manifests(folder, listed, apart=apart).files
    if environment is not None:
        overlay = folder / OVERLAYS / environment
        files = (*files, *find_manifests(overlay, ["."], apart={overlay / "values.yaml"}, may_be_empty=True).files)
    addresses = {address for file in files for address in _list_file_addresses(file)}
    return sorted(address for address in addresses if "${" not in address)


def _load_workspace(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = next(_parse_documents((folder / "reconciler.yaml").read_bytes()), {})
    return content


def _list_file_addresses(file: Path) -> Iterator[Address]:
    from reconciler.manifests.files import read_bounded

    raw = read_bounded(file, str(file))
    if not isinstance(raw, bytes):
        return
    heads = b"\n---\n".join(_extract_head(document) for document in _DOCUMENT.split(raw))
    for content in _parse_documents(heads):
        address = find_document_address(content)
        if address is not None:
            yield address
            if kind_of(address) == "link":
                yield from _list_mirrors(content, cluster_of(address) or "")


def _extract_head(document: bytes) -> bytes:
    return document if _LINK.search(document) else b"\n".join(_HEAD.findall(document)) or document


def _list_mirrors(link: Any, cluster: str) -> Iterator[Address]:
    spec = link.get("spec", {})
    for entry in spec.get("mirrorTopics", ()):
        namespace, name = split_name(entry["source"])
        yield Address(f"mirror/{cluster}/{join_name(namespace, spec.get('prefix', '') + name)}")


def _parse_documents(raw: bytes) -> Iterator[Any]:
    from reconciler.manifests.yaml_documents import parse_yaml

    return (document.content for document in parse_yaml(raw, "").documents)
