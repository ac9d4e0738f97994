"""Exchanges are checked against an OpenAPI document: wrong requests, answers, paths and statuses are deviations."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.servers.confluent import check_exchanges

_NAME: Final = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}
_JSON: Final = {"application/json": {"schema": _NAME}}
_DOCUMENT: Final = {
    "openapi": "3.0.0",
    "info": {"title": "Names", "version": "1"},
    "servers": [{"url": "https://example.com"}],
    "paths": {
        "/kafka/v3/names": {
            "post": {
                "requestBody": {"required": True, "content": _JSON},
                "responses": {"200": {"description": "ok", "content": _JSON}, "204": {"description": "nothing"}},
            }
        }
    },
}
_RIGHT: Final = {
    "method": "POST",
    "path": "/kafka/v3/names",
    "query": "",
    "request_type": "application/json",
    "request": {"name": "a"},
    "status": 200,
    "answer_type": "application/json",
    "answer": {"name": "a"},
    "fault": "",
}
_WRONG: Final[list[tuple[dict[str, Any], str]]] = [
    ({"request": {"name": 1}}, "POST /kafka/v3/names, request with 200: name: 1 is not of type 'string'"),
    ({"answer": {}}, "POST /kafka/v3/names, answer with 200: body: 'name' is a required property"),
    ({"status": 201}, "POST /kafka/v3/names, answer with 201: Unknown response http status: 201"),
    ({"path": "/kafka/v3/other", "status": 404}, "POST /kafka/v3/other, answer with 404: Path not found"),
]


def check(folder: Path, *rows: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    exchanges, document = folder / "exchanges", folder / "openapi.yaml"
    exchanges.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    document.write_text(yaml.safe_dump(_DOCUMENT))
    command = [sys.executable, check_exchanges.__file__, str(exchanges), "--spec", str(document)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_exchanges_as_documented_pass_and_faults_are_left_out(tmp_path: Path) -> None:
    rows = [_RIGHT, {**_RIGHT, "path": "/v3/names", "status": 204, "answer": None}]
    rows.append({**_RIGHT, "status": 500, "fault": "status"})
    result = check(tmp_path, *rows)
    assert (result.returncode, result.stdout) == (0, "2 of 3 exchanges checked: 0 kinds of deviations\n")


@pytest.mark.parametrize(("change", "line"), _WRONG)
def test_deviations_are_printed_once_with_their_number(tmp_path: Path, change: dict[str, Any], line: str) -> None:
    row = {**_RIGHT, **change}
    result = check(tmp_path, row, _RIGHT, row)
    assert result.returncode == 1
    assert result.stdout.startswith(f"2 times: {line}")
    assert result.stdout.endswith("3 of 3 exchanges checked: 1 kinds of deviations\n")
