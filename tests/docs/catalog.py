"""Writes tests/docs/messages.txt: every message of the code with its hint, to be read in one go.

It is collected from the places that raise or report them, with `…` for what is put in. `make schemas` writes it anew.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tests.docs import markdown

FILE: Final = Path(__file__).with_name("messages.txt")
_REPORTS: Final = re.compile(r"(Error|FieldProblem|Finding|Remark|Trouble)$|^(warn|warning|beyond|refusal|_refused)$")
_HEAD: Final = """\
Every message of the code with its hint, by module. Written by `make schemas`; do not edit.
Read it from top to bottom as a reader who does not know the code: each should say what is wrong and what to do.
"""


class Message(NamedTuple):
    """What is said, and what to do about it."""

    text: str
    hint: str


def messages(file: Path) -> Iterator[Message]:
    """Yield what a module says, in the order of its lines."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    constants = _assigned(tree.body)
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)):
        inner = list(ast.walk(function))
        for call in (node for node in inner if isinstance(node, ast.Call) and _REPORTS.search(_name(node.func))):
            names = {**constants, **_assigned([each for each in inner if getattr(each, "lineno", 0) < call.lineno])}
            said = [text for each in call.args if (text := _text(each, names)) and " " in text]
            hint = next((_text(each.value, names) for each in call.keywords if each.arg == "hint"), None)
            if said:
                yield Message(said[0], hint or (said[1] if len(said) > 1 else ""))
        names = {**constants, **_assigned(inner)}
        for pair in _pairs(function):
            said = [_text(each, names) for each in pair.elts]
            if len(said) == 2 and all(text and " " in text for text in said):
                yield Message(str(said[0]), str(said[1]))


def _pairs(function: ast.AST) -> Iterator[ast.Tuple]:
    """Yield what is yielded or returned as a pair: a message and its hint."""
    for node in ast.walk(function):
        if isinstance(node, ast.Yield | ast.Return) and isinstance(node.value, ast.Tuple):
            yield node.value


def _assigned(nodes: Iterable[ast.AST]) -> dict[str, ast.expr]:
    found: dict[str, ast.expr] = {}
    for node in nodes:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            found[node.targets[0].id] = node.value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            found[node.target.id] = node.value
    return found


def _name(function: ast.expr) -> str:
    return (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )


def _text(node: ast.expr, names: dict[str, ast.expr], depth: int = 0) -> str | None:
    """Return what an expression says, with `…` for what only the run knows; `None` where it is not text."""
    match node:
        case ast.Constant(value=str() as text):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(
                part.value if isinstance(part, ast.Constant) else _inner(part, names, depth) for part in parts
            )
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            return (_text(left, names, depth) or "…") + (_text(right, names, depth) or "…")
        case ast.IfExp(body=body, orelse=other):
            return _text(body, names, depth) or _text(other, names, depth)
        case ast.Call(func=ast.Attribute(value=value, attr="rstrip" | "strip")):
            return _text(value, names, depth)
        case ast.Name(id=name) if name in names and depth < 3:
            return _text(names[name], names, depth + 1)
        case _:
            return None


def _inner(part: ast.expr, names: dict[str, ast.expr], depth: int) -> str:
    value = part.value if isinstance(part, ast.FormattedValue) else part
    constant = _text(value, names, depth) if isinstance(value, ast.Name) and value.id.isupper() else None
    return constant or "…"


def page() -> str:
    parts = [_HEAD]
    for file in sorted((markdown.ROOT / "reconciler").rglob("*.py")):
        found = dict.fromkeys(messages(file))
        if found:
            module = file.relative_to(markdown.ROOT).with_suffix("").as_posix().replace("/", ".")
            parts.append(f"\n== {module}\n")
            parts += [f"{each.text}\n" + (f"    {each.hint}\n" if each.hint else "") for each in found]
    return "".join(parts)


if __name__ == "__main__":
    FILE.write_text(page(), encoding="utf-8")
