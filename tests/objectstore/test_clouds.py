"""Google Cloud Storage and Azure on bad days: lost and late answers, races, wrong credentials, a server gone."""

from __future__ import annotations

import os
import pickle
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from reconciler.errors import ReconcilerError, RetryableError, UserError
from reconciler.objectstore import cloud_client, swap
from reconciler.objectstore.cloud_store import SINGLE_BYTES, CloudStore
from reconciler.objectstore.open import open_store
from reconciler.objectstore.settings import Secret, StoreSettings
from tests.objectstore.conftest import body_of
from tests.servers.clouds import ACCOUNT, KEY, CloudServer
from tests.servers.proxy import Cut, FailedChore, Lost, Proxy, Stripped

if TYPE_CHECKING:
    from reconciler.objectstore.base import ObjectStore, StoredObject

pytestmark = pytest.mark.thorough

ROOT: Final = Path(__file__).resolve().parents[2]
LARGE: Final = bytes(range(256)) * (SINGLE_BYTES // 256 + 5)
BUCKET_WORDS: Final = {"gs": "bucket", "az": "container"}
LAST_PART: Final = {"gs": ("POST", "uploadId="), "az": ("PUT", "comp=blocklist")}
A_PART: Final = {"gs": "partNumber=2", "az": "comp=block&"}
CONDITIONS: Final = ("x-goog-if-generation-match",)


@pytest.fixture(params=["gs", "az"])
def server(request: pytest.FixtureRequest) -> CloudServer:
    found = request.getfixturevalue(f"{request.param}_server")
    assert isinstance(found, CloudServer)
    return found


# -- everything else


def test_a_large_body_whose_answers_were_lost_is_there_once(
    server: CloudServer, store: ObjectStore, truth: ObjectStore, proxy: Proxy
) -> None:
    method, key = LAST_PART[server.scheme]
    proxy.on("PUT", Lost(), key=A_PART[server.scheme])
    proxy.on(method, Lost(), key=key)
    store.put("large", LARGE)
    assert body_of(truth, "large") == LARGE
    assert proxy.count(method, key) == 2


def test_a_source_that_fails_in_the_middle_of_a_copy_is_told_as_it_is_and_leaves_nothing(
    server: CloudServer, truth: ObjectStore, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cloud_client, "ATTEMPTS", 1)
    source = open_store(server.settings("source", endpoint=proxy.endpoint))
    source.put("large", LARGE)
    proxy.let_pass("GET", 1)
    proxy.on("GET", FailedChore(503, "ServerBusy"), times=10)
    with pytest.raises(RetryableError, match=f"cannot read {source.url}/large: the store is throttling"):
        truth.copy_from("copied", source, "large")
    assert list(truth.list("")) == []


@pytest.mark.parametrize(
    "cut", [Cut(head=0), Cut(head=200), Cut(body=0), Cut(body=5)], ids=lambda cut: f"head {cut.head} body {cut.body}"
)
@pytest.mark.parametrize("is_new", [True, False])
def test_what_was_cut_off_leaves_nothing_and_the_next_try_is_whole(
    cut: Cut,
    is_new: bool,  # noqa: FBT001 - the case
    store: ObjectStore,
    truth: ObjectStore,
    proxy: Proxy,
) -> None:
    seen = list["StoredObject | None"]()
    expected = None if is_new else truth.swap("head", b"old", expected=None)
    proxy.on("PUT", replace(cut, then=lambda: seen.append(truth.get("head"))), key="head")
    store.swap("head", b"what is written", expected=expected)
    assert [None if each is None else each.body for each in seen] == [None if is_new else b"old"]
    assert body_of(truth, "head") == b"what is written"


def test_a_copy_within_a_bucket_never_passes_through_us(store: ObjectStore, proxy: Proxy) -> None:
    store.put("body", b"1" * 10_000)
    before = sum(len(one.body) for one in proxy.asked)
    store.copy_from("copied", store, "body")
    assert proxy.count("GET", "body") == 0
    assert sum(len(one.body) for one in proxy.asked) == before


@pytest.mark.parametrize("prefix", ["", "a", "a/", "a/b", "a/b-1", "b", "a/b/"])
def test_a_prefix_is_text_and_need_not_end_where_a_folder_does(prefix: str, truth: ObjectStore) -> None:
    names = ["a-b", "a/b", "a/b-1", "a/b-1/c", "a/b-2", "a/b/c", "a0", "b/a"]
    for name in names:
        truth.put(name, b"")
    assert [listed.key for listed in truth.list(prefix)] == [name for name in names if name.startswith(prefix)]


def test_the_clock_is_the_stores_own(truth: ObjectStore) -> None:
    truth.put("a", b"")
    (row,) = truth.list("a")
    assert abs(truth.read_clock_ms() - row.modified_ms) < 30_000


# -- what users meet: each a sentence that says what to do


CALLS: Final[dict[str, Callable[[ObjectStore], object]]] = {
    "read": lambda store: store.get("a"),
    "read part of": lambda store: store.get_range("a", 0, 1),
    "write": lambda store: store.put("b", b"2"),
    "swap": lambda store: store.swap("c", b"3", expected=None),
    "list": lambda store: list(store.list("")),
    "delete": lambda store: store.delete(["a"]),
    "delete several": lambda store: store.delete(["a", "b"]),
}


def told(call: Callable[[ObjectStore], object], settings: StoreSettings) -> ReconcilerError:
    with pytest.raises(ReconcilerError) as caught:
        call(open_store(settings))
    assert caught.value.hint
    for hidden in ("http", "Debug", "Error performing", KEY, "sig="):
        assert hidden not in caught.value.message
    return caught.value


@pytest.mark.parametrize("doing", CALLS)
def test_a_bucket_that_is_not_there_is_named(doing: str, server: CloudServer) -> None:
    url = f"{server.scheme}://not-there/prefix"
    error = told(CALLS[doing], server.settings(url=url))
    assert isinstance(error, UserError)
    assert url in error.message
    assert f"there is no such {BUCKET_WORDS[server.scheme]}" in error.message


@pytest.mark.parametrize("doing", CALLS)
def test_a_key_that_is_not_accepted_is_told(doing: str, az_server: CloudServer) -> None:
    error = told(CALLS[doing], az_server.settings(key="AAAA"))
    assert "the credentials are not accepted" in error.message
    assert "AZURE_STORAGE_KEY" in error.hint


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that try once."""
    monkeypatch.setattr(cloud_client, "ATTEMPTS", 1)
    monkeypatch.setattr(swap, "TRIES", 1)


SAID: Final = [
    (FailedChore(403, "AccessDenied"), "access denied", "Allow these credentials"),
    (FailedChore(403, "AuthorizationPermissionMismatch"), "access denied", "Allow these credentials"),
    (FailedChore(401, "AuthenticationRequired"), "the credentials are not accepted", "Check "),
    (FailedChore(403, "ExpiredToken"), "the credentials have expired", "Renew"),
    (FailedChore(507, "InsufficientStorage"), "the store is full", "Free some space"),
    (FailedChore(500, "InternalError", "we broke"), "the store failed: we broke", "Run the same command again"),
    (FailedChore(400, "SomethingNew", "never heard of"), "never heard of", "Check the location"),
]


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("case", SAID, ids=[one[0].code for one in SAID])
@pytest.mark.parametrize("doing", ["read", "write", "swap", "list", "delete"])
def test_what_the_store_says_is_a_sentence_and_nothing_is_lost(
    doing: str, case: tuple[FailedChore, str, str], server: CloudServer, proxy: Proxy
) -> None:
    refused, what, hint = case
    url = server.url("said")
    truth = open_store(server.settings(url=url))
    truth.put("a", b"1")
    for method in ("GET", "PUT", "DELETE", "POST"):
        proxy.on(method, refused, times=50)
    error = told(CALLS[doing], server.settings(url=url, endpoint=proxy.endpoint))
    assert what in error.message
    assert hint in error.hint
    assert [listed.key for listed in truth.list("")] == ["a"]


@pytest.mark.parametrize("doing", CALLS)
def test_a_store_nobody_listens_at_is_said(doing: str, server: CloudServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cloud_client, "ATTEMPTS", 2)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    error = told(CALLS[doing], server.settings(endpoint=f"http://127.0.0.1:{port}"))
    assert isinstance(error, RetryableError)
    assert "refused" in error.message


@pytest.mark.parametrize("scheme", ["gs", "az"])
def test_a_server_that_goes_away_in_the_middle_is_said(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cloud_client, "ATTEMPTS", 2)
    monkeypatch.setattr(swap, "TRIES", 2)
    with CloudServer.start(scheme) as server:
        store = open_store(server.settings())
        store.swap("a", b"1", expected=None)
    for call in CALLS.values():
        with pytest.raises(RetryableError) as caught:
            call(store)
        assert "connection refused" in caught.value.message


def test_a_name_nobody_knows_is_said(server: CloudServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cloud_client, "ATTEMPTS", 1)
    error = told(CALLS["read"], server.settings(endpoint="http://store.invalid:9"))
    assert isinstance(error, RetryableError)


@pytest.mark.parametrize("endpoint", ["not a url", "ftp//x"])
def test_an_endpoint_that_cannot_be_is_said(endpoint: str, server: CloudServer) -> None:
    error = told(CALLS["read"], server.settings(endpoint=endpoint))
    assert isinstance(error, UserError)
    assert "endpoint" in error.hint


def test_a_store_that_ignores_conditions_is_found_out(gs_server: CloudServer) -> None:
    # Not asked of Azurite: its requests are signed with their conditions.
    with Proxy(gs_server.endpoint) as proxy:
        proxy.on("PUT", Stripped(CONDITIONS), times=100)
        settings = gs_server.settings("probe", endpoint=proxy.endpoint)
        assert list(open_store(settings).find_violated_conditions()) == [
            "it overwrites an object that was to be created only if absent",
            "it accepts a swap based on an old version",
        ]
        assert list(open_store(settings).list("")) == []


# -- how it is reached


@pytest.fixture
def location(server: CloudServer, monkeypatch: pytest.MonkeyPatch) -> StoreSettings:
    """A location as a manifest has it: nothing but a URL; the rest stands in the environment."""
    for name, value in server.environ().items():
        monkeypatch.setenv(name, value)
    return StoreSettings(server.url("settings"))


def test_a_store_arrives_complete_where_there_is_no_environment(location: StoreSettings, server: CloudServer) -> None:
    open_store(location).put("a", b"1")
    reading = "import pickle, sys; print(pickle.load(sys.stdin.buffer).get('a').body)"
    done = subprocess.run(
        [sys.executable, "-c", reading],
        input=pickle.dumps(open_store(location)),
        capture_output=True,
        cwd=ROOT,
        env={},
        timeout=60,
        check=True,
    )
    assert done.stdout.strip() == b"b'1'"
    assert server.endpoint not in location.url


def test_credentials_are_never_shown(location: StoreSettings) -> None:
    store = open_store(location)
    assert isinstance(store, CloudStore)
    for shown in (repr(store.settings), str(store.settings), repr(store)):
        assert KEY not in shown
        assert "emulator" not in shown


def test_an_emulator_gets_no_credentials(
    gs_server: CloudServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "key.json"
    path.write_text('{"type": "service_account", "private_key": "SECRET"}')
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
    with Proxy(gs_server.endpoint) as proxy:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", proxy.endpoint.removeprefix("http://"))
        open_store(StoreSettings(gs_server.url())).put("a", b"1")
        assert {one.headers["authorization"] for one in proxy.asked} == {"Bearer emulator"}


_READ_BY_PYARROW: Final = """
import sys
from reconciler.objectstore.s3_client import open_arrow_filesystem
from reconciler.objectstore.settings import StoreSettings
system, path = open_arrow_filesystem(StoreSettings(sys.argv[1]))
with system.open_input_file(f"{path}/folder/a") as file:
    sys.stdout.buffer.write(file.read())
"""


def test_pyarrow_reaches_the_same_place(server: CloudServer) -> None:
    # In a process of its own: pyarrow holds the interpreter while it reads from Google, and `Front` answers in ours.
    url = server.url("arrow")
    open_store(server.settings(url=url)).put("folder/a", b"0123")
    done = subprocess.run(
        [sys.executable, "-c", _READ_BY_PYARROW, url],
        env={**os.environ, **server.environ()},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.stderr.decode()) == (b"0123", "")


@pytest.mark.parametrize("name", ["region", "kms_key_id"])
def test_what_only_s3_has_is_refused(name: str, server: CloudServer) -> None:
    error = told(CALLS["read"], replace(server.settings(), **{name: "x"}))
    assert "has no meaning for" in error.message


def test_a_namespace_cannot_have_a_key_of_its_own(truth: ObjectStore) -> None:
    assert not truth.can_encrypt
    with pytest.raises(UserError, match="cannot encrypt"):
        truth.put("a", b"1", kms_key_id="alias/topics")


AZURE: Final = (
    "AZURE_STORAGE_ACCOUNT",
    "AZURE_STORAGE_ACCOUNT_NAME",
    "AZURE_STORAGE_KEY",
    "AZURE_STORAGE_CONNECTION_STRING",
)


@pytest.mark.parametrize(
    ("environ", "endpoint"),
    [
        ({"AZURE_STORAGE_ACCOUNT": "shop", "AZURE_STORAGE_KEY": KEY}, "https://shop.blob.core.windows.net"),
        (
            {"AZURE_STORAGE_CONNECTION_STRING": f"AccountName=shop;AccountKey={KEY}"},
            "https://shop.blob.core.windows.net",
        ),
        (
            {"AZURE_STORAGE_CONNECTION_STRING": f"AccountName=shop;AccountKey={KEY};EndpointSuffix=example.cn"},
            "https://shop.blob.example.cn",
        ),
        ({"AZURE_STORAGE_CONNECTION_STRING": "UseDevelopmentStorage=true"}, f"http://127.0.0.1:10000/{ACCOUNT}"),
    ],
)
def test_azure_is_reached_as_its_own_tools_do(
    environ: dict[str, str], endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in AZURE:
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    store = open_store(StoreSettings("az://topics/shop"))
    assert isinstance(store, CloudStore)
    told_by = dict(store.settings.cloud or ())
    assert (told_by["endpoint"], told_by["account_key"]) == (Secret(endpoint), Secret(KEY))


@pytest.mark.parametrize(
    ("said", "kind"), [("true", "azure_cli"), ("1", "azure_cli"), ("false", None), ("0", None), ("False", None)]
)
def test_the_azure_cli_is_asked_for_a_token_only_where_that_is_wanted(
    said: str, kind: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in AZURE:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", "shop")
    monkeypatch.setenv("AZURE_USE_AZURE_CLI", said)
    store = open_store(StoreSettings("az://topics/shop"))
    assert isinstance(store, CloudStore)
    told_by = dict(store.settings.cloud or ())
    assert told_by.get("credential_type") == (None if kind is None else Secret(kind))


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({}, "no storage account is named"),
        ({"AZURE_STORAGE_CONNECTION_STRING": "AccountKey=SECRET"}, "names neither an account nor an endpoint"),
        ({"AZURE_STORAGE_ACCOUNT": "shop", "AZURE_STORAGE_KEY": "not base64!"}, "Access Key"),
    ],
)
def test_an_account_that_cannot_be_is_said(environ: dict[str, str], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in AZURE:
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    error = told(CALLS["read"], StoreSettings("az://topics/shop"))
    assert isinstance(error, UserError)
    assert said in error.message
    assert "SECRET" not in str(error)


@pytest.mark.parametrize(
    ("body", "said"), [(None, "cannot be read: No such file"), ('{"type": "service_account"}', "")]
)
def test_a_file_of_credentials_that_is_none_is_said(
    body: str | None, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "key.json"
    if body is not None:
        path.write_text(body)
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
    error = told(CALLS["read"], StoreSettings("gs://topics/shop"))
    assert isinstance(error, UserError)
    assert said in error.message
    assert "GOOGLE_APPLICATION_CREDENTIALS" in error.hint


@pytest.mark.parametrize(("url", "extra"), [("gs://topics/a", "gcs"), ("az://topics/a", "azure")])
def test_without_the_extra_it_is_said_what_to_install(url: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cloud_client, "find_spec", lambda _name: None)
    with pytest.raises(UserError, match=rf"obstore, which is not installed\. .*'stream-reconciler\[{extra}\]'"):
        open_store(StoreSettings(url))
