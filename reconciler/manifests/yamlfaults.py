"""What YAML itself can get wrong, in words for people: syntax, encodings, tags, limits."""

from __future__ import annotations

import re
from typing import Any, Final, NoReturn

import yaml
from yaml.reader import ReaderError

from reconciler.manifests.problems import Problem
from reconciler.manifests.scalars import resolve

_TAGS: Final = "tag:yaml.org,2002:"


class RefusedYamlError(Exception):
    """Well-formed YAML that is not read: too much of it, or a tag."""

    def __init__(self, message: str, mark: Any, *, hint: str) -> None:
        """Keep the place."""
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.mark = mark


def tagged_scalar(event: Any) -> Any:
    """Return what a scalar with an explicit tag means: the core schema's tags only, `!!str 12` among them."""
    value: Any = event.value
    if event.tag in {"!", f"{_TAGS}str"}:
        return value
    resolved = resolve(value)
    wanted = {f"{_TAGS}null": type(None), f"{_TAGS}bool": bool, f"{_TAGS}int": int, f"{_TAGS}float": float}
    if type(resolved) is not wanted.get(event.tag):
        _refuse_tag(event)
    return resolved


def check_collection_tag(event: Any, tag: str) -> None:
    """Refuse any tag of a collection but its own: no tag ever constructs anything."""
    if event.tag not in {"!", f"{_TAGS}{tag}"}:
        _refuse_tag(event)


def _refuse_tag(event: Any) -> NoReturn:
    shown = event.tag.replace(_TAGS, "!!")
    raise RefusedYamlError(f"the tag {shown} is not read here", event.start_mark, hint="Leave the tag out")


def problem_of(error: Exception, raw: bytes, file: str) -> Problem:
    """Say what kept a file from being read, and where."""
    match error:
        case RefusedYamlError():
            return _at(file, error.mark, error.message, error.hint)
        case ReaderError() | UnicodeError():
            return _unreadable(raw, file)
        case yaml.MarkedYAMLError():
            mark = error.problem_mark or error.context_mark
            return _at(file, mark, *_reworded(error, _character(raw, mark)))
        case _:
            return Problem(file, None, None, "", f"is not YAML: {error}", _CHECK)


def _at(file: str, mark: Any, message: str, hint: str) -> Problem:
    if mark is None:
        return Problem(file, None, None, "", message, hint)
    return Problem(file, mark.line + 1, mark.column + 1, "", message, hint)


_CHECK: Final = "Check quotes, brackets and indentation just before this place"
_REWORDED: Final = (
    (
        "mapping values are not allowed",
        "a ': ' stands where no key can",
        "Quote the text, or correct the indentation",
    ),
    (
        "could not find expected ':'",
        "a key without ': '",
        "Write `key: value`; quote texts of several lines",
    ),
    ("end of stream", "the file ends too early", "Close the quote or bracket that is open"),
    ("undefined tag handle", "a tag that is not read here", "Leave the tag out, or quote the text that begins with !"),
    ("did not find expected alphabetic", "a * or & that names nothing", "Quote the text that begins with * or &"),
    ("unknown escape character", "a \\ that escapes nothing", "Write \\\\, or use single quotes"),
    ("did not find expected", "the structure breaks here", _CHECK),
    ("block sequence entries are not allowed", "a '- ' stands where no list can", "Put it on a line of its own"),
)


def _reworded(error: yaml.MarkedYAMLError, character: str) -> tuple[str, str]:
    what = (error.problem or error.context or "cannot be read").strip()
    if "cannot start any token" in what:
        if character == "\t":
            return "a tab stands where YAML wants spaces", "Indent with spaces"
        return f"{character} cannot begin a text", "Quote the text"
    began = error.context_mark
    inside = ""
    if began is not None and error.problem_mark is not None and began.line != error.problem_mark.line:
        inside = f", inside what began on line {began.line + 1}"
    for found, message, hint in _REWORDED:
        if found in what:
            return message + inside, hint
    return f"is not YAML: {what}{inside}", _CHECK


def _character(raw: bytes, mark: Any) -> str:
    """Return the character at a mark; empty past the end."""
    lines = raw.decode(errors="replace").split("\n")
    return lines[mark.line][mark.column : mark.column + 1] if mark is not None and mark.line < len(lines) else ""


_FORBIDDEN: Final = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
UTF_16: Final = (b"\xff\xfe", b"\xfe\xff")
"""How files in UTF-16 and UTF-32 begin."""


def _unreadable(raw: bytes, file: str) -> Problem:
    """Say which byte or character is none of YAML's."""
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        line, column = _line_and_column(raw[: error.start].decode(errors="replace"))
        message = f"is not UTF-8: the byte 0x{raw[error.start]:02x} begins no character"
        return Problem(file, line, column, "", message, "Save it as UTF-8")
    found = _FORBIDDEN.search(text)
    if found is None:
        return Problem(file, None, None, "", "holds a character that YAML does not allow", "Remove it")
    line, column = _line_and_column(text[: found.start()])
    what = "a NUL byte" if found[0] == "\0" else f"the control character U+{ord(found[0]):04X}"
    hint = "Is it a text file? Remove the character, or write it as an escape in double quotes"
    return Problem(file, line, column, "", f"holds {what}, which YAML does not allow", hint)


def _line_and_column(before: str) -> tuple[int, int]:
    return before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
