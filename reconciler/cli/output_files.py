"""Check that an output option overwrites only earlier outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, get_args

import orjson

from reconciler.cli.options import OutputFormat
from reconciler.errors import UsageError
from reconciler.manifests.files import WORKSPACE_FILE

Kind: TypeAlias = Literal[
    "a saved plan",
    "metrics",
    "a file of --known",
    "a JSON Schema",
    "records as JSON",
    "Parquet",
    "values",
    "a report",
]
_MAX_READ_BYTES: Final = 1 << 30
_FIRST_LINE_KINDS: Final = ("records as JSON", "Parquet", "values")
_REPORT_FORMATS: Final = ("reconciler.plan/", "reconciler.drift/", "reconciler.validate/", "reconciler.error/")
_REPORT_MARKUP: Final = (b'<testsuites name="reconciler ', b"<footer><p>Made by reconciler ")
_MANIFESTS: Final = (".yaml", ".yml")
_STATE_FILES: Final = ("lockfile.json", "catalog/head.json")
_STATE_FOLDER: Final = ".reconciler"
_REPOSITORY_FOLDER: Final = ".git"


def check_output(option: str, path: Path, kind: Kind, *, is_added_to: bool = False) -> Path:
    """Return the path if writing to it destroys no other data.

    A file must be missing, empty or of the same `kind`, unless output is appended (`is_added_to`), and not in a folder
    of states or clusters.
    """
    check_name(option, path)
    try:
        _check_location(option, path)
        if not is_added_to:
            _check_content(option, path, kind)
    except OSError as error:
        message = f"{option} {path}: {error.strerror or error}"
        raise UsageError(message, hint="Name a file in a folder that can be written.") from error
    return path


def check_folder(option: str, path: Path) -> None:
    """Reject a folder inside a state, a cluster or a repository."""
    target = path.resolve()
    _reject_managed_folder(option, path, (target, *target.parents), "Name a folder elsewhere. Nothing was done.")


def check_name(option: str, path: Path) -> None:
    """Reject `-` and format names: other tools accept `-o json`."""
    if str(path) in get_args(OutputFormat):
        raise UsageError(
            f"-o is {option} here, and '{path}' is a format", hint=f"Write --format {path}, or {option} ./{path}"
        )
    if str(path) == "-":
        raise UsageError(
            f"{option} is a file, not '-'",
            hint="Leave it out and give --format json: that is printed. A plan to apply later must be a file.",
        )


def _check_location(option: str, path: Path) -> None:
    target = path.resolve()
    if target.is_dir():
        raise UsageError(f"{option} {path} is a folder", hint="Name a file in it. Nothing was done.")
    _reject_managed_folder(option, path, target.parents, "Name a file elsewhere. Nothing was done.")
    is_ours = any((folder / WORKSPACE_FILE).is_file() for folder in target.parents)
    if target.name == WORKSPACE_FILE or (is_ours and target.suffix in _MANIFESTS):
        message = f"{option} {path} has the name of a manifest, and is in a workspace"
        raise UsageError(message, hint="Name a file that does not end in .yaml or .yml. Nothing was done.")


def _reject_managed_folder(option: str, path: Path, folders: Iterable[Path], hint: str) -> None:
    for folder in folders:
        if folder.name == _STATE_FOLDER or any((folder / name).is_file() for name in _STATE_FILES):
            raise UsageError(f"{option} {path} is in {folder}, which holds a state or a cluster", hint=hint)
        if folder.name == _REPOSITORY_FOLDER:
            raise UsageError(f"{option} {path} is in the .git folder of a repository", hint=hint)


def _check_content(option: str, path: Path, kind: Kind) -> None:
    if not path.is_file():
        return
    with path.open("rb") as file:
        body = file.readline(_MAX_READ_BYTES) if kind in _FIRST_LINE_KINDS else file.read(_MAX_READ_BYTES)
    if body and not _TESTS[kind](body):
        message = f"{option} {path} is there already, and is not {kind}"
        raise UsageError(message, hint="It would be replaced. Name another file, or remove it. Nothing was done.")


def _build_format_test(begin: str) -> Callable[[bytes], bool]:
    return lambda body: str(_parse_document(body).get("format")).startswith(begin)


def _parse_document(body: bytes) -> Mapping[str, Any]:
    try:
        content = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return content if isinstance(content, dict) else {}


def _is_metrics(body: bytes) -> bool:
    return body.startswith((b"# HELP reconciler_", b"# TYPE reconciler_")) or _build_format_test("reconciler.metrics/")(
        body
    )


def _is_records(line: bytes) -> bool:
    return {"partition", "offset", "timestamp_ms"} <= _parse_document(line).keys()


def _is_report(body: bytes) -> bool:
    if document := _parse_document(body):
        is_of_gitlab = document.keys() == {"create", "update", "delete"}
        return is_of_gitlab or str(document.get("format")).startswith(_REPORT_FORMATS) or _is_sarif(document)
    return body.startswith(b"<!-- reconciler:") or any(prefix in body for prefix in _REPORT_MARKUP)


def _is_sarif(document: Mapping[str, Any]) -> bool:
    try:
        return bool(document["runs"][0]["tool"]["driver"]["name"] == "reconciler")
    except (KeyError, IndexError, TypeError):
        return False


_TESTS: Final[Mapping[Kind, Callable[[bytes], bool]]] = {
    "a saved plan": _build_format_test("reconciler.plan/"),
    "metrics": _is_metrics,
    "a file of --known": _build_format_test("reconciler.known-drift/"),
    "a JSON Schema": lambda body: {"$schema", "title"} <= _parse_document(body).keys(),
    "records as JSON": _is_records,
    "Parquet": lambda head: head.startswith(b"PAR1"),
    "values": lambda _head: False,
    "a report": _is_report,
}
KINDS: Final[Mapping[str, Kind]] = {"records": "records as JSON", "values": "values", "parquet": "Parquet"}
