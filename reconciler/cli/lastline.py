"""With JSON the last line of a stream says how it ended where it did not end well."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from reconciler.cli.console import out

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def last_line(form: Literal["text", "json"]) -> Iterator[None]:
    """Write the error that ends the block as one more line of JSON; it goes on to be an exit code."""
    try:
        yield
    except BaseException as error:
        if form == "json":
            from reconciler.cli.documents.base import document_line
            from reconciler.cli.documents.refusals import ErrorEvent

            out().write_bytes(document_line(ErrorEvent.of(error)))
        raise
