"""`reconciler export` of a cluster that no file declares: what may be typed, and what it gets."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Call

SERVER = ("--bootstrap-server", "127.0.0.1:1")
SCRAM = ("--security", "protocol=SASL_SSL", "--security", "mechanism=SCRAM-SHA-512")

REFUSED = [
    pytest.param(("--security", "protocol=SSL"), "is said of one that nothing declares", id="no server"),
    pytest.param(("--namespace-separator", "_"), "is said of one that nothing declares", id="a separator alone"),
    pytest.param((*SERVER, "--security", "SSL"), "'SSL' is no field=value", id="no field"),
    pytest.param(
        (*SERVER, "--security", "protocol=TLS"),
        "security.protocol: is the text 'TLS', not one of PLAINTEXT",
        id="no such protocol",
    ),
    pytest.param((*SERVER, "--security", "pasword=${env:X}"), "security.pasword: ", id="no such field"),
    pytest.param((*SERVER, *SCRAM), "security.username: is required with SCRAM-SHA-512", id="half of it"),
    pytest.param((*SERVER, "--namespace-separator", "/"), "'/' is not one of", id="no such separator"),
]


@pytest.mark.parametrize(("arguments", "told"), REFUSED)
def test_what_cannot_be_declared_is_refused_before_anything_is_asked(
    arguments: tuple[str, ...], told: str, typed: Call
) -> None:
    said = typed("export", "west", "-o", "out", *arguments)
    assert said.code == 64
    assert told in said.err


def test_a_secret_that_is_typed_out_is_refused_and_never_shown(typed: Call, tmp_path: Path) -> None:
    said = typed(
        *("export", "west", "-o", "out", *SERVER, *SCRAM),
        *("--security", "username=anna", "--security", "password=hunter2"),
    )
    assert said.code == 64
    assert "security.password: a secret must be a reference, never the secret itself" in said.err
    assert "Write ${env:NAME} or ${file:/path}" in said.err
    assert "hunter2" not in said.out + said.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("security", "told"),
    [
        pytest.param(
            ("protocol=SASL_PLAINTEXT", "mechanism=PLAIN", "username=anna", "password=${env:PASSWORD}"),
            "SASL_PLAINTEXT sends passwords over a connection without encryption",
            id="brokers",
        ),
        pytest.param(
            ("protocol=SASL_SSL", "mechanism=OAUTHBEARER", "clientId=anna", "clientSecret=${env:PASSWORD}"),
            "is asked for tokens without encryption",
            id="a token endpoint",
        ),
    ],
)
def test_a_password_that_would_go_in_clear_is_refused_before_anything_connects(
    security: tuple[str, ...], told: str, typed: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PASSWORD", "hunter2")
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        fields = (*security, f"tokenEndpointUrl=http://{address}/token")
        options = tuple(word for field in fields for word in ("--security", field))
        said = typed("export", "west", "-o", "out", "--bootstrap-server", address, *options)
        assert said.code == 1
        assert told in said.err
        assert "allowPlaintextPasswords" in said.err
        server.settimeout(0)
        with pytest.raises(BlockingIOError):  # Nobody waits to be let in.
            server.accept()
    assert not (tmp_path / "out").exists()
