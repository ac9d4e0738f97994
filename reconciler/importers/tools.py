"""The tools that can be imported, and which files belong to which tool."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from reconciler.errors import UserError
from reconciler.importers import jikkou, julie, kafka_gitops, strimzi, topicctl
from reconciler.importers.base import YAML, Document, Reading, files_below, read_documents
from reconciler.importers.julie import read_julie
from reconciler.importers.terraform import is_state, read_terraform
from reconciler.manifests.files import label_of
from reconciler.runtime.text import counted


class Tool(NamedTuple):
    """A tool of YAML documents: which are its own, and how they are read."""

    claims: Callable[[Any], bool]
    read: Callable[[tuple[Document, ...], Reading], None]


TERRAFORM: Final = ("terraform", "terraform-state")
JULIE: Final = "julie"
GITOPS: Final = "kafka-gitops"
_YAML_TOOLS: Final[dict[str, Tool]] = {
    "topicctl": Tool(topicctl.claims, topicctl.read),
    "jikkou": Tool(jikkou.claims, jikkou.read),
    GITOPS: Tool(kafka_gitops.claims, kafka_gitops.read),
    "strimzi": Tool(strimzi.claims, strimzi.read),
}
_CLAIMS: Final[dict[str, Callable[[Any], bool]]] = {
    **{name: tool.claims for name, tool in _YAML_TOOLS.items()},
    JULIE: julie.claims,
}


def read_files(tool: str, path: Path, cwd: Path) -> Reading:
    """Return what the files of a tool below a path say.

    Raises:
        ManifestError: Some are broken; lists every problem of every file.
        UserError: There is nothing there, or nothing of that tool.
    """
    files = files_below(path)
    reading = Reading()
    if tool in TERRAFORM:
        is_any = read_terraform(path, files, cwd, reading)
    else:
        is_any = _read_yaml(tool, path, files, cwd, reading)
    if not is_any:
        raise _nothing(tool, path, files, cwd)
    return reading


def _read_yaml(tool: str, path: Path, files: tuple[Path, ...], cwd: Path, reading: Reading) -> bool:
    suffixes = (*YAML, ".json") if tool == JULIE else YAML
    chosen = [file for file in files if file.suffix in suffixes or file == path]
    documents = read_documents(chosen, cwd)
    claims = _CLAIMS[tool]
    own = tuple(document for document in documents if claims(document.content))
    if tool == GITOPS and not path.is_dir():
        own += _named_by_settings(own, cwd)
    reading.files = sorted({document.file for document in own})
    reading.unread = sorted({label_of(file, cwd) for file in chosen} - set(reading.files))
    if tool == JULIE:
        read_julie(own, [file for file in files if file.suffix == ".properties"], cwd, reading)
    else:
        _YAML_TOOLS[tool].read(own, reading)
    return bool(own)


def _named_by_settings(documents: tuple[Document, ...], cwd: Path) -> tuple[Document, ...]:
    """Read the files that a state of kafka-gitops keeps its parts in."""
    named: list[Path] = []
    for document in documents:
        settings = document.content.get("settings")
        files = settings.get("files") if isinstance(settings, dict) else None
        for name in files.values() if isinstance(files, dict) else ():
            if isinstance(name, str) and (file := document.path.parent / name) not in named:
                named.append(file)
    found = read_documents(named, cwd)
    return tuple(document for document in found if kafka_gitops.claims(document.content))


def _nothing(tool: str, path: Path, files: tuple[Path, ...], cwd: Path) -> UserError:
    """Say that there is nothing of a tool, and of which others there is something."""
    there = {name: count for name, count in _counted(files, cwd).items() if count and name != tool}
    message = f"there is no file of {tool}'s in {label_of(path, cwd)}"
    if there:
        named = ", ".join(f"{name} ({counted(count, 'file', grouping='')})" for name, count in there.items())
        first = max(there, key=lambda name: there[name])
        return UserError(f"{message}, but of {named}", hint=f"Read those with --from {first}")
    known = ", ".join(("terraform", *sorted(_CLAIMS)))
    return UserError(message, hint=f"Name the folder that holds them. Read are those of {known}.")


def _counted(files: tuple[Path, ...], cwd: Path) -> dict[str, int]:
    found = dict.fromkeys(("terraform", *sorted(_CLAIMS)), 0)
    found["terraform"] = sum(map(is_state, files))
    for file in files:
        if file.suffix in YAML:
            for name in _claimed(file, cwd):
                found[name] += 1
    return found


def _claimed(file: Path, cwd: Path) -> list[str]:
    try:
        documents = read_documents([file], cwd)
    except UserError:
        return []
    return [name for name, claims in _CLAIMS.items() if any(claims(document.content) for document in documents)]
