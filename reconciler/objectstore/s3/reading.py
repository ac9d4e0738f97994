"""Read an object of S3 to its end: a body that breaks off is asked for again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from reconciler.objectstore.s3.faults import code_of, status_of

if TYPE_CHECKING:
    from collections.abc import Callable

GONE: Final = frozenset({"NoSuchKey", "NoSuchVersion", "404"})
_TRIES: Final = 4
_NOTHING_THERE: Final = 416


@dataclass(frozen=True, slots=True)
class Read:
    """A body and its ETag; beyond the end of an object both are empty."""

    body: bytes
    tag: str


def read_whole(ask: Callable[[], Any], *, tries: int = _TRIES) -> Read | None:
    """Return what `ask` (a GET) answers, whole; `None` where there is no object.

    The client repeats a request by itself, but not one whose answer has begun to arrive: that is done here.
    """
    from botocore.exceptions import ClientError, HTTPClientError, IncompleteReadError  # noqa: PLC0415 - as S3 itself

    for left in reversed(range(tries)):
        try:
            answer = ask()
        except ClientError as error:
            if code_of(error) in GONE:
                return None
            if status_of(error) == _NOTHING_THERE:
                return Read(b"", "")
            raise
        try:
            return Read(answer["Body"].read(), answer["ETag"])
        except (HTTPClientError, IncompleteReadError):
            if left == 0:
                raise
    raise AssertionError
