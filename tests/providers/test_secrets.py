from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from reconciler.errors import UserError
from reconciler.providers.secrets import Secret, resolve


def test_a_secret_comes_from_the_environment_it_is_given() -> None:
    assert resolve("${env:PASSWORD}", {"PASSWORD": "xyz"}).reveal() == "xyz"


def test_a_secret_comes_from_a_file_without_its_line_end(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("xyz\n")
    assert resolve(f"${{file:{tmp_path}/secret}}", {}).reveal() == "xyz"


def test_a_secret_never_shows() -> None:
    secret = Secret("xyz")
    shown = [str(secret), repr(secret), f"{secret}", f"{secret:>5}", repr([secret]), "%s" % secret]  # noqa: UP031 - the old way, too
    assert all("xyz" not in text for text in shown)
    assert all("***" in text for text in shown)


def test_a_secret_reaches_executors_whole_and_compares_by_its_text() -> None:
    secret = Secret("xyz")
    assert pickle.loads(pickle.dumps(secret)) == secret  # noqa: S301 - our own value
    assert secret != Secret("abc")
    assert len({secret, Secret("xyz")}) == 1


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("${env:NOWHERE}", "the environment variable NOWHERE is not set"),
        ("${env:EMPTY}", "is empty"),
        ("${file:/no/such/file}", "cannot be read: No such file or directory"),
        ("${file:/}", "cannot be read: Is a directory"),
        ("${file:/dev/null}", "is empty"),
        ("${file:/dev/zero}", "is longer than a secret can be"),
    ],
)
def test_a_secret_that_is_not_there_is_named_and_not_guessed(reference: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        resolve(reference, {"EMPTY": ""})
