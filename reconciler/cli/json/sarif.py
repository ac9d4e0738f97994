"""SARIF 2.1.0 for code scanning, without nulls."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Literal
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from reconciler.runtime.text import escape_invisible, pluralize
from reconciler.version import __home__

if TYPE_CHECKING:
    from reconciler.cli.text.remarks import Remark, Remarks


MOST_RESULTS: Final = 25_000
_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
_WITHOUT_PLACE: Final = "reconciler.yaml"


class _SarifModel(BaseModel):
    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        validate_by_name=True,
        serialize_by_alias=True,
        defer_build=True,
        json_schema_serialization_defaults_required=True,
    )


class Text(_SarifModel):
    """A message to display."""

    text: str = Field(min_length=1)


class Rule(_SarifModel):
    """A SARIF `rule`: the kind of a finding."""

    id: str = Field(pattern=r"^[a-z0-9-]+$")
    short_description: Text


class Driver(_SarifModel):
    """The tool and the rules of its results."""

    name: Literal["reconciler"] = "reconciler"
    version: str
    information_uri: Literal["https://github.com/stream-reconciler/reconciler"] = __home__
    rules: tuple[Rule, ...]


class Tool(_SarifModel):
    """The producer of the file."""

    driver: Driver


class ArtifactLocation(_SarifModel):
    """A file, relative to the root of the repository."""

    uri: str = Field(min_length=1)


class Region(_SarifModel):
    """A line of a file."""

    start_line: int = Field(ge=1)


class PhysicalLocation(_SarifModel):
    """A file and line."""

    artifact_location: ArtifactLocation
    region: Region


class LogicalLocation(_SarifModel):
    """The address of the resource."""

    fully_qualified_name: str
    kind: Literal["resource"] = "resource"


class Location(_SarifModel):
    """Where the resource is declared, and its address."""

    physical_location: PhysicalLocation
    logical_locations: tuple[LogicalLocation, ...]


class Fingerprints(_SarifModel):
    """Ids that are stable across runs, for code scanning and under the tool's own name."""

    primary_location_line_hash: str
    ours: str = Field(serialization_alias="reconciler/v1")


class Result(_SarifModel):
    """A SARIF `result`: one finding, its rule and its location."""

    rule_id: str
    rule_index: int = Field(ge=0)
    level: Literal["error", "warning", "note"]
    message: Text
    locations: tuple[Location]
    partial_fingerprints: Fingerprints


class Notification(_SarifModel):
    """A message about the file itself."""

    level: Literal["warning"] = "warning"
    message: Text


class Invocation(_SarifModel):
    """The outcome of the command."""

    execution_successful: bool = True
    tool_execution_notifications: tuple[Notification, ...]


class Automation(_SarifModel):
    """Results replace earlier ones of the same workspace and environment."""

    id: str


class Run(_SarifModel):
    """All results of one command."""

    tool: Tool
    automation_details: Automation
    invocations: tuple[Invocation]
    results: tuple[Result, ...]


class SarifDocument(_SarifModel):
    """What `plan`, `drift` and `validate` print with `--format sarif`."""

    schema_uri: Literal["https://json.schemastore.org/sarif-2.1.0.json"] = Field(_SCHEMA, serialization_alias="$schema")
    version: Literal["2.1.0"] = "2.1.0"
    runs: tuple[Run]

    @classmethod
    def from_remarks(cls, remarks: Remarks, prefix: str = "") -> SarifDocument:
        """Convert errors and warnings to SARIF. `prefix` is the workspace's path in the repository: `topics/`."""
        rows = [row for row in remarks.rows if row.level != "note"]
        reported = rows[:MOST_RESULTS]
        rules = sorted({row.rule for row in rows})
        index = {rule: position for position, rule in enumerate(rules)}
        whose = "/".join(_escape_markup(part) for part in (remarks.workspace, remarks.environment) if part)
        run = Run(
            tool=Tool(
                driver=Driver(
                    version=remarks.tool,
                    rules=tuple(Rule(id=rule, short_description=Text(text=_format_rule_title(rule))) for rule in rules),
                )
            ),
            automation_details=Automation(id=f"reconciler-{remarks.command}/{whose}/"),
            invocations=(
                Invocation(
                    execution_successful=remarks.is_whole,
                    tool_execution_notifications=_list_omission_notes(len(rows) - len(reported)),
                ),
            ),
            results=tuple(_build_result(row, index[row.rule], prefix) for row in reported),
        )
        return cls(runs=(run,))


def _build_result(row: Remark, index: int, prefix: str) -> Result:
    hint = f". {row.hint}" if row.hint else ""
    return Result(
        rule_id=row.rule,
        rule_index=index,
        level=row.level,
        message=Text(text=_escape_markup(f"{row.message}{hint}")),
        locations=(
            Location(
                physical_location=_parse_location(row.source, prefix),
                logical_locations=(LogicalLocation(fully_qualified_name=escape_invisible(row.about)),),
            ),
        ),
        partial_fingerprints=Fingerprints(
            primary_location_line_hash=f"{row.fingerprint.removeprefix('sha256:')[:16]}:1", ours=row.fingerprint
        ),
    )


def _parse_location(source: str | None, prefix: str) -> PhysicalLocation:
    position = re.fullmatch(r"(?P<file>.+?):(?P<line>\d+)(?::\d+)?", source or "", re.DOTALL)
    file, line = (position["file"], max(1, int(position["line"]))) if position else (_WITHOUT_PLACE, 1)
    uri = quote(f"{prefix}{file}", safe="/", errors="surrogatepass")
    return PhysicalLocation(artifact_location=ArtifactLocation(uri=uri), region=Region(start_line=line))


def _escape_markup(text: str) -> str:
    r"""Escape links and placeholders: `[` becomes `\[`, `{0}` becomes `{{0}}`."""
    safe = re.sub(r"([\\\[\]])", r"\\\1", escape_invisible(text))
    return re.sub(r"\{(\d+)\}", r"{{\1}}", safe) or "-"


def _format_rule_title(rule: str) -> str:
    group, _, rest = rule.partition("-")
    words = rest.replace("-", " ")
    return f"{group.capitalize()}: {words}" if words else group.capitalize()


def _list_omission_notes(count: int) -> tuple[Notification, ...]:
    if count <= 0:
        return ()
    message = f"{pluralize(count, 'result')} not shown: a file of results holds {MOST_RESULTS:,}, the gravest first"
    return (Notification(message=Text(text=message)),)
