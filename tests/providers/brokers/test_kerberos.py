"""Logins by Kerberos: a KDC of Debian's packages, a real broker, and tickets that expire."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from reconciler.errors import NotAuthorizedError, ReconcilerError, RetryableError, UserError
from reconciler.planning.checks.cluster_checks import find_plaintext_fields
from reconciler.providers.brokers.client import KafkaClient
from reconciler.providers.brokers.connection import open_admin
from reconciler.providers.brokers.security import (
    KerberosLogin,
    build_admin_settings,
    build_record_settings,
    reveal_secrets,
    to_admin_settings,
)
from reconciler.resources.cluster import Cluster
from tests.servers.kafka import Kafka
from tests.servers.kafkasecured import declared, edge
from tests.servers.kdc import PRINCIPAL, REALM, SERVICE, Realm, import_gssapi, start_realm
from tests.waiting import until

# Fetching and compiling takes apt and a C compiler, which not every machine has.
with_realm = pytest.mark.soak

LIFE_SECONDS = 20
"""Of tickets. The broker ends sessions when their tickets expire."""


@dataclass(frozen=True)
class Site:
    realm: Realm
    kafka: Kafka

    def declare(self, **security: Any) -> Cluster:
        login = {"protocol": "SASL_PLAINTEXT", "mechanism": "GSSAPI", **security}
        return declared(self.kafka.bootstrap("KERBEROS"), **login)


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    import_gssapi()
    with start_realm(f"{LIFE_SECONDS}s") as realm, pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", f"-Djava.security.krb5.conf={realm.folder}/krb5.conf")
        module = "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true"
        login = f'{module} keyTab="{realm.broker_keytab}" principal="{SERVICE}";'
        extra = {
            "sasl.enabled.mechanisms": "GSSAPI",
            "sasl.kerberos.service.name": "kafka",
            "listener.name.kerberos.gssapi.sasl.jaas.config": login,
            "listener.name.kerberos.gssapi.connections.max.reauth.ms": "10000",
        }
        with Kafka.start(listeners={"KERBEROS": "SASL_PLAINTEXT"}, extra=extra) as kafka:
            yield Site(realm, kafka)


def fail(cluster: Cluster, folder: Path) -> ReconcilerError:
    with pytest.raises(ReconcilerError) as told:
        KafkaClient.for_cluster(cluster, edge(folder)).describe_cluster()
    return told.value


@with_realm
def test_administration_logs_in_with_a_keytab(site: Site) -> None:
    cluster = site.declare(username=PRINCIPAL, keytab="reconciler.keytab", serviceName="kafka")
    assert KafkaClient.for_cluster(cluster, edge(site.realm.folder)).describe_cluster().id


@with_realm
def test_administration_logs_in_with_the_ticket_cache_of_the_machine(site: Site) -> None:
    site.realm.request_ticket()
    assert KafkaClient.for_cluster(site.declare(), edge(site.realm.folder)).describe_cluster().id


@with_realm
def test_tickets_that_expire_are_renewed_from_the_keytab_in_a_long_run(site: Site) -> None:
    settings = build_admin_settings(
        site.declare(username=PRINCIPAL, keytab="reconciler.keytab"), edge(site.realm.folder)
    )
    issued = site.realm.count_tickets()
    with closing(open_admin(settings, cluster="west")) as admin:
        until(
            lambda: admin.describe_cluster()["cluster_id"] and site.realm.count_tickets() >= issued + 2,
            "no ticket was renewed",
            seconds=4 * LIFE_SECONDS,
        )


@with_realm
def test_an_expired_ticket_without_a_keytab_is_reported(site: Site, tmp_path: Path) -> None:
    site.realm.request_ticket("2s")
    until(lambda: not site.realm.has_ticket(), "the ticket does not expire")
    error = fail(site.declare(), tmp_path)
    assert isinstance(error, NotAuthorizedError)
    assert "GSSAPI: the ticket cache gets no ticket for kafka@127.0.0.1: " in error.message
    assert "kinit" in error.hint


WRONG = {
    "a principal that is not in the keytab": {"username": f"other@{REALM}", "keytab": "reconciler.keytab"},
    "a keytab of keys that were changed": {"username": f"changed@{REALM}", "keytab": "changed.keytab"},
    "a service that the realm does not have": {
        "username": PRINCIPAL,
        "keytab": "reconciler.keytab",
        "serviceName": "redpanda",
    },
}


@pytest.mark.parametrize("what", WRONG)
@with_realm
def test_a_login_that_fails_is_one_error_with_its_principal(what: str, site: Site) -> None:
    if "changed" in what and not (site.realm.folder / "changed.keytab").exists():
        site.realm.add_principal("changed")
        site.realm.administer(f"change_password -randkey changed@{REALM}")
    error = fail(site.declare(**WRONG[what]), site.realm.folder)
    assert isinstance(error, NotAuthorizedError)
    service = WRONG[what].get("serviceName", "kafka")
    assert error.message.count(f"GSSAPI: {WRONG[what]['username']} gets no ticket for {service}@127.0.0.1: ") == 1


@with_realm
def test_a_kdc_that_does_not_answer_may_come_back(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = (site.realm.folder / "krb5.conf").read_text()
    (tmp_path / "krb5.conf").write_text(re.sub(r"kdc = 127\.0\.0\.1:\d+", "kdc = 127.0.0.1:1", known))
    monkeypatch.setenv("KRB5_CONFIG", str(tmp_path / "krb5.conf"))
    with pytest.raises(RetryableError, match="Cannot contact any KDC"):
        KerberosLogin(f"fresh@{REALM}", str(site.realm.add_principal("fresh"))).open_context("127.0.0.1")


@with_realm
def test_a_record_client_without_kerberos_is_reported_before_it_opens(site: Site) -> None:
    cluster = site.declare(username=PRINCIPAL, keytab="reconciler.keytab")
    settings = build_record_settings(cluster, edge(site.realm.folder))
    assert pickle.loads(pickle.dumps(settings)) == settings  # noqa: S301 - our own bytes
    with pytest.raises(UserError, match="confluent-kafka was built without Kerberos"):
        reveal_secrets(settings)
    login = to_admin_settings(settings)["tickets"]
    assert login == KerberosLogin(PRINCIPAL, str(site.realm.keytab))


def test_a_keytab_is_checked_before_brokers_are_contacted(tmp_path: Path) -> None:
    login = {"protocol": "SASL_PLAINTEXT", "mechanism": "GSSAPI", "username": PRINCIPAL, "keytab": "none.keytab"}
    with pytest.raises(UserError, match=r"spec\.kafka\.security\.keytab: .*none\.keytab cannot be read: No such file"):
        build_admin_settings(declared("127.0.0.1:9", **login), edge(tmp_path))


def test_kerberos_sends_no_password_and_may_use_a_connection_without_encryption() -> None:
    assert not list(find_plaintext_fields(declared("a:1", protocol="SASL_PLAINTEXT", mechanism="GSSAPI")))


@pytest.mark.parametrize(
    ("login", "problem"),
    [
        ({"mechanism": "GSSAPI", "keytab": "a.keytab"}, "username: is required with GSSAPI"),
        ({"mechanism": "PLAIN", "username": "a", "password": "${env:A}", "keytab": "a"}, "means nothing with PLAIN"),
    ],
)
def test_fields_of_kerberos_that_do_not_go_together_are_refused(login: dict[str, str], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem.partition(": ")[2] or problem):
        declared("a:1", protocol="SASL_SSL", **login)
