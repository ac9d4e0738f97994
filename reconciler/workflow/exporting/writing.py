"""Manifests into a folder: all of them or none, and nothing that is there is overwritten."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from reconciler.errors import UserError
from reconciler.objectstore.files import write_whole
from reconciler.resources.address import kind_of
from reconciler.resources.mirrorlink import MirrorLink
from reconciler.resources.namespace import Namespace
from reconciler.resources.topic import Topic
from reconciler.workflow.accepting.fresh import manifest_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from reconciler.resources.address import Address
    from reconciler.resources.inventory import Inventory

_REPOSITORY: Final = ".git"
"""A folder that holds nothing else is free: `git init` comes first."""
_FILES: Final = {"namespace": "namespaces.yaml", "topic": "topics.yaml", "link": "links.yaml"}


def written(
    inventory: Inventory, folder: Path, above: Callable[[Address], str], *, is_forced: bool = False
) -> tuple[Path, ...]:
    """Write a manifest of every namespace, topic and link; `above` returns the comment lines that precede one.

    Raises:
        UserError: As `saved`.
    """
    texts: dict[str, list[str]] = {}
    for address in sorted(inventory):
        resource = inventory[address].resource
        if isinstance(resource, Topic | Namespace | MirrorLink):
            text = above(address) + manifest_text(address, resource, inventory)
            texts.setdefault(_FILES[kind_of(address)], []).append(text)
    return saved({name: "---\n".join(found) for name, found in texts.items()}, folder, is_forced=is_forced)


def saved(texts: Mapping[str, str], folder: Path, *, is_forced: bool = False) -> tuple[Path, ...]:
    """Write files, by their names below a folder: all of them or none.

    Raises:
        UserError: The folder holds something (with `is_forced`: one of the files is there), or cannot be written.
    """
    paths = {folder / name: text for name, text in texts.items()}
    try:
        _check_free(folder, paths, is_forced=is_forced)
        for path, text in paths.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, text.encode())
    except OSError as error:
        raise UserError(
            f"cannot write into {folder}: {error.strerror or error}", hint="Name a folder that can be written."
        ) from error
    return tuple(paths)


def _check_free(folder: Path, paths: dict[Path, str], *, is_forced: bool) -> None:
    there = next((path for path in paths if path.exists()), None)
    if there is not None:
        raise UserError(f"{there} is there already", hint="Nothing was written. Name another folder.")
    if not is_forced and folder.exists() and any(path.name != _REPOSITORY for path in folder.iterdir()):
        message = f"{folder} is not empty"
        raise UserError(message, hint="Nothing was written. Name another folder, or write beside it with --force.")
