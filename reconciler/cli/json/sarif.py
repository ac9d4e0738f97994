"""SARIF 2.1.0 for code scanning.

Written is the part of the format we use, and always all of it: nothing is null, nothing but what is named here occurs.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Literal
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from reconciler.runtime.text import counted, visible
from reconciler.version import __home__

if TYPE_CHECKING:
    from reconciler.cli.text.remarks import Remark, Remarks


MOST_RESULTS: Final = 25_000
"""A page that collects results refuses a file with more of them."""
_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
_WITHOUT_PLACE: Final = "reconciler.yaml"
"""What nothing declares any more stands here: a result without any place is refused."""


class _Part(BaseModel):
    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        validate_by_name=True,
        serialize_by_alias=True,
        defer_build=True,
        json_schema_serialization_defaults_required=True,
    )


class Text(_Part):
    """Words for people."""

    text: str = Field(min_length=1)


class Rule(_Part):
    """What kind of result there is."""

    id: str = Field(pattern=r"^[a-z0-9-]+$")
    short_description: Text


class Driver(_Part):
    """We, and all rules that occur."""

    name: Literal["reconciler"] = "reconciler"
    version: str
    information_uri: Literal["https://github.com/stream-reconciler/reconciler"] = __home__
    rules: tuple[Rule, ...]


class Tool(_Part):
    """Who made the file."""

    driver: Driver


class ArtifactLocation(_Part):
    """A file, relative to the root of the repository."""

    uri: str = Field(min_length=1)


class Region(_Part):
    """A line in it."""

    start_line: int = Field(ge=1)


class PhysicalLocation(_Part):
    """File and line."""

    artifact_location: ArtifactLocation
    region: Region


class LogicalLocation(_Part):
    """The address."""

    fully_qualified_name: str
    kind: Literal["resource"] = "resource"


class Location(_Part):
    """Where it is declared, and what it is."""

    physical_location: PhysicalLocation
    logical_locations: tuple[LogicalLocation, ...]


class Fingerprints(_Part):
    """The same for the same result, run after run; under the name that code scanning looks for, and under ours."""

    primary_location_line_hash: str
    ours: str = Field(serialization_alias="reconciler/v1")


class Result(_Part):
    """One remark."""

    rule_id: str
    rule_index: int = Field(ge=0)
    level: Literal["error", "warning", "note"]
    message: Text
    locations: tuple[Location]
    partial_fingerprints: Fingerprints


class Notification(_Part):
    """Something about the file itself."""

    level: Literal["warning"] = "warning"
    message: Text


class Invocation(_Part):
    """How it went."""

    execution_successful: bool = True
    tool_execution_notifications: tuple[Notification, ...]


class Automation(_Part):
    """Which results replace which: those of one workspace and environment those of the same."""

    id: str


class Run(_Part):
    """All results of one command."""

    tool: Tool
    automation_details: Automation
    invocations: tuple[Invocation]
    results: tuple[Result, ...]


class SarifDocument(_Part):
    """What `plan`, `drift` and `validate` print with `--format sarif`."""

    schema_uri: Literal["https://json.schemastore.org/sarif-2.1.0.json"] = Field(_SCHEMA, serialization_alias="$schema")
    version: Literal["2.1.0"] = "2.1.0"
    runs: tuple[Run]

    @classmethod
    def of(cls, remarks: Remarks, prefix: str = "") -> SarifDocument:
        """Return errors and warnings as SARIF.

        Notes are left out: code scanning makes an alert of every result, so each new topic would raise one. The comment
        and the page have them. `prefix` is the path from the repository's root to the workspace: `topics/`.
        """
        rows = [row for row in remarks.rows if row.level != "note"]
        reported = rows[:MOST_RESULTS]
        rules = sorted({row.rule for row in rows})
        index = {rule: position for position, rule in enumerate(rules)}
        whose = "/".join(_plain(part) for part in (remarks.workspace, remarks.environment) if part)
        run = Run(
            tool=Tool(
                driver=Driver(
                    version=remarks.tool,
                    rules=tuple(Rule(id=rule, short_description=Text(text=_described(rule))) for rule in rules),
                )
            ),
            automation_details=Automation(id=f"reconciler-{remarks.command}/{whose}/"),
            invocations=(
                Invocation(
                    execution_successful=remarks.is_whole,
                    tool_execution_notifications=_left_out(len(rows) - len(reported)),
                ),
            ),
            results=tuple(_result(row, index[row.rule], prefix) for row in reported),
        )
        return cls(runs=(run,))


def _result(row: Remark, index: int, prefix: str) -> Result:
    hint = f". {row.hint}" if row.hint else ""
    return Result(
        rule_id=row.rule,
        rule_index=index,
        level=row.level,
        message=Text(text=_plain(f"{row.message}{hint}")),
        locations=(
            Location(
                physical_location=_place(row.source, prefix),
                logical_locations=(LogicalLocation(fully_qualified_name=visible(row.about)),),
            ),
        ),
        partial_fingerprints=Fingerprints(
            primary_location_line_hash=f"{row.fingerprint.removeprefix('sha256:')[:16]}:1", ours=row.fingerprint
        ),
    )


def _place(source: str | None, prefix: str) -> PhysicalLocation:
    """Return the file and line of `manifests/topics.yaml:88`, or of `manifests/topics.yaml:88:3`."""
    position = re.fullmatch(r"(?P<file>.+?):(?P<line>\d+)(?::\d+)?", source or "", re.DOTALL)
    file, line = (position["file"], max(1, int(position["line"]))) if position else (_WITHOUT_PLACE, 1)
    uri = quote(f"{prefix}{file}", safe="/", errors="surrogatepass")
    return PhysicalLocation(artifact_location=ArtifactLocation(uri=uri), region=Region(start_line=line))


def _plain(text: str) -> str:
    r"""Return text in which nothing is a link or a placeholder: brackets are written `\[`, `{0}` is `{{0}}`."""
    safe = re.sub(r"([\\\[\]])", r"\\\1", visible(text))
    return re.sub(r"\{(\d+)\}", r"{{\1}}", safe) or "-"


def _described(rule: str) -> str:
    """Return what a rule is, in words: `danger-partitions-increase` is `Danger: partitions increase`."""
    group, _, rest = rule.partition("-")
    words = rest.replace("-", " ")
    return f"{group.capitalize()}: {words}" if words else group.capitalize()


def _left_out(count: int) -> tuple[Notification, ...]:
    if count <= 0:
        return ()
    message = f"{counted(count, 'result')} not shown: a file of results holds {MOST_RESULTS:,}, the gravest first"
    return (Notification(message=Text(text=message)),)
