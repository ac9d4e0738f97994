"""Check exchanges of a server against an OpenAPI document: `check_exchanges.py FILE --spec OPENAPI`.

FILE has a line of JSON for each exchange, as `Confluent.start(exchanges=FILE)` writes it. Exchanges with a fault
are not checked. Deviations are printed in groups, the most frequent first; the exit code is 1 if there are any.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl

import yaml
from openapi_core import OpenAPI
from openapi_core.testing import MockRequest, MockResponse

_ROOT: Final = re.compile("^/v3/")
"""The paths of Platform's proxy, which are those of the document without its first part."""


class Deviation(NamedTuple):
    """A way in which exchanges of one path differ from the document."""

    method: str
    path: str
    side: str
    status: int
    reason: str


class Specification:
    """An OpenAPI document."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._openapi = OpenAPI.from_dict(document)
        self._host = document["servers"][0]["url"]
        names = {path: re.sub(r"\\\{[^}]*\\\}", "[^/]+", re.escape(path)) for path in document["paths"]}
        self._paths = {path: re.compile(pattern) for path, pattern in names.items()}

    def check(self, row: dict[str, Any]) -> Iterator[Deviation]:
        """Yield what differs from the document in an exchange."""
        path = _ROOT.sub("/kafka/v3/", row["path"])
        place = next((name for name, pattern in self._paths.items() if pattern.fullmatch(path)), path)
        where = (row["method"], place)
        body = b"" if row["request"] is None else json.dumps(row["request"]).encode()
        query = dict(parse_qsl(row["query"], keep_blank_values=True))
        method, kind = row["method"].lower(), row["request_type"] or "application/json"
        request = MockRequest(self._host, method, path, args=query, data=body, content_type=kind)
        is_right = row["status"] < 400  # A wrong request has to be answered with an error.
        for error in self._openapi.iter_request_errors(request) if is_right else ():
            yield from (Deviation(*where, "request", row["status"], reason) for reason in _explain(error))
        answer = row["answer"] if isinstance(row["answer"], str) else json.dumps(row["answer"])
        content = b"" if row["answer"] is None else answer.encode()
        response = MockResponse(content, row["status"], content_type=row["answer_type"])
        for error in self._openapi.iter_response_errors(request, response):
            yield from (Deviation(*where, "answer", row["status"], reason) for reason in _explain(error))


def _explain(error: Exception) -> list[str]:
    """Return what is wrong, without the values of the exchange."""
    cause: Any = error
    while cause.__cause__ is not None and not hasattr(cause, "schema_errors"):
        cause = cause.__cause__
    rows = getattr(cause, "schema_errors", ())
    places = [".".join("*" if isinstance(part, int) else part for part in row.absolute_path) for row in rows]
    return [f"{place or 'body'}: {row.message}" for place, row in zip(places, rows, strict=True)] or [f"{cause}"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, metavar="FILE")
    parser.add_argument("--spec", type=Path, required=True, metavar="OPENAPI")
    options = parser.parse_args()
    specification = Specification(yaml.load(options.spec.read_text(), Loader=yaml.CSafeLoader))
    rows = [json.loads(line) for line in options.file.read_text().splitlines()]
    checked = [row for row in rows if not row["fault"]]
    deviations = Counter(deviation for row in checked for deviation in specification.check(row))
    for (method, path, side, status, reason), count in deviations.most_common():
        sys.stdout.write(f"{count} times: {method} {path}, {side} with {status}: {reason}\n")
    sys.stdout.write(f"{len(checked)} of {len(rows)} exchanges checked: {len(deviations)} kinds of deviations\n")
    return int(bool(deviations))


if __name__ == "__main__":
    sys.exit(main())
