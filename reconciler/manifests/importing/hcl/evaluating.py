"""Expressions of HCL worked out, as far as the files alone allow; what they do not allow is an UnresolvedError."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from textwrap import dedent
from typing import TYPE_CHECKING, Any, Final

from reconciler.manifests.importing.hcl import operators
from reconciler.manifests.importing.hcl.functions import call
from reconciler.manifests.importing.hcl.values import (
    Names,
    UnresolvedError,
    bounded,
    items_of,
    number_of,
    text_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_STEPS: Final = 1_000_000
"""Of one run: far more than any set of topics takes."""
_ESCAPE: Final = re.compile(r'\\(n|r|t|"|\\|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})')
_ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\"}
_HEREDOC: Final = re.compile(r"<<-?[^\n]*\n(.*?)\n?[ \t]*\S+\s*", re.DOTALL)
_LITERALS: Final = {"true": True, "false": False, "null": None}


class Steps:
    """What a whole run may cost."""

    def __init__(self) -> None:
        """Nothing was done yet."""
        self._left = MAX_STEPS

    def take(self) -> None:
        """Count one step."""
        self._left -= 1
        if self._left < 0:
            raise UnresolvedError("it takes too long to work out")


class Evaluation:
    """The values of expressions where some names are known: `roots` by name, each worked out when it is asked for."""

    def __init__(
        self,
        roots: Mapping[str, Any],
        steps: Steps,
        read_file: Callable[[str], str],
    ) -> None:
        self._roots = roots
        self._steps = steps
        self._read_file = read_file

    def with_names(self, names: Mapping[str, Any]) -> Evaluation:
        """Return the same with more names: `each`, or what a `for` goes through."""
        return Evaluation({**self._roots, **names}, self._steps, self._read_file)

    def value(self, tree: Any) -> Any:
        """Return the value of an expression."""
        self._steps.take()
        work_out = _BY_RULE.get(tree.data)
        if work_out is None:
            raise UnresolvedError("it is written in a way that is not known here")
        return bounded(work_out(self, tree))

    def entries(self, tree: Any) -> tuple[dict[str, Any], dict[str, str]] | None:
        """Return the entries of a mapping that is written out, and why some have no value; `None`: it is none."""
        inner = next(_trees(tree), None) if tree.data == "expr_term" and len(list(_trees(tree))) == 1 else None
        if inner is None or inner.data != "object":
            return None
        found: dict[str, Any] = {}
        lost: dict[str, str] = {}
        for element in _trees(inner, "object_elem"):
            key = _source(next(_trees(element)))
            try:
                name, value = self._element(element)
                found[name] = value
            except UnresolvedError as error:
                lost[key] = error.why
        return found, lost

    def term(self, tree: Any) -> Any:
        """Return what a term stands for."""
        return self.value(next(_trees(tree)))

    def named(self, tree: Any) -> Any:
        """Return what a name alone stands for."""
        name = str(tree.children[0])
        if name not in self._roots:
            raise UnresolvedError(f"{name} is known to Terraform alone")
        return self._roots[name]

    def literal(self, tree: Any) -> Any:
        """Return true, false or null."""
        return _LITERALS[str(tree.children[0])]

    def integer(self, tree: Any) -> int:
        """Return a whole number."""
        return int(tree.children[0])

    def fraction(self, tree: Any) -> Any:
        """Return a number with a fraction."""
        return number_of(str(tree.children[0])) if "e" not in tree.children[0].lower() else float(tree.children[0])

    def text(self, tree: Any) -> Any:
        """Return a text; one that is a reference alone keeps that one's type."""
        parts = [self._part(part) for part in _trees(tree)]
        if len(parts) == 1 and not isinstance(parts[0], str):
            return parts[0]
        return "".join(map(text_of, parts))

    def _part(self, tree: Any) -> Any:
        [child] = tree.children
        if not hasattr(child, "data"):
            kind, text = child.type, str(child)
            return text[1:] if kind.startswith("ESCAPED") else _ESCAPE.sub(_unescaped, text)
        if child.data != "interpolation":
            raise UnresolvedError("a template with %{ } is not worked out here")
        return self.value(next(_trees(child)))

    def lines(self, tree: Any) -> str:
        """Return a text of several lines."""
        text = str(tree.children[0])
        found = _HEREDOC.fullmatch(text)
        if found is None or "${" in text or "%{" in text:
            raise UnresolvedError("a text of several lines with references is not worked out here")
        return found[1] + "\n"

    def trimmed_lines(self, tree: Any) -> str:
        """Return the same without its margin."""
        return dedent(self.lines(tree))

    def list_of(self, tree: Any) -> list[Any]:
        """Return a list."""
        return [self.value(each) for each in _trees(tree)]

    def object_of(self, tree: Any) -> dict[str, Any]:
        """Return a mapping."""
        return dict(self._element(each) for each in _trees(tree, "object_elem"))

    def _element(self, tree: Any) -> tuple[str, Any]:
        key, value = _trees(tree)
        [inner] = key.children
        bare = next(_trees(inner), inner) if inner.data == "expr_term" and len(inner.children) == 1 else inner
        if bare.data in {"identifier", "keyword"}:
            return str(bare.children[0]), self.value(value)
        return text_of(self.value(inner)), self.value(value)

    def result(self, tree: Any) -> Any:
        """Return what a function gives."""
        name, *rest = _trees(tree)
        word = str(name.children[0])
        arguments = list(_trees(rest[-1])) if rest else []
        if word in {"try", "can"}:
            return self._tried(word, arguments)
        if word in {"file", "yamldecode", "sensitive", "nonsensitive"} and len(arguments) == 1:
            return operators.decoded(word, self.value(arguments[0]), self._read_file)
        values = [self.value(each) for each in arguments]
        if any(str(each) == "..." for each in (rest[-1].children if rest else ())):
            values = [*values[:-1], *values[-1]]
        return call(word, values)

    def _tried(self, word: str, arguments: list[Any]) -> Any:
        for each in arguments:
            try:
                value = self.value(each)
            except UnresolvedError as error:
                if "not known" in error.why or "Terraform alone" in error.why:
                    raise
                continue
            return value if word == "try" else True
        if word == "can":
            return False
        raise UnresolvedError("none of what is tried can be had")

    def attribute(self, tree: Any) -> Any:
        """Return `a.b`."""
        inner, attribute = _trees(tree)
        return _member(self.value(inner), str(next(_trees(attribute)).children[0]))

    def item(self, tree: Any) -> Any:
        """Return `a[b]`, or `a.0`."""
        inner, index = _trees(tree)
        key = index.children[1] if index.data == "short_index" else self.value(next(_trees(index)))
        return _member(self.value(inner), int(key) if index.data == "short_index" else key)

    def splat(self, tree: Any) -> list[Any]:
        """Return `a[*].b`."""
        inner, splat = _trees(tree)
        value = self.value(inner)
        found = value if isinstance(value, list) else [] if value is None else [value]
        for step in _trees(splat):
            if step.data == "get_attr":
                found = [_member(each, str(next(_trees(step)).children[0])) for each in found]
            else:
                key = self.value(next(_trees(step))) if step.data == "braces_index" else int(step.children[1])
                found = [_member(each, key) for each in found]
        return found

    def choice(self, tree: Any) -> Any:
        """Return one of two values."""
        condition, yes, no = _trees(tree)
        return self.value(yes if operators.truth(self.value(condition)) else no)

    def sign(self, tree: Any) -> Any:
        """Return a value with a sign before it."""
        sign, inner = str(tree.children[0]), self.value(next(_trees(tree)))
        return -number_of(inner) if sign == "-" else not operators.truth(inner)

    def operation(self, tree: Any) -> Any:
        """Return what an operator gives."""
        left, term = _trees(tree)
        operator, right = _trees(term)
        sign = str(operator.children[0]).strip()
        return operators.combined(sign, self.value(left), lambda: self.value(right))

    def made_list(self, tree: Any) -> list[Any]:
        """Return `[for …]`."""
        intro, body, *condition = _trees(tree)
        return [here.value(body) for here in self._rounds(intro, condition)]

    def made_object(self, tree: Any) -> dict[str, Any]:
        """Return `{for …}`."""
        intro, key, value, *condition = _trees(tree)
        if any(str(each) == "..." for each in tree.children):
            raise UnresolvedError("values that are grouped by their keys are not worked out here")
        return {text_of(here.value(key)): here.value(value) for here in self._rounds(intro, condition)}

    def _rounds(self, intro: Any, condition: list[Any]) -> Iterator[Evaluation]:
        *names, collection = _trees(intro)
        words = [str(name.children[0]) for name in names]
        for key, value in items_of(self.value(collection)):
            bound = {words[0]: value} if len(words) == 1 else {words[0]: key, words[1]: value}
            here = self.with_names(bound)
            if not condition or operators.truth(here.value(next(_trees(condition[0])))):
                yield here


_BY_RULE: Final[Mapping[str, Callable[[Evaluation, Any], Any]]] = {
    "attr_splat_expr_term": Evaluation.splat,
    "binary_op": Evaluation.operation,
    "conditional": Evaluation.choice,
    "expr_term": Evaluation.term,
    "float_lit": Evaluation.fraction,
    "for_object_expr": Evaluation.made_object,
    "for_tuple_expr": Evaluation.made_list,
    "full_splat_expr_term": Evaluation.splat,
    "function_call": Evaluation.result,
    "get_attr_expr_term": Evaluation.attribute,
    "heredoc_template": Evaluation.lines,
    "heredoc_template_trim": Evaluation.trimmed_lines,
    "identifier": Evaluation.named,
    "index_expr_term": Evaluation.item,
    "int_lit": Evaluation.integer,
    "literal_value": Evaluation.literal,
    "object": Evaluation.object_of,
    "string": Evaluation.text,
    "tuple": Evaluation.list_of,
    "unary_op": Evaluation.sign,
}
"""Rule of the grammar → what works it out."""


def _member(value: Any, key: Any) -> Any:
    if isinstance(value, Names):
        return value.get(key)
    if isinstance(value, dict) and str(key) in value:
        return value[str(key)]
    if isinstance(value, list) and not isinstance(key, str) and -1 < number_of(key) < len(value):
        return value[int(number_of(key))]
    raise UnresolvedError(f"there is no {key!r} in it" if isinstance(key, str | int) else "its key is no text")


def _source(tree: Any) -> str:
    """Return a key as it is written, without its quotes."""
    return "".join(str(each) for each in tree.scan_values(lambda _: True)).strip('"')


def _unescaped(found: re.Match[str]) -> str:
    sign = found[1]
    return _ESCAPES[sign] if sign in _ESCAPES else chr(min(int(sign[1:], 16), 0x10FFFF))


def _trees(tree: Any, data: str | None = None) -> Iterator[Any]:
    """Yield what a tree is made of: neither signs nor comments."""
    for child in tree.children:
        if hasattr(child, "data") and child.data != "new_line_or_comment" and (data is None or child.data == data):
            yield child
