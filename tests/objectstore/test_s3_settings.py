"""One setting, resolved once: for every client here, for those on other machines, and for pyarrow."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws

from reconciler.objectstore import s3_client as client_module
from reconciler.objectstore.base import ObjectStore
from reconciler.objectstore.open import open_store
from reconciler.objectstore.s3_client import open_arrow_filesystem
from reconciler.objectstore.s3_store import SINGLE_BYTES, S3Store
from reconciler.objectstore.settings import Credentials, Secret, StoreSettings
from tests.servers.weed import BUCKET, REGION, S3Server, credentials_of

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def location(s3_server: S3Server, s3_environ: dict[str, str]) -> StoreSettings:
    """A location as a manifest has it: nothing but a URL; the rest stands in the environment."""
    assert s3_environ
    return StoreSettings(s3_server.url("settings"))


def settings_of(store: object) -> StoreSettings:
    assert isinstance(store, S3Store)
    return store.settings


def test_what_a_location_leaves_open_comes_from_the_environment(location: StoreSettings, s3_server: S3Server) -> None:
    store = open_store(location)
    store.put("a", b"1")
    assert settings_of(store) == StoreSettings(
        location.url, REGION, s3_server.endpoint, force_path_style=True, credentials=credentials_of("admin")
    )


def test_what_a_location_says_goes_before_the_environment(
    location: StoreSettings, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    store = open_store(replace(location, endpoint=s3_server.endpoint, region=REGION))
    store.put("a", b"1")
    assert settings_of(store).region == REGION


def test_without_any_endpoint_it_is_aws(s3_environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert s3_environ
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3")
    found = settings_of(open_store(StoreSettings("s3://bucket/prefix", region="eu-west-1")))
    assert (found.endpoint, found.region, found.force_path_style) == (None, "eu-west-1", False)


@pytest.mark.parametrize("is_forced", [True, False])
def test_the_style_of_addresses_can_be_forced(is_forced: bool, location: StoreSettings) -> None:  # noqa: FBT001 - the case
    assert settings_of(open_store(replace(location, force_path_style=is_forced))).force_path_style is is_forced


def test_a_store_arrives_complete_where_there_is_no_environment(location: StoreSettings) -> None:
    store = open_store(location)
    store.put("a", b"1")
    program = "import pickle, sys; print(pickle.loads(sys.stdin.buffer.read()).get('a').body)"
    bare = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")} | {
        "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:1",
        "AWS_REGION": "nowhere-1",
        "AWS_PROFILE": "nobody",
    }
    ended = subprocess.run(
        [sys.executable, "-c", program], input=pickle.dumps(store), env=bare, cwd=ROOT, capture_output=True, check=False
    )
    assert ended.stdout.decode().strip() == "b'1'", ended.stderr.decode()


def test_clients_are_made_by_boto3_and_share_one_reader_of_descriptions(location: StoreSettings) -> None:
    first = client_module.Clients(location)
    assert first.retrying_client.meta.config.user_agent.startswith("Boto3/")
    before = list(client_module._load_descriptions().search_paths)
    second = client_module.Clients(location)
    assert second.single_try_client.meta.config.user_agent.startswith("Boto3/")
    assert client_module._load_descriptions().search_paths == before, "nothing grows with the number of stores"


def test_credentials_are_never_shown(location: StoreSettings) -> None:
    found = settings_of(open_store(location))
    assert credentials_of("admin").secret_key.text not in f"{found!r} {found.credentials!r} {found.credentials}"
    assert f"{Secret('x')} {Secret('x')!r}" == "*** ***"
    assert Secret("x") == Secret("x")
    lent = Credentials("key", Secret("secret"), Secret("token"))
    assert pickle.loads(pickle.dumps(lent)) == lent  # noqa: S301 - our own bytes


@pytest.fixture
def lent(s3_environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A profile whose command lends keys for a moment, as SSO and assumed roles do; this file grows each time."""
    count = tmp_path / "count"
    lender = tmp_path / "lend.py"
    keys = credentials_of("admin")
    soon = (datetime.now(UTC) + timedelta(minutes=5)).isoformat()  # so soon that every use asks again
    answer = {"Version": 1, "AccessKeyId": keys.access_key, "SecretAccessKey": keys.secret_key.text, "Expiration": soon}
    lender.write_text(f"open({str(count)!r}, 'a').write('x')\nprint({json.dumps(json.dumps(answer))})")
    config = tmp_path / "config"
    config.write_text(f"[profile lent]\ncredential_process = {sys.executable} {lender}\n")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    monkeypatch.setenv("AWS_PROFILE", "lent")
    assert s3_environ
    return count


def test_a_copy_with_clients_of_its_own_goes_on_with_credentials_that_are_refreshed(
    location: StoreSettings, lent: Path
) -> None:
    store = open_store(location)
    twin = copy(store)
    for number in range(3):
        before = len(lent.read_text()) if lent.exists() else 0
        twin.put(f"{number}", b"1")
        assert len(lent.read_text()) > before
    found = store.get("2")
    assert found is not None
    assert found.body == b"1"


def test_lent_credentials_are_taken_anew_for_every_journey(location: StoreSettings, lent: Path) -> None:
    store = open_store(location)
    store.put("a", b"1")
    before = len(lent.read_text())
    twin = pickle.loads(pickle.dumps(store))  # noqa: S301 - our own bytes
    assert len(lent.read_text()) > before
    assert settings_of(twin).credentials == credentials_of("admin")
    assert twin.get("a").body == b"1"


def test_threads_share_one_store(location: StoreSettings) -> None:
    store = open_store(location)

    def turn(number: int) -> bytes:
        store.put(f"{number}", str(number).encode())
        found = store.get(f"{number}")
        assert found is not None
        return found.body

    with ThreadPoolExecutor(32) as pool:
        assert list(pool.map(turn, range(100))) == [str(number).encode() for number in range(100)]


FORKING = """
import os, pickle, sys
store = pickle.loads(sys.stdin.buffer.read())
assert store.get("a").body == b"1"
children = []
for _ in range(4):
    child = os.fork()
    if child == 0:
        os._exit(0 if all(store.get("a").body == b"1" for _ in range(10)) else 1)
    children.append(child)
assert all(store.get("a").body == b"1" for _ in range(10))
print([os.waitpid(child, 0)[1] for child in children])
"""


def test_a_forked_child_opens_connections_of_its_own(location: StoreSettings) -> None:
    store = open_store(location)
    store.put("a", b"1")
    ended = subprocess.run(
        [sys.executable, "-c", FORKING], input=pickle.dumps(store), cwd=ROOT, capture_output=True, check=False
    )
    assert ended.stdout.decode().strip() == "[0, 0, 0, 0]", ended.stderr.decode()


def test_pyarrow_reaches_the_same_place(location: StoreSettings) -> None:
    store = open_store(location)
    store.put("deep/a", b"arrow")
    system, path = open_arrow_filesystem(location)
    with system.open_input_file(f"{path}/deep/a") as stream:
        assert stream.read() == b"arrow"
    assert path == f"{BUCKET}/{location.url_path.partition('/')[2]}"


def test_pyarrow_reads_folders_in_the_same_way(tmp_path: Path) -> None:
    store = open_store(StoreSettings(f"file://{tmp_path}/west"))
    store.put("a", b"1")
    system, path = open_arrow_filesystem(StoreSettings(f"file://{tmp_path}/west"))
    with system.open_input_file(f"{path}/a") as stream:
        assert stream.read() == b"1"


# Every way of writing names the key it is to be encrypted under; the stand-in keeps what the headers said.


KEY_REGION = "eu-central-1"
KEY_BUCKET = "topics"
LARGE = bytes(SINGLE_BYTES + 1)


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """AWS as moto imitates it, with a bucket; and a client that looks beneath."""
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "any")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "any")
    with mock_aws():
        client = boto3.client("s3", region_name=KEY_REGION)
        client.create_bucket(Bucket=KEY_BUCKET, CreateBucketConfiguration={"LocationConstraint": KEY_REGION})
        yield client


def opened(prefix: str, kms_key_id: str | None = None) -> ObjectStore:
    return open_store(StoreSettings(f"s3://{KEY_BUCKET}/{prefix}", region=KEY_REGION, kms_key_id=kms_key_id))


def key_of(aws: Any, name: str) -> str | None:
    """Return the key an object is encrypted under, as the store says."""
    found = aws.head_object(Bucket=KEY_BUCKET, Key=name)
    if "SSEKMSKeyId" not in found:
        return None
    assert found["ServerSideEncryption"] == "aws:kms"
    key: str = found["SSEKMSKeyId"]
    return key


def write_all(store: ObjectStore, kms_key_id: str | None) -> None:
    """Write an object in every way there is under one key."""
    store.put("put", b"1", kms_key_id=kms_key_id)
    store.put("in-parts", LARGE, kms_key_id=kms_key_id)
    store.copy_from("copied", store, "put", kms_key_id=kms_key_id)


@pytest.mark.parametrize("name", ["put", "in-parts", "copied"])
def test_the_key_of_a_location_is_the_key_of_all_its_objects(name: str, aws: Any) -> None:
    write_all(opened("west", "alias/west"), None)
    assert key_of(aws, f"west/{name}") == "alias/west"


def test_a_key_of_the_call_goes_before_that_of_the_location(aws: Any) -> None:
    write_all(opened("west", "alias/west"), "alias/shop")
    assert {key_of(aws, f"west/{name}") for name in ("put", "in-parts", "copied")} == {"alias/shop"}


def test_registers_are_encrypted_under_the_key_of_the_location(aws: Any) -> None:
    store = opened("west", "alias/west")
    first = store.swap("head", b"1", expected=None)
    store.swap("head", b"2", expected=first)
    assert key_of(aws, "west/head") == "alias/west"


def test_each_prefix_of_a_bucket_has_its_own_key(aws: Any) -> None:
    opened("west", "alias/west").put("a", b"1")
    opened("east", "alias/east").put("a", b"1")
    opened("plain").put("a", b"1")
    assert [key_of(aws, f"{prefix}/a") for prefix in ("west", "east", "plain")] == ["alias/west", "alias/east", None]


def test_a_copy_takes_the_key_of_where_it_goes_not_of_where_it_was(aws: Any) -> None:
    west, east = opened("west", "alias/west"), opened("east", "alias/east")
    west.put("a", b"1")
    east.copy_from("a", west, "a")
    assert key_of(aws, "east/a") == "alias/east"
    assert east.get("a") is not None


def test_without_a_key_the_bucket_decides(aws: Any) -> None:
    write_all(opened("west"), None)
    assert {key_of(aws, f"west/{name}") for name in ("put", "in-parts", "copied")} == {None}


def test_stores_say_that_they_can_encrypt(aws: Any) -> None:
    del aws
    assert opened("west").can_encrypt
