from __future__ import annotations

import itertools
import pickle
from collections.abc import Mapping
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from reconciler.errors import ReconcilerError, UserError
from reconciler.objectstore.settings import Patience
from reconciler.providers.protocol import Edge
from reconciler.providers.secrets import Secret, open_location, resolve_access, resolve_secret
from reconciler.resources.cluster import LocationSpec
from reconciler.resources.cluster_properties import ACCESS_KEY, AZURE_ACCOUNT, AZURE_KEY, SECRET_KEY, TRUST_FILE
from tests.servers.certificates import Authority
from tests.servers.clouds import ACCOUNT, KEY, CloudServer
from tests.servers.relay import Relay
from tests.servers.weed import REGION, S3Server, credentials_of

if TYPE_CHECKING:
    from reconciler.objectstore.base import ObjectStore


def test_a_secret_comes_from_the_environment_it_is_given() -> None:
    assert resolve_secret("${env:PASSWORD}", {"PASSWORD": "xyz"}).reveal() == "xyz"


def test_a_secret_comes_from_a_file_without_its_line_end(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("xyz\n")
    assert resolve_secret(f"${{file:{tmp_path}/secret}}", {}).reveal() == "xyz"


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
        resolve_secret(reference, {"EMPTY": ""})


# -- how properties of a cluster say that its object storage is reached, on real servers


KEYS = {ACCESS_KEY: "${env:RECONCILER_KEY}", SECRET_KEY: "${env:RECONCILER_SECRET}"}


def environ_of(identity: str = "admin") -> dict[str, str]:
    credentials = credentials_of(identity)
    return {"RECONCILER_KEY": credentials.access_key, "RECONCILER_SECRET": credentials.secret_key.text}


def reached(
    folder: Path,
    location: LocationSpec,
    properties: Mapping[str, str],
    environ: Mapping[str, str],
    idle_ms: int | None = None,
) -> ObjectStore:
    edge = Edge(folder, environ, lambda: "id", itertools.count().__next__)
    return open_location(location, edge, resolve_access(properties, Patience(idle_ms=idle_ms), edge))


def at(server: S3Server, endpoint: str | None = None) -> LocationSpec:
    return LocationSpec(
        url=server.url("keys"), region=REGION, endpoint=endpoint or server.endpoint, force_path_style=True
    )


@pytest.fixture
def no_aws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take away what else the keys could come from."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AZURE_STORAGE_CONNECTION_STRING"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.mark.thorough
@pytest.mark.usefixtures("no_aws")
def test_s3_is_reached_with_the_keys_that_properties_name_here_and_where_the_store_arrives(
    s3_server: S3Server, tmp_path: Path
) -> None:
    store = reached(tmp_path, at(s3_server), KEYS, environ_of())
    store.put("a", b"1")
    found = pickle.loads(pickle.dumps(store)).get("a")  # noqa: S301 - our own
    assert found is not None
    assert found.body == b"1"
    secret = environ_of()["RECONCILER_SECRET"]
    assert secret not in repr(store.__dict__)
    with pytest.raises(ReconcilerError, match=r"credentials|denied|not allow") as error:
        reached(tmp_path, at(s3_server), KEYS, {**environ_of(), "RECONCILER_SECRET": "hunter2"}).put("a", b"1")
    assert "hunter2" not in str(error.value)
    with pytest.raises(UserError, match="the environment variable RECONCILER_SECRET is not set"):
        reached(tmp_path, at(s3_server), KEYS, {"RECONCILER_KEY": "key"})
    with pytest.raises(ReconcilerError):
        reached(tmp_path, at(s3_server), {}, environ_of()).put("a", b"1")


@pytest.mark.thorough
@pytest.mark.usefixtures("no_aws")
def test_azure_is_reached_with_the_account_and_key_that_properties_name(az_server: CloudServer, tmp_path: Path) -> None:
    properties = {AZURE_ACCOUNT: ACCOUNT, AZURE_KEY: f"${{file:{tmp_path}/key}}"}
    location = LocationSpec(url=az_server.url("keys"), endpoint=f"{az_server.endpoint}/{ACCOUNT}")
    (tmp_path / "key").write_text(KEY)
    store = reached(tmp_path, location, properties, {})
    store.put("a", b"1")
    found = pickle.loads(pickle.dumps(store)).get("a")  # noqa: S301 - our own
    assert found is not None
    assert found.body == b"1"
    (tmp_path / "key").write_text("aHVudGVyMg==")
    with pytest.raises(ReconcilerError) as error:
        reached(tmp_path, location, properties, {}).put("a", b"1")
    assert "aHVudGVyMg==" not in str(error.value)


@pytest.mark.thorough
@pytest.mark.usefixtures("no_aws")
@pytest.mark.parametrize("scheme", ["s3", "az"])
def test_only_the_authority_of_the_trust_file_is_believed(
    scheme: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    server = request.getfixturevalue(f"{scheme}_server")
    (tmp_path / "other").mkdir()
    authority, other = Authority(tmp_path), Authority(tmp_path / "other", name="others")
    (tmp_path / "ca.pem").write_bytes(authority.ca.read_bytes())
    with Relay(authority.issued("store")) as relay:
        relay.lead_to(urlsplit(server.endpoint).port or 0)
        endpoint = f"https://{relay.address}"
        if scheme == "s3":
            location, keys = at(server, endpoint), KEYS
        else:
            location = LocationSpec(url=server.url("tls"), endpoint=f"{endpoint}/{ACCOUNT}")
            keys = {AZURE_ACCOUNT: ACCOUNT, AZURE_KEY: "${env:RECONCILER_AZURE}"}
        environ = {**environ_of(), "RECONCILER_AZURE": KEY}
        store = reached(tmp_path, location, {**keys, TRUST_FILE: "ca.pem"}, environ)
        store.put("a", b"1")
        found = store.get("a")
        assert found is not None
        assert found.body == b"1"
        assert store.read_clock_ms() > 0
        for trusted in ({}, {TRUST_FILE: str(other.ca)}):
            with pytest.raises(ReconcilerError):
                reached(tmp_path, location, {**keys, **trusted}, environ).swap("b", b"1", expected=None)
        with pytest.raises(UserError, match=f"{TRUST_FILE}: the certificates in .*nowhere.pem cannot be read"):
            reached(tmp_path, location, {**keys, TRUST_FILE: "nowhere.pem"}, environ)


@pytest.mark.thorough
def test_azure_says_the_time_also_where_the_machine_trusts_it_and_not_the_trust_file(
    az_server: CloudServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other").mkdir()
    authority, other = Authority(tmp_path), Authority(tmp_path / "other", name="others")
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca))
    with Relay(authority.issued("store")) as relay:
        relay.lead_to(urlsplit(az_server.endpoint).port or 0)
        location = LocationSpec(url=az_server.url("both"), endpoint=f"https://{relay.address}/{ACCOUNT}")
        keys = {AZURE_ACCOUNT: ACCOUNT, AZURE_KEY: "${env:RECONCILER_AZURE}", TRUST_FILE: str(other.ca)}
        store = reached(tmp_path, location, keys, {**environ_of(), "RECONCILER_AZURE": KEY})
        assert store.get("a") is None
        assert store.read_clock_ms() > 0
        other.ca.unlink()
        with pytest.raises(UserError, match=r"the certificates in .* cannot be read"):
            store.read_clock_ms()


@pytest.mark.thorough
@pytest.mark.usefixtures("no_aws")
@pytest.mark.parametrize("scheme", ["s3", "az", "gs"])
def test_a_connection_that_was_idle_for_longer_is_not_used_again(
    scheme: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = request.getfixturevalue(f"{scheme}_server")
    came = {}
    for idle_ms in (1, 60_000):
        with Relay() as relay:
            relay.lead_to(urlsplit(server.endpoint).port or 0)
            endpoint = f"http://{relay.address}"
            keys: dict[str, str] = {}
            match scheme:
                case "s3":
                    location, keys = at(server, endpoint), KEYS
                case "az":
                    location = LocationSpec(url=server.url("idle"), endpoint=f"{endpoint}/{ACCOUNT}")
                    keys = {AZURE_ACCOUNT: ACCOUNT, AZURE_KEY: "${env:RECONCILER_AZURE}"}
                case _:
                    monkeypatch.setenv("STORAGE_EMULATOR_HOST", endpoint)
                    location = LocationSpec(url=server.url("idle"))
            store = reached(tmp_path, location, keys, {**environ_of(), "RECONCILER_AZURE": KEY}, idle_ms)
            for _ in range(4):
                assert store.get("a") is None
                until = monotonic() + 0.05
                while monotonic() < until:
                    pass
            came[idle_ms] = relay.came
    assert came == {1: 4, 60_000: 1}
