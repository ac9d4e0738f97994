"""Text of HCL as blocks and attributes; expressions stay trees until somebody asks for their values."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from reconciler.errors import UserError
from reconciler.manifests.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_BYTES: Final = 4 * 2**20
"""Of one file: the parser is written in Python."""
_LABELS: Final = frozenset({"identifier", "keyword", "literal_value", "string"})
_SIGN: Final = re.compile(r"\S")


@dataclass(frozen=True, slots=True)
class Attribute:
    """A name with an expression, and the line it stands on."""

    name: str
    expression: Any
    line: int


@dataclass(frozen=True, slots=True)
class Block:
    """`resource "kafka_topic" "orders" { … }`: its type, labels, and what stands in it."""

    kind: str
    labels: tuple[str, ...]
    line: int
    attributes: dict[str, Attribute] = field(default_factory=dict)
    blocks: tuple[Block, ...] = ()


def parse_hcl(raw: bytes, label: str) -> Block | Problem:
    """Return a file as a block without a type, or why it cannot be read.

    Raises:
        UserError: The parser is not installed.
    """
    try:
        import hcl2  # noqa: PLC0415 - an extra, and slow to import
        from lark.exceptions import LarkError, UnexpectedInput  # noqa: PLC0415 - as above
    except ImportError as error:
        raise UserError(
            "reading Terraform's files needs python-hcl2", hint="pip install 'stream-reconciler[hcl]'"
        ) from error
    if len(raw) > MAX_BYTES:
        return Problem(label, None, None, "", f"is too big: more than {MAX_BYTES // 2**20} MiB", "Import its state")
    try:
        text = raw.decode("utf-8-sig")
        return _block(hcl2.parses_to_tree(text).children[0], "", (), 1)
    except UnicodeDecodeError:
        return Problem(label, None, None, "", "is not UTF-8", "Save it as UTF-8")
    except UnexpectedInput as error:
        return _unexpected(error, text, label)
    except (LarkError, RecursionError):
        return Problem(label, None, None, "", "is not HCL that can be read", "Check it with: terraform validate")


def _unexpected(error: Any, text: str, label: str) -> Problem:
    lines = text.split("\n")
    line = error.line if isinstance(error.line, int) and 0 < error.line <= len(lines) else len(lines)
    column = error.column if isinstance(error.column, int) and error.column > 0 else None
    rest = lines[line - 1][(column or 1) - 1 :]
    found = _SIGN.search(rest)
    what = f"{found[0]!r} stands where it cannot" if found else "something is missing at the end of the line"
    return Problem(label, line, column, "", f"is not HCL: {what}", "Check it with: terraform validate")


def _block(body: Any, kind: str, labels: tuple[str, ...], line: int) -> Block:
    attributes = {each.name: each for each in _attributes(body)}
    return Block(kind, labels, line, attributes, tuple(_blocks(body)))


def _attributes(body: Any) -> Iterator[Attribute]:
    for child in _trees(body, "attribute"):
        name, _, expression = child.children
        yield Attribute(_word(name), expression, child.meta.line)


def _blocks(body: Any) -> Iterator[Block]:
    for child in _trees(body, "block"):
        words = [each for each in _trees(child) if each.data in _LABELS]
        inner = next(_trees(child, "body"))
        yield _block(inner, _word(words[0]), tuple(map(_word, words[1:])), child.meta.line)


def _trees(tree: Any, data: str | None = None) -> Iterator[Any]:
    for child in tree.children:
        if hasattr(child, "data") and (data is None or child.data == data):
            yield child


def _word(tree: Any) -> str:
    """Return an identifier, or a text without its quotes."""
    return "".join(str(each) for each in tree.scan_values(lambda _: True)).strip('"')
