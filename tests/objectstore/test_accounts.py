"""Stores that log in with a declared account, against local servers of the clouds' logins."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from google.auth import iam
from pydantic import ValidationError

from reconciler.errors import NotAuthorizedError, RetryableError, StoreRefusedError, UserError
from reconciler.objectstore import accounts as cloud_accounts
from reconciler.objectstore.open import open_store
from reconciler.objectstore.s3_client import open_arrow_filesystem
from reconciler.objectstore.s3_store import S3Store
from reconciler.objectstore.settings import Account, Credentials, Secret, StoreSettings
from reconciler.operations.steps.workspace import build_store_settings
from reconciler.providers.protocol import Edge
from reconciler.providers.secrets import StoreOptions, open_location
from reconciler.resources.cluster import LocationSpec
from tests.servers.accounts import (
    CLIENT_ID,
    EXTERNAL_ID,
    OWN_TOKEN,
    ROLE,
    SERVICE_ACCOUNT,
    AccountServer,
    write_google_login,
)
from tests.servers.clouds import CloudServer
from tests.servers.weed import S3Server, credentials_of

pytestmark = pytest.mark.thorough

ROLE_ACCOUNT = Account(role_arn=ROLE, external_id=EXTERNAL_ID, session_name="nightly")
MANY_MINUTES = 3600
FEW_MINUTES = 200
"""So soon before their expiry the clouds' libraries renew keys and tokens before each use."""


@pytest.fixture
def accounts() -> Iterator[AccountServer]:
    cloud_accounts._load_credentials.cache_clear()
    with AccountServer() as server:
        server.keys = [credentials_of("admin")]
        yield server
    cloud_accounts._load_credentials.cache_clear()


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


@pytest.mark.parametrize("wrong", [replace(ROLE_ACCOUNT, role_arn=f"{ROLE}s"), replace(ROLE_ACCOUNT, external_id=None)])
def test_a_role_that_may_not_be_assumed_is_named_once_and_no_secret_is_shown(
    wrong: Account, location: StoreSettings, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with pytest.raises(StoreRefusedError, match=rf"the role {ROLE}.*AccessDenied") as told:
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


def test_keys_in_the_settings_go_before_an_account(
    s3_server: S3Server, location: StoreSettings, accounts: AccountServer
) -> None:
    complete = replace(s3_server.settings(url=location.url), account=ROLE_ACCOUNT)
    open_store(complete).put("a", b"1")
    with pytest.raises(StoreRefusedError, match="the credentials are not accepted"):
        open_store(replace(complete, credentials=Credentials("nobody-knows", Secret("it")))).put("a", b"1")
    assert not accounts.requests


@pytest.fixture
def google(accounts: AccountServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AccountServer:
    """A machine that is logged in at Google, whose own account may impersonate another."""
    write_google_login(tmp_path / "login.json", accounts)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "login.json"))
    monkeypatch.setattr(iam, "_IAM_ENDPOINT", f"{accounts.url}/accounts/{{}}:generateAccessToken")
    return accounts


OF_SERVICE_ACCOUNT = Account(service_account=SERVICE_ACCOUNT)


def test_a_store_at_google_sends_the_token_of_the_service_account(google: AccountServer) -> None:
    store = open_store(StoreSettings("gs://topics/west", endpoint=google.url, account=OF_SERVICE_ACCOUNT))
    assert store.get("a") is None
    assert google.sent_tokens == google.tokens[:1]
    twin = pickle.loads(pickle.dumps(store))  # noqa: S301 - our own bytes
    assert twin.get("a") is None
    assert google.sent_tokens == google.tokens[:1] * 2


def test_tokens_of_a_service_account_are_renewed_before_they_expire(
    gs_server: CloudServer, google: AccountServer
) -> None:
    google.life_seconds = FEW_MINUTES
    store = open_store(StoreSettings(gs_server.url(), endpoint=gs_server.endpoint, account=OF_SERVICE_ACCOUNT))
    store.put("a", b"1")
    assert store.get("a").body == b"1"  # type: ignore[union-attr]  # it was put
    assert len(google.tokens) > 1


def test_executors_get_a_token_that_lasts_half_an_hour(google: AccountServer) -> None:
    store = open_store(StoreSettings("gs://topics/west", endpoint=google.url, account=OF_SERVICE_ACCOUNT))
    google.life_seconds = 20 * 60
    assert store.get("a") is None
    google.life_seconds = 60 * 60
    for _ in range(2):
        twin = pickle.loads(pickle.dumps(store))  # noqa: S301 - our own bytes
        assert twin.get("a") is None
    assert google.sent_tokens == [google.tokens[0], google.tokens[1], google.tokens[1]]


def test_a_service_account_that_may_not_be_impersonated_is_named_once_and_no_secret_is_shown(
    google: AccountServer,
) -> None:
    wrong = Account(service_account="other@shop.iam.gserviceaccount.com")
    with pytest.raises(NotAuthorizedError) as told:
        open_store(StoreSettings("gs://topics/west", endpoint=google.url, account=wrong)).get("a")
    assert told.value.message.startswith("the service account other@shop.iam.gserviceaccount.com gives no token: ")
    assert OWN_TOKEN not in str(told.value)
    assert "other@" not in told.value.hint


def azure_location(accounts: AccountServer, client_id: str) -> StoreSettings:
    return StoreSettings("az://topics/west", endpoint=f"{accounts.url}/shop", account=Account(client_id=client_id))


def test_a_store_at_azure_sends_the_token_of_the_managed_identity(
    accounts: AccountServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MSI_ENDPOINT", f"{accounts.url}/msi")
    monkeypatch.setenv("AZURE_CLIENT_SECRET", "own-secret")
    monkeypatch.setenv("AZURE_STORAGE_KEY", "b3du")
    assert open_store(azure_location(accounts, CLIENT_ID)).get("a") is None
    assert accounts.sent_tokens == accounts.tokens[:1]
    with pytest.raises(StoreRefusedError, match=r"credentials are not accepted \(400\)") as told:
        open_store(azure_location(accounts, "another")).get("a")
    assert "own-secret" not in str(told.value)


@pytest.mark.parametrize(
    ("url", "account", "field"),
    [
        ("s3://topics/west", {"serviceAccount": SERVICE_ACCOUNT}, "serviceAccount"),
        ("gs://topics/west", {"profile": "west"}, "profile"),
        ("az://topics/west", {"roleArn": ROLE}, "roleArn"),
        ("file://west", {"clientId": CLIENT_ID}, "clientId"),
        ("s3://topics/west", {"externalId": EXTERNAL_ID}, "externalId"),
        ("s3://topics/west", {"roleArn": "topics"}, "roleArn"),
        ("s3://topics/west", {}, "account"),
    ],
)
def test_an_account_that_has_no_meaning_for_a_location_is_refused(
    url: str, account: dict[str, str], field: str
) -> None:
    with pytest.raises(ValidationError, match=field):
        LocationSpec.model_validate({"url": url, "account": account})


def test_a_location_of_a_manifest_logs_in_with_its_account(
    location: StoreSettings, accounts: AccountServer, tmp_path: Path
) -> None:
    account = {"roleArn": ROLE, "externalId": EXTERNAL_ID}
    declared = LocationSpec.model_validate({"url": location.url, "account": account})
    edge = Edge(tmp_path, {}, lambda: "", lambda: 0)
    open_location(declared, edge).put("a", b"1")
    assert [fields["RoleSessionName"] for _, fields in accounts.requests] == ["reconciler"]
    assert build_store_settings(declared, tmp_path).account == Account(role_arn=ROLE, external_id=EXTERNAL_ID)
    with pytest.raises(UserError, match="`account` does not go with keys in `properties`"):
        open_location(declared, edge, StoreOptions(credentials=credentials_of("admin")))
