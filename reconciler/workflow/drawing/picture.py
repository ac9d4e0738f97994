"""A picture before anybody knows in which language it will be written: nodes, and arrows between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Subject: TypeAlias = Literal["lifecycle", "workspace", "plan"]
Shape: TypeAlias = Literal["state", "cluster", "storage", "action"]


@dataclass(frozen=True, slots=True)
class Node:
    """One thing in a picture; `name` is its own among the others."""

    name: str
    shape: Shape


@dataclass(frozen=True, slots=True)
class Arrow:
    """From one node to another, with what is said beside it."""

    start: str
    end: str
    label: str = ""
    condition: str = ""
    """When it is this way that is gone, where one verb leads several ways."""
    by_itself: bool = False
    """Nobody asks for it."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """What people often ask for and do not get, and why."""

    state: str
    verb: str
    reason: str


@dataclass(frozen=True, slots=True)
class Picture:
    """What is drawn, in a lasting order."""

    of: Subject
    name: str
    nodes: tuple[Node, ...]
    arrows: tuple[Arrow, ...]
    initial: str | None = None
    """The state it begins in."""
    refusals: tuple[Refusal, ...] = ()
