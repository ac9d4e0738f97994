"""Access rules as fields of a resource: who, where and what for is the path, the operations are the value.

`acls.allow User:checkout from 10.0.0.7 on groups,topics named pay-*`: what holds for all, and topics, is left out.
So two rules that differ in operations alone are one, order and repetition mean nothing, and each is changed by itself.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

from reconciler.resources.acls import NamespaceAcl, TopicAcl

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ACLS: Final = "acls."
ALLOWS: Final = f"{ACLS}allow "
"""How the path of a rule begins that allows."""

_PLAIN: Final = re.compile(r'[^\s,"]+')
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[^\s,"]+')
_LIST: Final = re.compile(rf"(?:{_TOKEN.pattern})(?:,(?:{_TOKEN.pattern}))*")


def rule_fields(rules: Iterable[TopicAcl]) -> dict[str, tuple[str, ...]]:
    """Return rules as fields, path → operations; rules of one path are one rule."""
    found: dict[str, tuple[str, ...]] = {}
    for rule in rules:
        path = rule_path(rule)
        found[path] = tuple(sorted({*found.get(path, ()), *rule.operations}))
    return found


def rule_path(rule: TopicAcl) -> str:
    """Return the path of a rule."""
    parts = [rule.permission, _token(rule.principal)]
    if rule.host != "*":
        parts += ["from", _token(rule.host)]
    if isinstance(rule, NamespaceAcl):
        if rule.resources != ("topics",):
            parts += ["on", ",".join(rule.resources)]
        if rule.names != ("*",):
            parts += ["named", ",".join(map(_token, rule.names))]
    return ACLS + " ".join(parts)


def rule_at(path: str, operations: Iterable[object]) -> NamespaceAcl:
    """Return the rule of a path; one of a topic is about topics, whatever they are named."""
    words = _words(path.removeprefix(ACLS))
    shape: dict[str, object] = {"permission": next(words)[0], "principal": next(words)[0]}
    for [word] in words:
        values = next(words)
        match word:
            case "from":
                shape["host"] = values[0]
            case "on":
                shape["resources"] = values
            case _:
                shape["names"] = values
    return NamespaceAcl.model_validate({**shape, "operations": tuple(operations)})


def _token(text: str) -> str:
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)


def _words(text: str) -> Iterator[list[str]]:
    for found in _LIST.finditer(text):
        tokens = _TOKEN.findall(found.group())
        yield [json.loads(token) if token.startswith('"') else token for token in tokens]
