"""Substitute variables in documents, and merge overlays."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from reconciler.errors import UsageError, UserError
from reconciler.manifests.files import (
    ENVIRONMENT,
    OVERLAYS,
    Findings,
    Place,
    build_label,
    list_environments,
    read_bounded,
)
from reconciler.manifests.positions import (
    FieldPath,
    Problem,
    Spot,
    describe_value,
    find_spots,
    parse_written_scalar,
    replace_scalar_texts,
)
from reconciler.manifests.yaml_documents import Document, parse_yaml
from reconciler.resources.base import FieldProblem
from reconciler.runtime.dataclass import dataclass, field
from reconciler.runtime.text import find_similar_spelling, format_suggestion, list_choices

NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
ENVIRONMENT_PREFIX: Final = "RECONCILER_VAR_"


@dataclass(frozen=True, slots=True)
class Variables:
    """Variables set by `--var name=value`, `--var-file` and `RECONCILER_VAR_name`."""

    texts: Mapping[str, str] = field(default_factory=dict)
    files: tuple[Path, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, texts: Iterable[str], *, files: Iterable[Path] = (), environ: Mapping[str, str]) -> Variables:
        """Parse `name=value` texts. The last value of a name counts."""
        pairs = dict(_parse_pair(text) for text in texts)
        return cls(texts=pairs, files=tuple(files), environ=environ)


class Value(NamedTuple):
    """Value and origin of a variable."""

    as_written: Any
    """Value inside a longer text. Numbers and booleans may be `ScalarText`."""
    origin: str

    @property
    def value(self) -> Any:
        """Value of a field that contains only this variable."""
        return replace_scalar_texts(self.as_written)


class Values:
    """Values of all variables, and which of them were used."""

    def __init__(self, known: Mapping[str, Value]) -> None:
        self._known = known
        self.used: set[str] = set()

    @property
    def names(self) -> frozenset[str]:
        """Names of all variables."""
        return frozenset(self._known)

    @property
    def origins(self) -> frozenset[str]:
        """Origins of the values: file names, environment variables, `--var`."""
        return frozenset(value.origin for value in self._known.values())

    def find(self, name: str) -> Value | None:
        """Return a variable's value and mark it as used; `None` if undefined."""
        self.used.add(name)
        return self._known.get(name)

    def list_unused(self, origin: str) -> tuple[str, ...]:
        """Return the unused variables from `origin`."""
        return tuple(
            sorted(name for name, value in self._known.items() if value.origin == origin and name not in self.used)
        )


FROM_COMMAND_LINE: Final = "--var"


def read_values(
    folder: Path,
    files: Iterable[Path],
    variables: Variables,
    read: Callable[[Path, str], bytes | Problem] = read_bounded,
) -> tuple[Values, list[Problem]]:
    """Return all variables, and problems. The last source counts: `files`, `--var-file`, environment, `--var`."""
    known: dict[str, Value] = {}
    problems: list[Problem] = []
    for file in (*files, *variables.files):
        label = build_label(file, folder)
        known.update(_read_values_file(read(file, label), label, problems))
    for name, text in sorted(variables.environ.items()):
        if name.startswith(ENVIRONMENT_PREFIX):
            known[name.removeprefix(ENVIRONMENT_PREFIX)] = parse_typed_value(text, name)
    for name, text in variables.texts.items():
        known[name] = parse_typed_value(text, FROM_COMMAND_LINE)
    return Values(known), problems


def parse_typed_value(text: str, origin: str) -> Value:
    """Parse a `--var` value as a YAML scalar. A quoted value is a string: `--var 'n="12"'`."""
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        return Value(text[1:-1], origin)
    written = parse_written_scalar(text)
    return Value(text if written is None else written, origin)


def _read_values_file(raw: bytes | Problem, label: str, problems: list[Problem]) -> dict[str, Value]:
    if isinstance(raw, Problem):
        problems.append(raw)
        return {}
    parsed = parse_yaml(raw, label)
    problems += parsed.problems
    if len(parsed.documents) > 1:
        hint = "Put all values into one"
        problems.append(Problem(label, parsed.documents[1].line, 1, "", "holds a second document", hint))
    if not parsed.documents:
        return {}
    content, line = parsed.documents[0].as_written, parsed.documents[0].line
    if not isinstance(content, dict):
        message = f"wants `name: value` lines, found {describe_value(content)}"
        problems.append(Problem(label, line, 1, "", message, "For example `partitions: 12`"))
        return {}
    wrong = {name: complaint for name, value in content.items() if (complaint := _check_variable(name, value))}
    places = find_spots(raw)[0] if wrong else {}
    for name, (message, hint) in wrong.items():
        spot = places.get((name,), Spot(line, 1))
        problems.append(Problem(label, spot.line, spot.column, name, message, hint))
    return {name: Value(value, label) for name, value in content.items() if name not in wrong}


def _check_variable(name: str, value: Any) -> tuple[str, str] | None:
    if not NAME.fullmatch(name):
        return "is not a name of a variable", "Begin with a letter or _, then letters, digits, _ and -"
    if value is None:
        return "has no value", "Give it one, or leave it out"
    if "${var." in str(value):
        return "uses a variable, and values cannot", "Write the value without variables"
    return None


def _parse_pair(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not NAME.fullmatch(name):
        raise UsageError(f"--var {text} is not NAME=VALUE", hint="For example --var partitions=12")
    return name, value


# Variables in values of variables are not substituted.


REFERENCE: Final = re.compile(r"\$\{([^{}]*)\}")
_VARIABLE: Final = re.compile(r"var\.([A-Za-z_][A-Za-z0-9_-]*)")
_SECRET: Final = re.compile(r"(env|file):.+")


class Substitution:
    """Substitutes the variables of one document.

    `secrets` has the paths of `${env:…}` and `${file:…}`; `used` maps paths to texts such as `var.partitions of
    values.yaml`.
    """

    def __init__(self, values: Values, *, as_written: bool = False) -> None:
        """`as_written` keeps the spelling of numbers and booleans, as `ScalarText`."""
        self.complaints: list[FieldProblem] = []
        self.secrets: list[FieldPath] = []
        self.has_null = False
        self.used: dict[FieldPath, str] = {}
        self._values = values
        self._as_written = as_written

    def substitute(self, content: Any, path: FieldPath = ()) -> Any:
        """Return `content` with variables replaced. Unknown ones stay and get a complaint."""
        match content:
            case str() if "${" in content:
                return self._interpolate(content, path)
            case dict():
                for key in content:
                    if "${" in key:
                        self._complain((*path, key), "a variable cannot be part of a key", "Write the key out")
                return {key: self.substitute(value, (*path, key)) for key, value in content.items()}
            case list():
                return [self.substitute(value, (*path, index)) for index, value in enumerate(content)]
            case _:
                return content

    def _interpolate(self, text: str, path: FieldPath) -> Any:
        alone = REFERENCE.fullmatch(text)
        if alone:
            value = self._find_value(alone[1], path)
            return value.as_written if self._as_written else value.value
        return REFERENCE.sub(lambda match: self._format_inside(match[1], path), text)

    def _format_inside(self, reference: str, path: FieldPath) -> str:
        value = self._find_value(reference, path).as_written
        match value:
            case bool():
                return "true" if value else "false"
            case str() | int() | float():
                return str(value)
            case _:
                self._complain(path, f"{reference} is {describe_value(value)} and stands inside a text", "Use it alone")
                return ""

    def _find_value(self, reference: str, path: FieldPath) -> Value:
        unchanged = Value(f"${{{reference}}}", "")
        if _SECRET.fullmatch(reference):
            self.secrets.append(path)
            return unchanged
        variable = _VARIABLE.fullmatch(reference)
        if variable is None:
            message = f"${{{reference}}} is not a reference"
            self._complain(path, message, "References are ${var.name}; in secret fields ${env:NAME} and ${file:/path}")
            return unchanged
        name = variable[1]
        known = self._values.find(name)
        if known is None:
            names = list_choices(self._values.names)
            define = f"Define it in a values file, or pass --var {name}=VALUE; defined are: {names}"
            hint = format_suggestion(find_similar_spelling(name, self._values.names), otherwise=define)
            self._complain(path, f"the variable {name} is not defined", hint)
            return unchanged
        earlier = f"{self.used[path]}, " if path in self.used else ""
        self.used[path] = f"{earlier}var.{name} of {known.origin}"
        self._record_references(known.as_written, path)
        return known

    def _record_references(self, value: Any, path: FieldPath) -> None:
        match value:
            case None:
                self.has_null = True
            case str() if any(_SECRET.fullmatch(item[1]) for item in REFERENCE.finditer(value)):
                self.secrets.append(path)
            case dict():
                for key, inner in value.items():
                    self._record_references(inner, (*path, key))
            case list():
                for index, inner in enumerate(value):
                    self._record_references(inner, (*path, index))
            case _:
                pass

    def _complain(self, path: FieldPath, message: str, hint: str) -> None:
        self.complaints.append(FieldProblem(message, hint, path))


DELETE: Final = "$delete"


def find_overlay_folder(folder: Path, environment: str) -> Path:
    """Return the overlay folder of an environment. Raises `UserError` if missing."""
    if not ENVIRONMENT.fullmatch(environment):
        raise UsageError(f"{environment!r} is not a name of an environment", hint="Up to 40 of [a-z0-9-]")
    names = folder / OVERLAYS / environment
    if not names.is_dir():
        known = list_environments(folder)
        otherwise = f"Create {OVERLAYS}/{environment}/; known: {list_choices(known)}"
        hint = format_suggestion(find_similar_spelling(environment, known), otherwise=otherwise)
        raise UserError(f"there is no environment {environment}", hint=hint)
    return names


def merge_content(base: Any, override: dict[str, Any], complaints: list[FieldProblem], path: FieldPath = ()) -> Any:
    """Return `base` merged with `override`. Mappings merge by key, lists are replaced, and `null` removes a key."""
    merged = dict(base)
    for key, value in override.items():
        at = (*path, key)
        if value is None:
            if key not in merged:
                complaints.append(FieldProblem("removes nothing: the base has no such key", "Leave it out", at))
            merged.pop(key, None)
        elif isinstance(value, dict) and isinstance(merged.get(key), dict):
            merged[key] = merge_content(merged[key], value, complaints, at)
        else:
            merged[key] = value
    return merged


def is_deletion(content: dict[str, Any], complaints: list[FieldProblem]) -> bool:
    """Return whether an overlay removes its address from the environment."""
    if DELETE not in content:
        return False
    if content[DELETE] is not True:
        complaints.append(FieldProblem("can only be true", f"Write `{DELETE}: true`, or leave it out", (DELETE,)))
    if "spec" in content:
        complaints.append(FieldProblem("is not used where the whole address is dropped", "Leave it out", ("spec",)))
    return True


class Draft(NamedTuple):
    """A document to validate. `places` are its overlay, if any, and its base."""

    content: Any
    as_written: Callable[[], Any]
    places: tuple[Place, ...]
    has_null: bool
    secrets: tuple[FieldPath, ...] = ()
    variables: Mapping[FieldPath, str] = MappingProxyType({})
    """Variables used in values, by path, such as `var.partitions of values.yaml`."""
    complaints: tuple[FieldProblem, ...] = ()


def read_drafts(
    files: Sequence[pathlib.Path], folder: pathlib.Path, values: Values, findings: Findings
) -> Iterator[Draft]:
    """Yield the drafts of `files`, and add problems to `findings`."""
    for number, file in enumerate(files):
        findings.tell(f"reading files: {number} of {len(files)}")
        label = build_label(file, folder)
        raw = findings.read(file, label)
        if isinstance(raw, Problem):
            findings.add_unreadable(raw)
            continue
        parsed = parse_yaml(raw, label)
        findings.problems += parsed.problems
        findings.is_whole &= parsed.is_whole
        has_reference = b"${" in raw
        for document in parsed.documents:
            yield build_draft(document, label, values if has_reference else None)


def build_draft(document: Document, label: str, values: Values | None) -> Draft:
    """Build a document's draft. `values` is `None` if variables are not supported."""
    places = (Place(label, document.number, document.line),)
    if values is None:
        return Draft(document.content, lambda: document.as_written, places, document.has_null)
    substitution = Substitution(values)
    return Draft(
        content=substitution.substitute(document.content),
        as_written=lambda: Substitution(values, as_written=True).substitute(document.as_written),
        places=places,
        has_null=document.has_null or substitution.has_null,
        secrets=tuple(substitution.secrets),
        variables=substitution.used,
        complaints=tuple(substitution.complaints),
    )


def merge_drafts(base: Draft, override: Draft) -> Draft:
    """Merge an overlay's draft into its base."""
    complaints: list[FieldProblem] = []
    return Draft(
        content=merge_content(base.content, override.content, complaints),
        as_written=lambda: merge_content(base.as_written(), override.as_written(), []),
        places=(*override.places, *base.places),
        has_null=base.has_null or override.has_null,
        secrets=(*base.secrets, *override.secrets),
        variables={**base.variables, **override.variables},
        complaints=(*base.complaints, *override.complaints, *complaints),
    )
