"""What is read, and where it goes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from reconciler.records.log import Isolation


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeOptions:
    """What is read and where it goes; `None` as `output` is standard output."""

    output: Path | None = None
    output_format: str = "records"
    partition: int | None = None
    start: str = "earliest"
    """`earliest`, `latest`, an offset, or a time; with a group, of what it never committed."""
    max_records: int | None = None
    isolation: Isolation = "read_committed"
    follow: bool = False
    group: str | None = None
    """Where it left off is where reading begins; what was written is committed."""
    regex: str | None = None
    """Read all topics of a cluster whose full name matches, in place of one."""
    skip_missing: bool = False
    """Go on after offsets whose object is gone, and say which they are; otherwise they are an error."""
