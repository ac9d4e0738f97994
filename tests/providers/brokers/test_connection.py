"""Every way to log in works with both clients; every wrong one is told in one sentence, and soon."""

from __future__ import annotations

import base64
import datetime as dt
import json
import pickle
import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, KafkaError
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from google.auth import iam
from moto import mock_aws

from reconciler.errors import NotAuthorizedError, ReconcilerError, RetryableError, UserError
from reconciler.objectstore import accounts as cloud_accounts
from reconciler.objectstore.settings import Credentials
from reconciler.objectstore.settings import Secret as StoreSecret
from reconciler.providers.brokers import security
from reconciler.providers.brokers.client import KafkaClient
from reconciler.providers.brokers.cluster_facts import ClusterFacts
from reconciler.providers.brokers.connection import open_admin
from reconciler.providers.brokers.reachability import Route, translate_record_error
from reconciler.providers.brokers.records.record_log import KafkaLog
from reconciler.providers.brokers.records.record_producer import KafkaProducer
from reconciler.providers.brokers.security import TokenSource, build_admin_settings, build_record_settings
from reconciler.providers.secrets import Secret
from reconciler.records.log import OffsetRange
from reconciler.records.schema import INPUT_SCHEMA, encode_name_as_text
from reconciler.resources.cluster import Cluster
from tests.servers.accounts import CLIENT_ID, EXTERNAL_ID, ROLE, SERVICE_ACCOUNT, AccountServer, write_google_login
from tests.servers.kafka import Kafka
from tests.servers.kafkasecured import CLIENT, ENVIRON, REGION, Secured, declared, edge
from tests.servers.kafkatopics import make_topic
from tests.servers.relay import Relay
from tests.servers.tokenendpoint import SECRET, TokenEndpoint

pytestmark = pytest.mark.thorough

SOON_SECONDS = 20
"""More than the ten that connections are tried for; a busy machine takes its time."""

TRUSTS = {"caFile": "tests-ca.pem"}
LOGS_IN = {"username": "admin", "password": "${env:PASSWORD}"}
TOKENS = {"mechanism": "OAUTHBEARER", "clientId": CLIENT, "clientSecret": "${env:CLIENT_SECRET}", "scope": "kafka"}

GOOGLE = {"protocol": "SASL_SSL", "mechanism": "OAUTHBEARER", "tokenProvider": "google"}
AZURE = {**GOOGLE, "tokenProvider": "azure", "scope": "https://west.servicebus.windows.net/.default"}

GOOD: dict[str, tuple[str, dict[str, Any]]] = {
    "plaintext": ("PLAINTEXT", {}),
    "TLS": ("TLS", {"protocol": "SSL", **TRUSTS}),
    "mutual TLS": ("MUTUAL", {"protocol": "SSL", **TRUSTS, "certFile": "me.pem", "keyFile": "me.key"}),
    "PLAIN": ("LOGIN", {"protocol": "SASL_PLAINTEXT", "mechanism": "PLAIN", **LOGS_IN}),
    "PLAIN over TLS": ("BOTH", {"protocol": "SASL_SSL", "mechanism": "PLAIN", **LOGS_IN, **TRUSTS}),
    "SCRAM-SHA-256": ("LOGIN", {"protocol": "SASL_PLAINTEXT", "mechanism": "SCRAM-SHA-256", **LOGS_IN}),
    "SCRAM-SHA-512 over TLS": ("BOTH", {"protocol": "SASL_SSL", "mechanism": "SCRAM-SHA-512", **LOGS_IN, **TRUSTS}),
    "OAUTHBEARER": ("LOGIN", {"protocol": "SASL_PLAINTEXT", **TOKENS}),
    "OAUTHBEARER over TLS": ("BOTH", {"protocol": "SASL_SSL", **TOKENS, **TRUSTS}),
    "AWS_MSK_IAM": ("MSK", {"protocol": "SASL_SSL", "mechanism": "AWS_MSK_IAM", "region": REGION, **TRUSTS}),
    "OAUTHBEARER of Google": ("GOOGLE", {**GOOGLE, **TRUSTS, "account": {"serviceAccount": SERVICE_ACCOUNT}}),
    "OAUTHBEARER of Azure": ("BOTH", {**AZURE, **TRUSTS, "account": {"clientId": CLIENT_ID}}),
}

WRONG: dict[str, tuple[str, dict[str, Any], type[ReconcilerError], str]] = {
    "a service account that may not be impersonated": (
        "GOOGLE",
        {**GOOGLE, **TRUSTS, "account": {"serviceAccount": "other@shop.iam.gserviceaccount.com"}},
        NotAuthorizedError,
        "the service account other@shop.iam.gserviceaccount.com gives no token: ",
    ),
    "a managed identity that this machine lacks": (
        "BOTH",
        {**AZURE, **TRUSTS, "account": {"clientId": "another"}},
        NotAuthorizedError,
        "the managed identity another gives no token: ",
    ),
    "wrong password": (
        "LOGIN",
        {**GOOD["SCRAM-SHA-256"][1], "password": "${env:WRONG}"},
        NotAuthorizedError,
        "does not accept user admin by SCRAM-SHA-256: Authentication failed",
    ),
    "wrong password of PLAIN": (
        "BOTH",
        {**GOOD["PLAIN over TLS"][1], "password": "${env:WRONG}"},
        NotAuthorizedError,
        "does not accept user admin by PLAIN: Authentication failed",
    ),
    "a user that is not there": (
        "LOGIN",
        {**GOOD["SCRAM-SHA-256"][1], "username": "nobody"},
        NotAuthorizedError,
        "does not accept user nobody by SCRAM-SHA-256",
    ),
    "a plain client to a TLS port": ("TLS", {}, UserError, "is a listener with TLS, and security.protocol"),
    "a login without TLS to a TLS port": (
        "BOTH",
        GOOD["PLAIN"][1],
        UserError,
        "is a listener with TLS, and security.protocol is SASL_PLAINTEXT",
    ),
    "TLS to a plain port": ("PLAINTEXT", GOOD["TLS"][1], UserError, "is a listener without TLS"),
    "nobody to a login": ("LOGIN", {}, UserError, "closes connections without login (SASL)"),
    "TLS alone to a login over TLS": ("BOTH", GOOD["TLS"][1], UserError, "closes connections without login (SASL)"),
    "a login where nobody logs in": ("PLAINTEXT", GOOD["PLAIN"][1], UserError, "is a listener without login (SASL)"),
    "an expired certificate": ("EXPIRED", GOOD["TLS"][1], UserError, "is not trusted: its certificate has expired"),
    "a certificate for another host": (
        "ELSEWHERE",
        GOOD["TLS"][1],
        UserError,
        "is not trusted: its certificate is for another address",
    ),
    "an issuer that nobody knows": (
        "TLS",
        {"protocol": "SSL"},
        UserError,
        "is not trusted: its certificate is of an issuer that is not trusted",
    ),
    "no certificate of ours": (
        "MUTUAL",
        GOOD["TLS"][1],
        UserError,
        "refuses the connection: it requires a client certificate",
    ),
    "a certificate of ours that has expired": (
        "MUTUAL",
        {**GOOD["mutual TLS"][1], "certFile": "old.pem", "keyFile": "old.key"},
        UserError,
        "refuses the connection: ",
    ),
    "a client without the secret of its tokens": (
        "LOGIN",
        {**GOOD["OAUTHBEARER"][1], "clientSecret": "${env:WRONG}"},
        NotAuthorizedError,
        "answers 401",
    ),
    "a token for another region": (
        "MSK",
        {**GOOD["AWS_MSK_IAM"][1], "region": "us-east-1"},
        NotAuthorizedError,
        "does not accept our token by AWS_MSK_IAM: ",
    ),
}
AWS = {"AWS_ACCESS_KEY_ID": "AKIAWEST", "AWS_SECRET_ACCESS_KEY": "se/cr+et"}


@pytest.fixture(scope="session")
def there(kafka_secured: Secured) -> Secured:

    kafka_secured.authority.issued("me")
    kafka_secured.authority.issued("old", lasts=-dt.timedelta(hours=1))
    kafka_secured.trust(*AWS.values())
    return kafka_secured


@pytest.fixture(autouse=True)
def aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., None]]:
    """Give this machine credentials of AWS, and no others; a test may give others."""
    config = tmp_path / "config"

    def given(profile: str = "", **environ: str) -> None:
        cloud_accounts._load_credentials.cache_clear()
        config.write_text(profile)
        for name in AWS:
            monkeypatch.delenv(name, raising=False)
        files = {"AWS_CONFIG_FILE": str(config), "AWS_SHARED_CREDENTIALS_FILE": str(config)}
        for name, value in {"AWS_EC2_METADATA_DISABLED": "true", **files, **environ}.items():
            monkeypatch.setenv(name, value)

    given(**AWS)
    yield given
    cloud_accounts._load_credentials.cache_clear()


@pytest.fixture(autouse=True)
def accounts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[AccountServer]:
    """Log this machine in at Google and Azure."""
    with AccountServer() as server:
        write_google_login(tmp_path / "login.json", server)
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "login.json"))
        monkeypatch.setattr(iam, "_IAM_ENDPOINT", f"{server.url}/accounts/{{}}:generateAccessToken")
        monkeypatch.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", server.url)
        yield server


def secured_by(there: Secured, listener: str, security: dict[str, Any]) -> Cluster:
    uses_endpoint = security.get("mechanism") == "OAUTHBEARER" and "tokenProvider" not in security
    tokens = {"tokenEndpointUrl": there.tokens.url} if uses_endpoint else {}
    return there.declared(listener, **security, **tokens)


def failed(cluster: Cluster, there: Secured) -> tuple[ReconcilerError, float]:
    begun = time.monotonic()
    with pytest.raises(ReconcilerError) as raised:
        KafkaClient.for_cluster(cluster, there.edge()).describe_cluster()
    return raised.value, time.monotonic() - begun


@pytest.mark.parametrize("way", GOOD)
def test_administration_logs_in_by(way: str, there: Secured) -> None:
    settings = build_admin_settings(secured_by(there, *GOOD[way]), there.edge())
    admin = open_admin(pickle.loads(pickle.dumps(settings)), cluster="west")  # noqa: S301 - as to an executor
    assert admin.describe_cluster()["cluster_id"]
    admin.close()


@pytest.mark.parametrize("way", GOOD)
def test_records_are_reached_by(way: str, there: Secured) -> None:
    settings = build_record_settings(secured_by(there, *GOOD[way]), there.edge())
    settings = pickle.loads(pickle.dumps(settings))  # noqa: S301 - as to an executor
    consumer = Consumer({**security.reveal_secrets(settings), "group.id": "reaching"})
    assert consumer.list_topics(timeout=SOON_SECONDS).cluster_id
    consumer.close()


@pytest.mark.parametrize("way", GOOD)
def test_records_that_librdkafka_cannot_handle_are_written_and_read_by(
    way: str, there: Secured, kafka_prefix: str
) -> None:
    cluster = secured_by(there, *GOOD[way])
    settings, admin = build_record_settings(cluster, there.edge()), build_admin_settings(cluster, there.edge())
    make_topic(there.kafka, kafka_prefix, partitions=1)
    everybody = (kafka_prefix, ResourcePatternType.LITERAL, "User:*", "*", AclOperation.ALL, AclPermissionType.ALLOW)
    client = AdminClient({"bootstrap.servers": there.kafka.bootstrap()})
    for done in client.create_acls([AclBinding(ResourceType.TOPIC, *everybody)]).values():
        done.result(30)
    row = {"partition": 0, "timestamp_ms": 0, "timestamp_type": 0, "key": None, "value": b"v"}
    headers = [{"key": encode_name_as_text(b"\xff"), "value": None}]
    producer = KafkaProducer(kafka_prefix, settings, "west")
    producer.append(pa.RecordBatch.from_pylist([row | {"headers": headers}], INPUT_SCHEMA))
    producer.flush()
    (found,) = KafkaLog(kafka_prefix, settings, admin, "west").read(0, OffsetRange(0, 1))
    assert found.select(list(row)).to_pylist() == [row]
    assert found.column("headers").to_pylist() == [headers]


@pytest.mark.parametrize("way", [way for way in GOOD if GOOD[way][1]])
def test_settings_show_no_secret(way: str, there: Secured) -> None:
    cluster = secured_by(there, *GOOD[way])
    shown = repr(build_admin_settings(cluster, there.edge())) + repr(build_record_settings(cluster, there.edge()))
    key = (there.authority.folder / "me.key").read_text().splitlines()[1]
    assert not [secret for secret in (*ENVIRON.values(), key) if secret in shown]


@pytest.mark.parametrize("what", WRONG)
def test_told_in_one_sentence_and_soon(what: str, there: Secured) -> None:
    listener, security, kind, sentence = WRONG[what]
    error, seconds = failed(secured_by(there, listener, security), there)
    assert type(error) is kind, error
    assert sentence in error.message
    assert error.message.startswith("cluster west: connecting: ")
    assert seconds < SOON_SECONDS


def timed_out(cluster: Cluster, there: Secured) -> ReconcilerError:
    """Return what is told where a client of records says no more than that."""
    settings = build_record_settings(cluster, there.edge())
    return translate_record_error(KafkaError(KafkaError._TIMED_OUT), settings, doing="copying", cluster="west")


@pytest.mark.parametrize(
    "what", ["an expired certificate", "a certificate for another host", "an issuer that nobody knows"]
)
def test_a_copy_that_ran_out_of_time_is_told_what_is_wrong_with_a_certificate(what: str, there: Secured) -> None:
    listener, security, kind, sentence = WRONG[what]
    error = timed_out(secured_by(there, listener, security), there)
    assert type(error) is kind
    assert error.message.startswith("cluster west: copying: ")
    assert sentence in error.message


def test_a_copy_that_ran_out_of_time_is_told_that_nobody_is_there(there: Secured) -> None:
    with mute() as address:
        pass
    error = timed_out(declared(f"{address},no-such-host.invalid:9092"), there)
    assert error.message == f"cluster west: copying: {address} refuses connections: nothing listens on that port"
    error = timed_out(declared("no-such-host.invalid:9092"), there)
    assert error.message == "cluster west: copying: no-such-host.invalid:9092: no such host is known here"


def test_a_copy_that_ran_out_of_time_before_brokers_that_are_there_is_told_so(there: Secured) -> None:
    error = timed_out(secured_by(there, *GOOD["TLS"]), there)
    assert error.message == "cluster west: copying: it did not answer in time"


@contextmanager
def mute() -> Iterator[str]:
    """Take connections, and never say a word: a broker that hangs."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield f"127.0.0.1:{listening.getsockname()[1]}"


def impatient(cluster: Cluster, there: Secured) -> ReconcilerError:
    """Return what is told after a second instead of ten."""
    begun = time.monotonic()
    settings = {**build_admin_settings(cluster, there.edge()), "bootstrap_timeout_ms": 1000}
    with pytest.raises(ReconcilerError) as raised:
        open_admin(settings, cluster="west")
    assert time.monotonic() - begun < SOON_SECONDS
    return raised.value


@pytest.mark.parametrize("security", [{}, GOOD["TLS"][1]])
def test_a_broker_that_never_answers_is_left_soon(security: dict[str, str], there: Secured) -> None:
    with mute() as address:
        error = impatient(declared(address, **security), there)
    assert "does not answer in time" in error.message
    assert isinstance(error, RetryableError)


def test_nobody_listens_there(there: Secured) -> None:
    with mute() as address:
        pass
    error = impatient(declared(address), there)
    assert error.message == f"cluster west: connecting: {address} refuses connections: nothing listens on that port"


def test_a_host_that_is_known_nowhere(there: Secured) -> None:
    error, seconds = failed(declared("no-such-host.invalid:9092"), there)
    assert error.message == "cluster west: connecting: no-such-host.invalid:9092: no such host is known here"
    assert seconds < SOON_SECONDS


def test_one_address_of_several_is_enough(there: Secured) -> None:
    servers = f"no-such-host.invalid:9092,127.0.0.1:1,{there.kafka.bootstrap()}"
    assert KafkaClient.for_cluster(declared(servers), there.edge()).describe_cluster().id


def test_a_token_endpoint_that_is_out_of_order_may_come_back(there: Secured) -> None:
    cluster = secured_by(there, *GOOD["OAUTHBEARER"])
    there.tokens.fails_with = 503
    try:
        error = impatient(cluster, there)
    finally:
        there.tokens.fails_with = None
    assert isinstance(error, RetryableError)
    assert "answers 503" in error.message
    assert KafkaClient.for_cluster(cluster, there.edge()).describe_cluster().id


def accepted(there: Secured) -> list[tuple[str, str]]:
    """Return the signatures of the tokens that the broker accepted, each with its access key."""
    return re.findall(r"accepted token (\w+) of (\w+)", there.kafka.brokers[0].log())


def test_a_token_is_signed_with_the_credentials_of_a_profile(
    there: Secured, aws: Callable[..., None], tmp_path: Path
) -> None:
    fields = {"AccessKeyId": "ASIAWEST", "SecretAccessKey": "other", "SessionToken": "a/b+c=="}
    until = dt.datetime.now(dt.UTC) + dt.timedelta(hours=1)
    session = {"Version": 1, **fields, "Expiration": until.isoformat()}
    (tmp_path / "session").write_text(json.dumps(session))
    aws(f"[profile west]\ncredential_process = cat {tmp_path / 'session'}\n", AWS_PROFILE="west")
    there.trust("ASIAWEST", "other")
    assert KafkaClient.for_cluster(secured_by(there, *GOOD["AWS_MSK_IAM"]), there.edge()).describe_cluster().id
    assert accepted(there)[-1][1] == "ASIAWEST"


def test_a_token_is_signed_with_the_role_of_a_web_identity(
    there: Secured, aws: Callable[..., None], tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("of the pipeline")
    aws(AWS_ROLE_ARN="arn:aws:iam::123456789012:role/plan", AWS_WEB_IDENTITY_TOKEN_FILE=str(token))
    with mock_aws(config={"core": {"mock_credentials": False}}):
        credentials = security._find_aws_credentials(None, REGION)
        there.trust(credentials.access_key, credentials.secret_key)
        assert KafkaClient.for_cluster(secured_by(there, *GOOD["AWS_MSK_IAM"]), there.edge()).describe_cluster().id
    assert accepted(there)[-1][1] == credentials.access_key


OF_ROLE = {**GOOD["AWS_MSK_IAM"][1], "account": {"roleArn": ROLE, "externalId": EXTERNAL_ID}}


def test_a_token_is_signed_with_the_keys_of_the_declared_role_which_are_renewed(
    there: Secured, aws: Callable[..., None], accounts: AccountServer
) -> None:
    aws(**AWS, AWS_ENDPOINT_URL_STS=accounts.url)
    accounts.life_seconds = 300  # So soon before their expiry botocore renews keys before each use.
    accounts.keys = [Credentials(f"ASIA{name}", StoreSecret(name), StoreSecret("a/b+c==")) for name in ("ONE", "TWO")]
    for keys in accounts.keys:
        there.trust(keys.access_key, keys.secret_key.text)
    tokens = build_admin_settings(secured_by(there, "MSK", OF_ROLE), there.edge())["tokens"]
    assert [access_key_of(tokens.get_token()) for _ in range(2)] == ["ASIAONE", "ASIATWO"]
    assert KafkaClient.for_cluster(secured_by(there, "MSK", OF_ROLE), there.edge()).describe_cluster().id
    assert accepted(there)[-1][1] == "ASIATWO"


def access_key_of(token: str) -> str:
    found = re.search(r"X-Amz-Credential=(\w+)", base64.urlsafe_b64decode(token + "===").decode())
    assert found is not None
    return found[1]


def test_a_declared_role_that_may_not_be_assumed_is_named(
    there: Secured, aws: Callable[..., None], accounts: AccountServer
) -> None:
    aws(**AWS, AWS_ENDPOINT_URL_STS=accounts.url)
    wrong = {**OF_ROLE, "account": {"roleArn": ROLE}}
    error, _ = failed(secured_by(there, "MSK", wrong), there)
    assert isinstance(error, NotAuthorizedError)
    assert (
        f"the AWS credentials cannot be used: Error when retrieving credentials from the role {ROLE}: " in error.message
    )
    assert AWS["AWS_SECRET_ACCESS_KEY"] not in str(error)


@pytest.mark.parametrize("cloud", ["Google", "Azure"])
def test_tokens_of_a_cloud_are_renewed_in_a_long_run(cloud: str, there: Secured, accounts: AccountServer) -> None:
    accounts.life_seconds = LIFE_SECONDS
    listener, login = GOOD[f"OAUTHBEARER of {cloud}"]
    settings, troubles = (
        security.reveal_secrets(build_record_settings(secured_by(there, listener, login), there.edge())),
        [],
    )
    consumer = Consumer({**settings, "group.id": "renewing", "error_cb": troubles.append})
    with closing(consumer):
        until = time.monotonic() + 2 * LIFE_SECONDS
        while time.monotonic() < until:
            assert consumer.list_topics(timeout=SOON_SECONDS).cluster_id
            consumer.poll(0.5)
    assert troubles == []
    assert len(accounts.tokens) > 2


def test_a_service_of_roles_that_does_not_answer_may_come_back(aws: Callable[..., None], tmp_path: Path) -> None:
    (tmp_path / "token").write_text("of the pipeline")
    role = {"AWS_ROLE_ARN": "arn:aws:iam::123456789012:role/plan", "AWS_ENDPOINT_URL_STS": "http://127.0.0.1:1"}
    aws(**role, AWS_WEB_IDENTITY_TOKEN_FILE=str(tmp_path / "token"), AWS_MAX_ATTEMPTS="1")
    with pytest.raises(RetryableError, match="AWS_MSK_IAM: AWS does not answer: Could not connect"):
        security.MskTokenSource(REGION).get_token()


UNSIGNED = {
    "no credentials": ({}, "no AWS credentials were found", "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"),
    "a profile that is not there": (
        {"AWS_PROFILE": "lost"},
        "the AWS credentials cannot be used: The config profile (lost) could not be found",
        "Correct the AWS profile",
    ),
    "a secret that AWS does not know": (
        {**AWS, "AWS_SECRET_ACCESS_KEY": "wrong"},
        "does not accept our token by AWS_MSK_IAM: ",
        "Allow kafka-cluster:Connect to this AWS identity",
    ),
}


@pytest.mark.parametrize("what", UNSIGNED)
def test_credentials_of_aws_that_do_not_help_are_told_in_one_sentence(
    what: str, there: Secured, aws: Callable[..., None]
) -> None:
    environ, sentence, hint = UNSIGNED[what]
    cluster = secured_by(there, *GOOD["AWS_MSK_IAM"])
    aws(**environ)
    error, seconds = failed(cluster, there)
    assert isinstance(error, NotAuthorizedError)
    assert error.message.startswith("cluster west: connecting: ")
    assert sentence in error.message
    assert error.hint.startswith(hint)
    assert seconds < SOON_SECONDS


def test_a_client_of_records_reports_missing_credentials_before_it_opens(
    there: Secured, aws: Callable[..., None]
) -> None:
    aws()
    settings = build_record_settings(secured_by(there, *GOOD["AWS_MSK_IAM"]), there.edge())
    with pytest.raises(NotAuthorizedError, match="AWS_MSK_IAM: no AWS credentials were found"):
        security.reveal_secrets(settings)


@pytest.mark.parametrize(
    ("server", "host"),
    [
        ("b-1.west.ab12cd.c2.kafka.eu-west-1.amazonaws.com:9098", "kafka.eu-west-1.amazonaws.com"),
        ("b-1-public.west.ab12cd.c2.kafka.us-gov-west-1.amazonaws.com:9198", "kafka.us-gov-west-1.amazonaws.com"),
        ("boot-ab12cd.c1.kafka-serverless.ap-southeast-2.amazonaws.com:9098", "kafka.ap-southeast-2.amazonaws.com"),
        ("b-1.west.ab12cd.c2.kafka.cn-north-1.amazonaws.com.cn:9098", "kafka.cn-north-1.amazonaws.com.cn"),
    ],
)
def test_the_region_of_a_token_is_that_in_the_names_of_the_brokers(server: str, host: str, tmp_path: Path) -> None:
    cluster = declared(f"other:9098,{server}", protocol="SASL_SSL", mechanism="AWS_MSK_IAM")
    token = build_admin_settings(cluster, edge(tmp_path))["tokens"].get_token()
    assert base64.urlsafe_b64decode(token + "===").decode().startswith(f"https://{host}/?Action=")


LIFE_SECONDS = 15
"""librdkafka looks once a second whether 80 % of a token's life are over, and logs in again after 90 %."""


def test_a_long_run_gets_new_tokens_and_the_broker_ends_no_session(
    there: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(security, "_MSK_SECONDS", LIFE_SECONDS)
    cluster, before = secured_by(there, *GOOD["AWS_MSK_IAM"]), set(accepted(there))
    settings, troubles = security.reveal_secrets(build_record_settings(cluster, there.edge())), []
    admin = open_admin(build_admin_settings(cluster, there.edge()), cluster="west")
    consumer = Consumer({**settings, "group.id": "renewing", "error_cb": troubles.append})
    with closing(admin), closing(consumer):
        admin.describe_cluster()
        last_errors, until = dict(admin._manager.route.last_errors), time.monotonic() + 2 * LIFE_SECONDS
        while time.monotonic() < until:
            assert admin.describe_cluster()["cluster_id"] == consumer.list_topics(timeout=SOON_SECONDS).cluster_id
            consumer.poll(0.5)
        assert (admin._manager.route.last_errors, troubles) == (last_errors, [])
    assert len(set(accepted(there)) - before) >= 2 * 2


UNREADABLE = {
    "a file that is not there": ({"caFile": "none.pem"}, "spec.kafka.security.caFile: "),
    "a key for a certificate": ({"caFile": "me.key"}, "holds no certificate in PEM"),
    "a certificate for a key": ({**TRUSTS, "certFile": "me.pem"}, "holds no private key in PEM"),
    "a key without a certificate": ({"keyFile": "me.key"}, "a key without a certificate"),
    "the key of another certificate": (
        {**TRUSTS, "certFile": "me.pem", "keyFile": "old.key"},
        "the certificates cannot be used",
    ),
}


@pytest.mark.parametrize("what", UNREADABLE)
def test_files_are_judged_before_anybody_is_asked(what: str, there: Secured) -> None:
    security, sentence = UNREADABLE[what]
    error, _ = failed(declared("127.0.0.1:1", protocol="SSL", **security), there)
    assert isinstance(error, UserError)
    assert sentence in error.message


@pytest.mark.parametrize("server", ["broker", "broker:", ":9092", "broker:http", "broker:70000"])
def test_what_is_no_address_of_a_broker_is_refused(server: str, there: Secured) -> None:
    error, _ = failed(declared(server), there)
    assert f"{server!r} is not the address of a broker" in error.message


def test_a_token_endpoint_that_names_another_address_is_not_followed() -> None:
    with TokenEndpoint() as elsewhere, TokenEndpoint() as endpoint:
        endpoint.moved_to = elsewhere.url
        with pytest.raises(NotAuthorizedError, match="answers 302"):
            TokenSource(endpoint.url, CLIENT, Secret(SECRET), None).get_token()
        assert (len(endpoint.asked), elsewhere.asked) == (1, [])


def test_ports_that_refuse_connections_are_believed_soon_if_all_do() -> None:
    now = 0.0
    route = Route.from_settings({"bootstrap_servers": ["one:9092", "two:9092"]}, "live")
    route.clock = lambda: now
    one, two = route.servers
    refused = ConnectionRefusedError(111, "Connection refused")
    route.record_failure(one, refused)
    route.record_failure(two, refused)
    now = 0.7
    assert route.find_final_error() is None
    now = 0.8
    assert route.find_final_error() is refused
    route.record_failure(two, TimeoutError("timed out"))
    assert route.find_final_error() is None  # Who is slow may come.
    route.record_failure(two, refused)
    assert route.find_final_error() is None
    route.is_open = True
    now = 9.0
    assert route.find_final_error() is None  # It was reached: it may come back.


def test_the_only_broker_is_asked_again_for_its_configs_where_the_network_cut_the_connection(
    start_kafka: Callable[..., Kafka],
) -> None:
    with Relay() as relay:
        extra = {}

        def lead(kafka: Kafka) -> None:
            relay.lead_to(kafka.brokers[0].node.ports["PLAINTEXT"])
            extra["advertised.listeners"] = f"PLAINTEXT://{relay.address}"

        start_kafka(extra=extra, before=lead)
        client = KafkaClient("west", lambda: {"bootstrap_servers": [relay.address]})
        before = ClusterFacts(client).configs
        look = ClusterFacts(client)
        assert look.cluster.brokers
        relay.cut(after=1, then=lambda: None)
        assert look.configs == before
        assert not relay.is_cutting
