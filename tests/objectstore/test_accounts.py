"""Stores that log in with a declared account, against local servers of the clouds' logins."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.errors import RetryableError, StoreRefusedError
from reconciler.objectstore.accounts import forget_aws_credentials
from reconciler.objectstore.open import open_store
from reconciler.objectstore.s3_client import open_arrow_filesystem
from reconciler.objectstore.s3_store import S3Store
from reconciler.objectstore.settings import Account, Credentials, Secret, StoreSettings
from tests.servers.accounts import EXTERNAL_ID, ROLE, AccountServer
from tests.servers.weed import S3Server, credentials_of

pytestmark = pytest.mark.thorough

ROLE_ACCOUNT = Account(role_arn=ROLE, external_id=EXTERNAL_ID, session_name="nightly")
MANY_MINUTES = 3600
FEW_MINUTES = 300
"""So soon before their expiry botocore renews keys before each use."""


@pytest.fixture
def accounts() -> Iterator[AccountServer]:
    forget_aws_credentials()
    with AccountServer() as server:
        server.keys = [credentials_of("admin")]
        yield server
    forget_aws_credentials()


@pytest.fixture
def location(
    s3_server: S3Server, s3_environ: dict[str, str], accounts: AccountServer, monkeypatch: pytest.MonkeyPatch
) -> StoreSettings:
    """A location with a role, on a machine whose own keys the store does not know."""
    assert s3_environ
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAMACHINE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "own-secret")
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", accounts.url)
    return StoreSettings(s3_server.url("account"), account=ROLE_ACCOUNT)


def test_a_store_uses_the_keys_of_the_role_that_it_assumes_once(
    location: StoreSettings, accounts: AccountServer
) -> None:
    store = open_store(location)
    store.put("a", b"1")
    assert store.get("a").body == b"1"  # type: ignore[union-attr]  # it was put
    open_store(replace(location, url=f"{location.url}/other")).put("b", b"2")
    assert [fields["RoleSessionName"] for _, fields in accounts.requests] == ["nightly"]


def test_keys_of_a_role_are_renewed_before_they_expire(location: StoreSettings, accounts: AccountServer) -> None:
    accounts.life_seconds, accounts.keys = FEW_MINUTES, [credentials_of("admin"), credentials_of("unlisted")]
    store = open_store(location)
    store.put("a", b"1")
    assert store.get("a").body == b"1"  # type: ignore[union-attr]  # it was put
    assert accounts.count("/") > 1
    assert isinstance(store, S3Store)
    assert store.settings.credentials is not None
    assert store.settings.credentials.access_key == credentials_of("unlisted").access_key


def test_keys_of_a_role_are_not_requested_again_while_they_are_valid(
    location: StoreSettings, accounts: AccountServer
) -> None:
    accounts.life_seconds = MANY_MINUTES
    store = open_store(location)
    for name in "abcde":
        store.put(name, b"1")
    assert accounts.count("/") == 1


def test_executors_get_the_keys_of_the_role_and_pyarrow_does(location: StoreSettings, accounts: AccountServer) -> None:
    store = open_store(location)
    store.put("a", b"1")
    twin = pickle.loads(pickle.dumps(store))  # noqa: S301 - our own bytes
    assert twin.get("a").body == b"1"
    system, path = open_arrow_filesystem(location)
    with system.open_input_file(f"{path}/a") as stream:
        assert stream.read() == b"1"
    assert accounts.count("/") == 1


@pytest.mark.parametrize(
    "wrong", [replace(ROLE_ACCOUNT, role_arn=f"{ROLE}s"), replace(ROLE_ACCOUNT, external_id=None)]
)
def test_a_role_that_may_not_be_assumed_is_named_once_and_no_secret_is_shown(
    wrong: Account, location: StoreSettings, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with pytest.raises(StoreRefusedError, match=r"the role arn:aws:iam::111122223333:role/topics.*AccessDenied") as told:
        open_store(replace(location, account=wrong)).get("a")
    assert f"{told.value.message} {told.value.hint}".count(ROLE) == told.value.message.count("AccessDenied") + 1
    assert "own-secret" not in f"{told.value} {caplog.text} {wrong}"


def test_an_sts_that_does_not_answer_may_come_back(location: StoreSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with pytest.raises(RetryableError, match=r"connection refused \(http://127\.0\.0\.1:1\)"):
        open_store(location).get("a")


def test_a_declared_profile_goes_before_keys_in_the_environment(
    location: StoreSettings, accounts: AccountServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = credentials_of("admin")
    (tmp_path / "config").write_text(
        f"[profile west]\naws_access_key_id = {keys.access_key}\naws_secret_access_key = {keys.secret_key.text}\n"
    )
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    open_store(replace(location, account=Account(profile="west"))).put("a", b"1")
    assert not accounts.requests
    with pytest.raises(StoreRefusedError, match=r"The config profile \(lost\) could not be found"):
        open_store(replace(location, account=Account(profile="lost"))).put("a", b"1")


def test_keys_in_the_settings_go_before_an_account(location: StoreSettings, accounts: AccountServer) -> None:
    open_store(replace(location, credentials=credentials_of("admin"))).put("a", b"1")
    wrong = Credentials("nobody-knows", Secret("it"))
    with pytest.raises(StoreRefusedError, match="the credentials are not accepted"):
        open_store(replace(location, credentials=wrong)).put("a", b"1")
    assert not accounts.requests
