"""What users of S3 meet: each a sentence that says what to do, and nothing lost."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from reconciler.errors import ReconcilerError, RetryableError, StoreRefusedError, UserError
from reconciler.objectstore import s3_client as s3client
from reconciler.objectstore.base import ObjectStore
from reconciler.objectstore.open import open_store
from reconciler.objectstore.s3_store import SINGLE_BYTES
from reconciler.objectstore.settings import Credentials, Secret, StoreSettings
from tests.servers.proxy import Answered, FailedChore, Proxy, Stripped
from tests.servers.weed import S3Server, credentials_of

pytestmark = pytest.mark.thorough

Call = Callable[[ObjectStore], object]

CALLS: dict[str, Call] = {
    "read": lambda store: store.get("a"),
    "read part of": lambda store: store.get_range("a", 0, 1),
    "write": lambda store: store.put("b", b"2"),
    "swap": lambda store: store.swap("c", b"3", expected=None),
    "copy": lambda store: store.copy_from("d", store, "a"),
    "list": lambda store: list(store.list("")),
    "delete": lambda store: store.delete(["a"]),
    "delete several": lambda store: store.delete(["a", "b"]),
}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3client, "ATTEMPTS", 2)


@pytest.fixture
def proxy(s3_server: S3Server) -> Iterator[Proxy]:
    with Proxy(s3_server.endpoint) as proxy:
        yield proxy


@pytest.fixture
def settings(s3_settings: StoreSettings) -> StoreSettings:
    """A place with one object in it."""
    open_store(s3_settings).put("a", b"1")
    return s3_settings


def told(call: Call, settings: StoreSettings) -> ReconcilerError:
    with pytest.raises(ReconcilerError) as caught:
        call(open_store(settings))
    assert caught.value.hint
    assert "Traceback" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize("doing", CALLS)
def test_a_bucket_that_is_not_there_is_named(doing: str, settings: StoreSettings) -> None:
    error = told(CALLS[doing], replace(settings, url="s3://not-there/prefix"))
    assert isinstance(error, UserError)
    assert "s3://not-there/prefix" in error.message
    assert "there is no such bucket" in error.message


@pytest.mark.parametrize("doing", ["write", "swap", "copy", "delete", "delete several"])
def test_who_may_only_read_is_told_what_is_missing(doing: str, settings: StoreSettings) -> None:
    error = told(CALLS[doing], replace(settings, credentials=credentials_of("reader")))
    assert isinstance(error, UserError)
    assert "access denied" in error.message
    assert "s3:DeleteObject" in error.hint if "delete" in doing else "s3:PutObject" in error.hint
    assert open_store(settings).get("a") is not None


@pytest.mark.parametrize("doing", ["read", "read part of"])
def test_who_may_not_read_is_told(doing: str, settings: StoreSettings) -> None:
    error = told(CALLS[doing], replace(settings, credentials=credentials_of("nobody")))
    assert isinstance(error, StoreRefusedError)
    assert "access denied" in error.message
    assert "s3:GetObject" in error.hint


def test_who_may_not_list_is_told(settings: StoreSettings) -> None:
    error = told(CALLS["list"], replace(settings, credentials=credentials_of("unlisted")))
    assert "access denied" in error.message
    assert "s3:ListBucket" in error.hint


@pytest.mark.parametrize("doing", ["delete", "delete several"])
def test_who_may_write_but_not_delete_is_told(doing: str, settings: StoreSettings, proxy: Proxy) -> None:
    proxy.on("DELETE", FailedChore(403, "AccessDenied"))
    proxy.on("POST", FailedChore(403, "AccessDenied"), key="delete")
    error = told(CALLS[doing], replace(settings, endpoint=proxy.endpoint))
    assert "access denied" in error.message
    assert "s3:DeleteObject" in error.hint


def test_an_object_that_is_not_deleted_among_others_is_told_though_the_store_says_only_a_code(
    settings: StoreSettings, proxy: Proxy
) -> None:
    proxy.on("POST", Answered(b"<DeleteResult><Error><Key>a</Key><Code>AccessDenied</Code></Error></DeleteResult>"))
    error = told(CALLS["delete several"], replace(settings, endpoint=proxy.endpoint))
    assert "access denied" in error.message


@pytest.mark.parametrize("identity", ["reader", "unlisted"])
def test_the_probe_names_the_right_that_is_missing(identity: str, s3_server: S3Server) -> None:
    error = told(lambda store: store.find_violated_conditions(), s3_server.settings("probe", identity=identity))
    assert ("s3:ListBucket" if identity == "unlisted" else "s3:PutObject") in error.hint


def test_the_probe_finds_a_bucket_nobody_may_delete_from(s3_server: S3Server, proxy: Proxy) -> None:
    proxy.on("DELETE", FailedChore(403, "AccessDenied"))
    error = told(lambda store: store.find_violated_conditions(), s3_server.settings("probe", endpoint=proxy.endpoint))
    assert "s3:DeleteObject" in error.hint


@pytest.mark.parametrize("doing", ["read", "read part of"])
def test_what_is_not_s3_and_answers_all_the_same_is_named(doing: str, settings: StoreSettings, proxy: Proxy) -> None:
    proxy.on("GET", FailedChore(200, "Welcome"), times=100)
    error = told(CALLS[doing], replace(settings, endpoint=proxy.endpoint))
    assert isinstance(error, StoreRefusedError)
    assert error.message.endswith("the server is not an S3 store: its answer has no ETag")


def test_a_store_that_ignores_conditions_is_found_out(s3_server: S3Server, proxy: Proxy) -> None:
    proxy.on("PUT", Stripped(("if-match", "if-none-match")), times=100)
    settings = s3_server.settings("probe", endpoint=proxy.endpoint)
    assert list(open_store(settings).find_violated_conditions()) == [
        "it overwrites an object that was to be created only if absent",
        "it accepts a swap based on an old version",
    ]
    assert list(open_store(settings).list("")) == []


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (Credentials("UNKNOWN-KEY", Secret("x")), "InvalidAccessKeyId"),
        (Credentials(credentials_of("admin").access_key, Secret("wrong")), "SignatureDoesNotMatch"),
    ],
)
def test_credentials_that_are_not_accepted_are_told(keys: Credentials, said: str, settings: StoreSettings) -> None:
    error = told(CALLS["read"], replace(settings, credentials=keys))
    assert said in error.message
    assert "AWS_ACCESS_KEY_ID" in error.hint
    assert "wrong" not in str(error)


def test_without_credentials_it_is_said_where_they_come_from(
    settings: StoreSettings, s3_environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert s3_environ
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    for call in CALLS.values():
        error = told(call, replace(settings, credentials=None))
        assert "no credentials were found" in error.message


def test_a_profile_that_is_not_there_is_named(
    settings: StoreSettings, s3_environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert s3_environ
    monkeypatch.setenv("AWS_PROFILE", "nobody-has-this")
    error = told(CALLS["read"], replace(settings, credentials=None))
    assert "nobody-has-this" in error.message


SAID = [
    (FailedChore(400, "ExpiredToken"), "the credentials have expired", "Renew"),
    (FailedChore(403, "RequestTimeTooSkewed"), "the clock of this machine is off", "Correct the clock"),
    (FailedChore(503, "SlowDown"), "throttling", "Wait a little"),
    (FailedChore(301, "PermanentRedirect", headers={"x-amz-bucket-region": "eu-west-1"}), "eu-west-1", "region"),
    (FailedChore(507, "XMinioStorageFull"), "the store is full", "Free some space"),
    (FailedChore(400, "KMS.NotFoundException", "no key arn:x"), "no key arn:x", "Check the key"),
    (FailedChore(400, "SomethingNew", "never heard of"), "never heard of", "Check the location"),
    (FailedChore(500, "InternalError", "we broke"), "the store failed: we broke", "Run the same command again"),
]


@pytest.mark.parametrize(("refused", "what", "hint"), SAID, ids=[one[0].code for one in SAID])
@pytest.mark.parametrize("doing", ["read", "write", "list"])
def test_what_the_store_says_is_a_sentence_and_nothing_is_lost(
    doing: str, refused: FailedChore, what: str, hint: str, settings: StoreSettings, proxy: Proxy
) -> None:
    for method in ("GET", "PUT", "HEAD"):
        proxy.on(method, refused, times=50)
    error = told(CALLS[doing], replace(settings, endpoint=proxy.endpoint))
    assert what in error.message
    assert hint in error.hint
    assert [listed.key for listed in open_store(settings).list("")] == ["a"]


@pytest.mark.parametrize("code", ["ExpiredToken", "RequestTimeTooSkewed"])
def test_what_passes_by_itself_can_be_run_again(code: str, settings: StoreSettings, proxy: Proxy) -> None:
    store = open_store(replace(settings, endpoint=proxy.endpoint))
    proxy.on("PUT", FailedChore(403, code))
    with pytest.raises(RetryableError):
        store.swap("c", b"3", expected=None)
    store.swap("c", b"3", expected=None)


def test_a_store_nobody_listens_at_is_said(settings: StoreSettings) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    for call in CALLS.values():
        error = told(call, replace(settings, endpoint=f"http://127.0.0.1:{port}"))
        assert isinstance(error, RetryableError)
        assert "refused" in error.message
        assert error.message.count(settings.url.removeprefix("s3://").split("/")[0]) == 1
        assert error.message.count(f"127.0.0.1:{port}") == 1


def test_a_name_nobody_knows_is_said(settings: StoreSettings) -> None:
    error = told(CALLS["read"], replace(settings, endpoint="http://store.invalid:9"))
    assert isinstance(error, RetryableError)
    assert "store.invalid" in error.message


@pytest.mark.parametrize("endpoint", ["not a url", "http://", "ftp//x"])
def test_an_endpoint_that_cannot_be_is_said(endpoint: str, settings: StoreSettings) -> None:
    error = told(CALLS["read"], replace(settings, endpoint=endpoint))
    assert isinstance(error, UserError)
    assert "endpoint" in error.hint


def test_a_key_too_long_for_s3_is_refused_before_it_is_sent(settings: StoreSettings) -> None:
    error = told(lambda store: store.put("a" * 1_100, b""), settings)
    assert "1024 bytes" in error.message


@pytest.mark.parametrize("doing", ["put", "put in parts", "copy", "swap"])
def test_a_store_that_takes_no_notice_of_keys_is_refused(doing: str, settings: StoreSettings, proxy: Proxy) -> None:
    headers = ("x-amz-server-side-encryption", "x-amz-server-side-encryption-aws-kms-key-id")
    for method in ("PUT", "POST"):
        proxy.on(method, Stripped(headers), key="secret", times=100)
    calls: dict[str, Call] = {
        "put": lambda store: store.put("secret", b"1", kms_key_id="alias/topics"),
        "put in parts": lambda store: store.put("secret", b"1" * (SINGLE_BYTES + 1), kms_key_id="alias/topics"),
        "copy": lambda store: store.copy_from("secret", store, "a", kms_key_id="alias/topics"),
        "swap": lambda store: store.swap("secret", b"1", expected=None),
    }
    error = told(calls[doing], replace(settings, endpoint=proxy.endpoint, kms_key_id="alias/default"))
    assert ("alias/default" if doing == "swap" else "alias/topics") in error.message
    if doing != "swap":  # fresh names are taken back; a register may be somebody else's by now
        assert open_store(settings).get("secret") is None
