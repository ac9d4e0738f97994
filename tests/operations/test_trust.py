"""Secrets go where the workspace lets them, and where they went before; in a pull request where its base lets them."""

from __future__ import annotations

import gzip
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from reconciler.cli.json.base import format_document
from reconciler.cli.json.sarif import SarifDocument
from reconciler.cli.text.markdown import format_plan_comment
from reconciler.cli.text.remarks import format_junit, list_plan_remarks
from reconciler.errors import BlockedError, ReconcilerError, UserError
from reconciler.manifests.json_schema import build_schemas
from reconciler.manifests.overlays import Variables
from reconciler.operations.apply import ApplyOptions
from reconciler.operations.clusters.cluster_check import run_cluster_check
from reconciler.operations.manifest_files import format_files, validate
from reconciler.operations.state_views import state_history
from reconciler.operations.steps.invocation import Select, load_files, read_variables
from reconciler.operations.steps.runner import SiteOptions
from reconciler.operations.steps.trust import Trust
from reconciler.planning.actions import Adopt, Change, Create, Delete, Update
from reconciler.planning.plan import Plan
from reconciler.planning.plan_rows import build_result_json, compute_digest
from reconciler.planning.saved_plan import encode_action, encode_saved_plan, read_plan_to_apply
from reconciler.process import extract_base_files, find_read_limit, list_changed_files, read_commit
from reconciler.resources.cluster import Cluster
from reconciler.resources.cluster_properties import REFERENCES
from reconciler.resources.inventory import read_resource
from tests.cli.test_git import ENVIRON

if TYPE_CHECKING:
    from conftest import Bench


PASSWORD = "hunter2"  # noqa: S105 - what must not be heard


REFERENCE = "${env:KAFKA_PASSWORD}"


class Listener:
    """Somebody who waits for a password."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    @property
    def address(self) -> str:
        return f"localhost:{self._socket.getsockname()[1]}"

    def _listen(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                self.heard.append(connection.recv(1 << 16))

    def close(self) -> None:
        with suppress(OSError):  # Gone already.
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()


@pytest.fixture
def stranger() -> Iterator[Listener]:
    found = Listener()
    yield found
    found.close()


def cluster(server: str, password: str = REFERENCE, protocol: str = "SASL_SSL", **more: Any) -> str:
    said = {"protocol": protocol, "mechanism": "PLAIN", "username": "me", "password": password, **more}
    fields = ", ".join(f"{key}: {'true' if value is True else repr(value)}" for key, value in said.items())
    return (
        "apiVersion: reconciler/v1\nkind: Cluster\nmetadata: {name: live}\n"
        f"spec: {{provider: kafka, kafka: {{bootstrapServers: [{server!r}], security: {{{fields}}}}}}}\n"
    )


def platform(ca_file: str) -> str:
    """Return a cluster with certificates for its REST API and no secrets."""
    connection = f"restEndpoint: 'https://host', clusterId: c, type: platform, rest: {{caFile: {ca_file!r}}}"
    return (
        "apiVersion: reconciler/v1\nkind: Cluster\nmetadata: {name: live}\n"
        f"spec: {{provider: confluent, confluent: {{{connection}}}}}\n"
    )


def signed(server: str) -> str:
    """Return a cluster that gets tokens which this machine signs."""
    text = cluster(server, mechanism="AWS_MSK_IAM", region="eu-west-1")
    return text.replace(f"username: 'me', password: '{REFERENCE}', ", "")


def workspace(bench: Bench, *allow: str, state: str = "file://.reconciler") -> None:
    """Write `reconciler.yaml`; nothing is allowed: what is by default."""
    references = f"\n  references: {{allow: {list(allow)}}}" if allow else ""
    spec = f"spec:\n  state: {state}\n  manifests: [manifests]{references}\n"
    bench.write("reconciler.yaml", f"apiVersion: reconciler/v1\nkind: Workspace\nmetadata: {{name: shop}}\n{spec}")


def secret(bench: Bench) -> Bench:
    (bench.folder / "west.yaml").unlink(missing_ok=True)
    environ = {"KAFKA_PASSWORD": PASSWORD, "RECONCILER_PASSWORD": PASSWORD, "AWS_SECRET_ACCESS_KEY": PASSWORD}
    return bench.with_(environ=environ)


def judged(bench: Bench, text: str, *, before: str | None = None, allow: tuple[str, ...] = ()) -> None:
    """Ask whether the cluster may be opened that `text` declares; `before`: as the state has it."""
    bench.write("manifests/live.yaml", text)
    select = Select(allow=allow)
    loaded = load_files(bench.invocation, select)
    known = {} if before is None else {"live": parsed(before)}
    found = loaded.desired[next(address for address in loaded.desired if address == "cluster/live")].resource
    assert isinstance(found, Cluster)
    Trust(bench.invocation, select, Variables(), loaded, lambda: known).check_cluster(found)


def parsed(text: str) -> Cluster:
    import yaml  # noqa: PLC0415 - only here

    return Cluster.model_validate(yaml.safe_load(text))


HERE = "b1:9092"
THERE = "evil.example.com:9092"
FILE = "${file:FOLDER/secrets/kafka}"
REFUSED = "does not allow the reference"


@pytest.mark.parametrize(
    ("allow", "password", "refused"),
    [
        pytest.param((), "${env:RECONCILER_PASSWORD}", None, id="by default what is named for us"),
        pytest.param((), "${env:KAFKA_PASSWORD}", REFUSED, id="nothing else by default"),
        pytest.param(("env:KAFKA_PASSWORD",), "${env:KAFKA_PASSWORD}", None, id="a variable"),
        pytest.param(("env:KAFKA_*",), "${env:KAFKA_PASSWORD}", None, id="variables that begin so"),
        pytest.param(("env:KAFKA",), "${env:KAFKA_PASSWORD}", REFUSED, id="no star, no more than the name"),
        pytest.param(("env:KAFKA_*",), "${env:RECONCILER_PASSWORD}", REFUSED, id="what is said replaces the default"),
        pytest.param(("env:KAFKA_*",), "${env:AWS_SECRET_ACCESS_KEY}", REFUSED, id="another variable"),
        pytest.param(("file:FOLDER/secrets/",), FILE, None, id="a folder"),
        pytest.param(("file:FOLDER/secrets/kafka",), FILE, None, id="a file"),
        pytest.param(("file:FOLDER/secrets",), FILE, REFUSED, id="a folder without its slash is a file"),
        pytest.param(("file:FOLDER/secrets/",), "${file:FOLDER/secrets/../token}", REFUSED, id="a way out of it"),
        pytest.param(("file:FOLDER/secrets/",), "${file:FOLDER/secrets/link}", REFUSED, id="a link out of it"),
        pytest.param(("env:*",), FILE, REFUSED, id="variables are no files"),
    ],
)
def test_a_reference_is_read_only_where_the_workspace_allows_it(
    bench: Bench, allow: tuple[str, ...], password: str, refused: str | None
) -> None:
    bench.write("secrets/kafka", PASSWORD)
    bench.write("token", PASSWORD)
    (bench.folder / "secrets/link").symlink_to("../token")
    here = str(bench.folder)
    workspace(bench, *(each.replace("FOLDER", here) for each in allow))
    text = cluster(HERE, password.replace("FOLDER", here))
    if refused is None:
        judged(secret(bench), text)
        return
    with pytest.raises(UserError, match=refused) as error:
        judged(secret(bench), text)
    assert "manifests/live.yaml" in error.value.message
    assert "references: {allow: [" in error.value.hint


def test_validating_names_the_line_that_lets_a_plan_read_all_references(bench: Bench) -> None:
    workspace(bench)
    bench.write("manifests/live.yaml", cluster(HERE))
    bench.write("manifests/other.yaml", cluster(THERE, "${env:OTHER}").replace("name: live", "name: other"))
    refused = validate(secret(bench).invocation, Select())
    assert isinstance(refused.verdict, UserError)
    assert [finding.source for finding in refused.findings] == ["manifests/live.yaml:4", "manifests/other.yaml:4"]
    (line,) = {finding.hint.partition("reconciler.yaml: ")[2] for finding in refused.findings}
    assert line == 'references: {allow: ["env:RECONCILER_*", "env:KAFKA_PASSWORD", "env:OTHER"]}'
    path = bench.folder / "reconciler.yaml"
    path.write_text(f"{path.read_text()}  {line}\n")
    assert validate(bench.invocation, Select()).verdict is None


KNOWN = cluster(HERE)


@pytest.mark.parametrize(
    ("text", "allow", "raised"),
    [
        pytest.param(KNOWN, (), None, id="as before: allowed because it was sent there"),
        pytest.param(cluster(THERE), (), UserError, id="to another address it is not known"),
        pytest.param(cluster(THERE, "${env:RECONCILER_PASSWORD}"), (), BlockedError, id="allowed, but elsewhere"),
        pytest.param(cluster(THERE, "${env:RECONCILER_PASSWORD}"), ("connect:cluster/live",), None, id="let"),
        pytest.param(
            cluster(THERE, "${env:RECONCILER_PASSWORD}"), ("connect:cluster/other",), BlockedError, id="not it"
        ),
        pytest.param(cluster(HERE, "${env:RECONCILER_PASSWORD}"), (), None, id="another secret to the same address"),
        pytest.param(
            cluster(HERE, "${env:RECONCILER_PASSWORD}", "SASL_PLAINTEXT", allowPlaintextPasswords=True),
            (),
            BlockedError,
            id="to the same address, in clear",
        ),
        pytest.param(signed(HERE), (), None, id="a token that is signed here, to the same address"),
        pytest.param(signed(THERE), (), BlockedError, id="a token that is signed here, elsewhere"),
        pytest.param(signed(THERE), ("connect:cluster/live",), None, id="a token that is signed here, let"),
    ],
)
def test_a_secret_is_bound_to_the_address_the_state_knows(
    bench: Bench, text: str, allow: tuple[str, ...], raised: type[ReconcilerError] | None
) -> None:
    if raised is None:
        judged(secret(bench), text, before=KNOWN, allow=allow)
        return
    with pytest.raises(raised):
        judged(secret(bench), text, before=KNOWN, allow=allow)


def stored(endpoint: str, key: str | None = "${env:AWS_SECRET_ACCESS_KEY}") -> str:
    """Return a cluster whose object storage is reached with a key."""
    keys = f"cloud_storage_access_key: '{key}', cloud_storage_secret_key: '{key}'" if key else ""
    return (
        "apiVersion: reconciler/v1\nkind: Cluster\nmetadata: {name: live}\n"
        f"spec: {{embedded: {{root: file://live}}, objectStorage: {{url: s3://bucket/live, endpoint: {endpoint}}}, "
        f"properties: {{{keys}}}}}\n"
    )


@pytest.mark.parametrize(
    ("text", "before", "raised"),
    [
        pytest.param(stored("https://a"), stored("https://a"), None, id="as before"),
        pytest.param(stored("https://a"), None, UserError, id="not allowed"),
        pytest.param(stored("https://b"), stored("https://a"), UserError, id="not allowed, and elsewhere"),
        pytest.param(stored("https://b", "${env:RECONCILER_KEY}"), stored("https://a"), BlockedError, id="elsewhere"),
        pytest.param(stored("https://a", "${env:RECONCILER_KEY}"), stored("https://a", None), None, id="a first key"),
        pytest.param(stored("https://a", "${env:RECONCILER_KEY}"), None, None, id="a new cluster"),
    ],
)
def test_the_keys_of_object_storage_are_bound_to_it(
    bench: Bench, text: str, before: str | None, raised: type[ReconcilerError] | None
) -> None:
    if raised is None:
        judged(secret(bench), text, before=before)
        return
    with pytest.raises(raised):
        judged(secret(bench), text, before=before)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (cluster(HERE, protocol="SASL_PLAINTEXT"), "SASL_PLAINTEXT sends passwords over a connection without"),
        (
            cluster(HERE).replace("'PLAIN'", "OAUTHBEARER, tokenEndpointUrl: 'http://login/t', clientId: me")
            .replace("password:", "clientSecret:").replace("username: 'me', ", ""),
            "http://login/t would send tokens without encryption",
        ),
    ],
    ids=["brokers", "a token endpoint"],
)  # fmt: skip
def test_a_password_never_goes_in_clear_unless_the_cluster_says_so(bench: Bench, text: str, said: str) -> None:
    workspace(bench, "env:*")
    with pytest.raises(UserError, match=said):
        judged(secret(bench), text)
    judged(secret(bench), text.replace("mechanism:", "allowPlaintextPasswords: true, mechanism:"))


def test_nobody_hears_anything_before_it_is_allowed(bench: Bench, stranger: Listener) -> None:
    bench = secret(bench)
    text = cluster(stranger.address, protocol="SASL_PLAINTEXT", allowPlaintextPasswords=True)
    bench.write("manifests/live.yaml", text)
    with pytest.raises(UserError, match=REFUSED):
        bench.plan()
    assert stranger.heard == []
    host, _, port = stranger.address.partition(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(b"hello")
        assert connection.recv(1) == b""
    stranger.close()
    assert stranger.heard == [b"hello"]


@pytest.fixture
def forked(bench: Bench) -> Bench:
    """A pull request of somebody else, for a branch that knows a cluster."""
    bench = secret(bench)
    workspace(bench, "env:KAFKA_*")
    bench.write("manifests/live.yaml", KNOWN)
    bench.write(".gitignore", ".clusters\n.reconciler\n")
    for arguments in (("init", "-q", "-b", "main"), ("add", "."), ("commit", "-q", "-m", "x"), ("switch", "-qc", "pr")):
        subprocess.run(["git", "-C", str(bench.folder), *arguments], env=ENVIRON, check=True)
    environ = {**ENVIRON, "RECONCILER_BASE": "main"}
    changed = replace(bench.invocation, base_files=lambda folder: extract_base_files(folder, environ))
    return replace(bench, invocation=changed)


@pytest.mark.parametrize(
    ("text", "allow", "raised"),
    [
        pytest.param(KNOWN, (), None, id="what the base has"),
        pytest.param(cluster(HERE, "${env:KAFKA_OTHER}"), (), None, id="what the base allows, to what it knows"),
        pytest.param(cluster(HERE, "${env:RECONCILER_PASSWORD}"), (), UserError, id="what only the request allows"),
        pytest.param(cluster(THERE), (), BlockedError, id="to a stranger"),
        pytest.param(signed(THERE), (), BlockedError, id="a token that the pipeline signs, to a stranger"),
        pytest.param(cluster(THERE).replace("name: live", "name: fresh"), (), BlockedError, id="a cluster of its own"),
        pytest.param(cluster(THERE), ("connect:cluster/live",), None, id="to a stranger, and somebody lets it"),
        pytest.param(cluster(HERE, caFile="/etc/hostname"), (), UserError, id="a file of the runner"),
        pytest.param(cluster(HERE, caFile="certificates/ca.pem"), (), None, id="a file of its own"),
        pytest.param(platform("/etc/hostname"), (), UserError, id="a file of the runner, for a REST API"),
        pytest.param(platform("certificates/ca.pem"), (), None, id="a file of its own, for a REST API"),
    ],
)
def test_of_a_pull_request_only_its_base_is_believed(
    forked: Bench, text: str, allow: tuple[str, ...], raised: type[ReconcilerError] | None
) -> None:
    workspace(forked, "env:*", "file:/")
    name = "fresh" if "name: fresh" in text else "live"
    forked.write("manifests/live.yaml", text)
    loaded = load_files(forked.invocation, Select(allow=allow))
    trust = Trust(forked.invocation, Select(allow=allow), Variables(), loaded, dict)
    found = next(each.resource for address, each in loaded.desired.items() if address == f"cluster/{name}")
    assert isinstance(found, Cluster)
    if raised is None:
        trust.check_cluster(found)
        return
    with pytest.raises(raised):
        trust.check_cluster(found)


def test_validating_a_pull_request_believes_its_base_or_says_that_it_has_none(forked: Bench) -> None:
    workspace(forked, "env:*")
    forked.write("manifests/live.yaml", cluster(HERE, "${env:RECONCILER_PASSWORD}"))
    (finding,) = validate(forked.invocation, Select()).findings
    assert "the base of this pull request does not allow" in finding.message
    assert '"env:KAFKA_*", "env:RECONCILER_PASSWORD"' in finding.hint
    environ = {**ENVIRON, "RECONCILER_BASE": "f" * 40}
    shallow = replace(forked.invocation, base_files=lambda folder: extract_base_files(folder, environ))
    validated = validate(shallow, Select())
    assert validated.verdict is None
    assert "which secrets manifests may name is not known" in validated.warnings[0]


def test_a_pull_request_does_not_move_the_state_or_a_cluster_to_an_endpoint_of_its_own(
    forked: Bench, stranger: Listener
) -> None:
    forked.write(
        "manifests/live.yaml",
        "apiVersion: reconciler/v1\nkind: Cluster\nmetadata: {name: far}\nspec:\n"
        f"  embedded: {{root: {{url: s3://bucket/far, endpoint: 'http://{stranger.address}'}}}}\n",
    )
    with pytest.raises(BlockedError, match="which the base of this pull request does not know"):
        forked.plan()
    with pytest.raises(BlockedError, match="which the base of this pull request does not know"):
        run_cluster_check(SiteOptions(invocation=forked.invocation, select=Select()), "far", repair=False, deep=False)
    workspace(forked, state=f"{{url: s3://bucket/x, endpoint: 'http://{stranger.address}'}}")
    with pytest.raises(BlockedError, match=r"spec\.state"):
        forked.plan()
    with pytest.raises(BlockedError, match=r"spec\.state"):
        state_history(forked.invocation, Select())
    assert stranger.heard == []


def test_a_tag_does_not_stand_in_for_the_base_branch_of_its_name(forked: Bench) -> None:
    forked.write("manifests/live.yaml", cluster(THERE))
    for arguments in (("add", "."), ("commit", "-q", "-m", "y"), ("tag", "main")):
        subprocess.run(["git", "-C", str(forked.folder), *arguments], env=ENVIRON, check=True)
    found = extract_base_files(forked.folder, {**ENVIRON, "RECONCILER_BASE": "main"})
    assert found is not None
    assert found.map_path(forked.folder / "manifests/live.yaml").read_text() == KNOWN


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        pytest.param({"RECONCILER_BASE": "nowhere"}, "git cannot read nowhere", id="a base that was not fetched"),
        pytest.param({"GITHUB_EVENT_NAME": "pull_request_target"}, "does not name the pull request", id="no event"),
        pytest.param({"RECONCILER_BASE": ""}, "RECONCILER_BASE is set and empty", id="an empty base"),
        pytest.param({"CI_MERGE_REQUEST_DIFF_BASE_SHA": " "}, "is set and empty", id="an empty base of GitLab"),
    ],
)
def test_a_base_that_cannot_be_read_lets_nothing_through(forked: Bench, environ: dict[str, str], said: str) -> None:
    with pytest.raises(UserError, match=said):
        extract_base_files(forked.folder, {**ENVIRON, **environ})


@pytest.mark.parametrize("how", ["RECONCILER_BASE", "CI_MERGE_REQUEST_DIFF_BASE_SHA", "GITHUB_EVENT_PATH"])
def test_a_pipeline_says_what_a_pull_request_is_for(forked: Bench, how: str) -> None:
    head = subprocess.run(
        ["git", "-C", str(forked.folder), "rev-parse", "main"], env=ENVIRON, check=True, capture_output=True, text=True
    ).stdout.strip()
    event = forked.write("event.json", f'{{"pull_request": {{"base": {{"sha": "{head}"}}}}}}')
    environ = (
        {"GITHUB_EVENT_PATH": str(event), "GITHUB_EVENT_NAME": "pull_request"} if how.startswith("G") else {how: head}
    )
    found = extract_base_files(forked.folder, {**ENVIRON, **environ})
    assert found is not None
    assert found.map_path(forked.folder / "manifests/live.yaml").read_text() == KNOWN
    assert extract_base_files(forked.folder, ENVIRON) is None


def test_a_workspace_below_the_root_of_its_repository_has_a_base_too(forked: Bench) -> None:
    for arguments in (("mv", "manifests", "below"), ("commit", "-q", "-m", "y"), ("branch", "-f", "main")):
        subprocess.run(["git", "-C", str(forked.folder), *arguments], env=ENVIRON, check=True)
    found = extract_base_files(forked.folder / "below", {**ENVIRON, "RECONCILER_BASE": "main"})
    assert found is not None
    assert found.map_path(forked.folder / "below/live.yaml").read_text() == KNOWN


def test_a_pull_request_reads_nothing_outside_of_its_repository(
    forked: Bench, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("runner") / "secret.yaml"
    outside.write_text(f"kind: {PASSWORD}\n")
    limited = replace(
        forked.invocation, read_limit=lambda folder: find_read_limit(folder, {**ENVIRON, "RECONCILER_BASE": "main"})
    )
    link = forked.folder / "manifests/link.yaml"
    link.symlink_to(outside)
    with pytest.raises(UserError, match="is outside the repository") as error:
        load_files(limited, Select())
    assert PASSWORD not in str(error.value)
    before = outside.read_text()
    for paths in ((), (Path("manifests"),), (Path("manifests/link.yaml"),)):
        with pytest.raises(UserError, match="is outside the repository"):
            format_files(limited, paths, check=False)
    assert outside.read_text() == before
    with pytest.raises(UserError, match=PASSWORD):
        load_files(forked.invocation, Select())  # What is ours may lie anywhere.


@pytest.mark.parametrize("place", ["cluster.json", "catalog", "topics/shop/orders_0", "."])
@pytest.mark.parametrize("is_named_by_base", [True, False], ids=["the base names it", "the request names it"])
def test_a_pull_request_leads_no_cluster_or_state_out_of_the_repository_by_a_link(
    forked: Bench, tmp_path_factory: pytest.TempPathFactory, place: str, *, is_named_by_base: bool
) -> None:
    outside = tmp_path_factory.mktemp("runner")
    text = "kind: Cluster\nmetadata: {name: near}\nspec: {embedded: {root: 'file://cl'}}\n"
    forked.write("manifests/live.yaml", f"apiVersion: reconciler/v1\n{text}")
    if is_named_by_base:
        for arguments in (("add", "."), ("commit", "-q", "-m", "y"), ("branch", "-f", "main")):
            subprocess.run(["git", "-C", str(forked.folder), *arguments], env=ENVIRON, check=True)
    link = forked.folder / "cl" / place
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(outside)
    with pytest.raises(UserError, match=r"cluster/near: file://cl.*link"):
        forked.plan()
    link.unlink()
    state = forked.folder / ".reconciler" / place
    state.parent.mkdir(parents=True, exist_ok=True)
    state.symlink_to(outside)
    for read in (forked.plan, lambda: state_history(forked.invocation, Select())):
        with pytest.raises(UserError, match=r"spec\.state: file://\.reconciler.*link"):
            read()
    assert list(outside.iterdir()) == []


def test_files_of_a_repository_within_the_repository_are_not_taken_for_it(forked: Bench) -> None:
    place = forked.folder / "below"
    subprocess.run(["git", "init", "-q", "--bare", str(place)], env=ENVIRON, check=True)
    (place / "reconciler.yaml").write_text("kind: Workspace\n")
    with pytest.raises(UserError, match=r"holds the files of a git repository|git cannot read"):
        extract_base_files(place, {**ENVIRON, "RECONCILER_BASE": "main"})


def test_a_file_of_variables_that_the_request_changes_does_not_say_where_the_base_sends_secrets(forked: Bench) -> None:
    forked.write("prod.yaml", f"broker: {HERE!r}\n")
    forked.write("manifests/live.yaml", cluster("${var.broker}"))
    for arguments in (("add", "."), ("commit", "-q", "-m", "y"), ("branch", "-f", "main")):
        subprocess.run(["git", "-C", str(forked.folder), *arguments], env=ENVIRON, check=True)
    select = Select(var_files=(Path("prod.yaml"),))
    cluster_of_main = opened(forked, select)
    forked.write("prod.yaml", f"broker: {THERE!r}\n")
    with pytest.raises(BlockedError, match=THERE):
        opened(forked, select)
    assert cluster_of_main.spec.kafka is not None
    assert cluster_of_main.spec.kafka.bootstrap_servers == (HERE,)


def opened(bench: Bench, select: Select) -> Cluster:
    """Ask whether the cluster may be opened that the files declare, and return it."""
    loaded = load_files(bench.invocation, select)
    found = loaded.desired[next(address for address in loaded.desired if address == "cluster/live")].resource
    assert isinstance(found, Cluster)
    Trust(bench.invocation, select, read_variables(bench.invocation, select), loaded, dict).check_cluster(found)
    return found


def test_a_program_that_a_repository_within_the_repository_names_is_not_run(forked: Bench) -> None:
    place, trace = forked.folder / "below", forked.folder / "it-ran"
    subprocess.run(["git", "clone", "-q", "--bare", str(forked.folder), str(place)], env=ENVIRON, check=True)
    settings = {"core.bare": "false", "core.worktree": str(place), "core.fsmonitor": f"touch {trace}; false"}
    for name, value in settings.items():
        subprocess.run(["git", "config", "--file", str(place / "config"), name, value], env=ENVIRON, check=True)
    unguarded = ["git", "-C", str(place), "reset", "-q"]
    subprocess.run(unguarded, env=ENVIRON, check=True)
    subprocess.run(["git", "-C", str(place), "status", "-s"], env=ENVIRON, check=True, capture_output=True)
    assert trace.exists(), "git itself runs it, so the case is one"
    trace.unlink()
    with pytest.raises(UserError):
        list_changed_files(place, ENVIRON, "main")
    with pytest.raises(UserError):
        extract_base_files(place, {**ENVIRON, "RECONCILER_BASE": "main"})
    assert read_commit(place, ENVIRON) is None
    assert not trace.exists()


# A secret is a reference wherever something is written: plans, runs, journals, states, reports and logs.


SECRET = "hunter2-never-to-be-written"  # noqa: S105 - what is looked for
FAR = """\
apiVersion: reconciler/v1
kind: Cluster
metadata: {name: plain}
spec:
  provider: kafka
  kafka:
    bootstrapServers: ["localhost:1"]
    security: {protocol: SASL_SSL, mechanism: PLAIN, username: me, password: "${env:FAR_PASSWORD}"}
---
apiVersion: reconciler/v1
kind: Cluster
metadata: {name: oauth}
spec:
  provider: kafka
  kafka:
    bootstrapServers: ["localhost:2"]
    security:
      protocol: SASL_SSL
      mechanism: OAUTHBEARER
      tokenEndpointUrl: https://localhost:1/token
      clientId: me
      clientSecret: "${file:FOLDER/secret}"
---
apiVersion: reconciler/v1
kind: Cluster
metadata: {name: red}
spec:
  provider: redpanda
  redpanda:
    bootstrapServers: ["localhost:9"]
    adminUrls: ["https://localhost:9"]
    admin: {token: "${env:FAR_PASSWORD}"}
---
apiVersion: reconciler/v1
kind: Cluster
metadata: {name: cloud}
spec:
  provider: confluent
  confluent:
    restEndpoint: https://localhost:3
    clusterId: lkc-1
    apiKey: "${env:FAR_PASSWORD}"
    apiSecret: "${file:FOLDER/secret}"
---
apiVersion: reconciler/v1
kind: Cluster
metadata: {name: stored}
spec:
  embedded: {root: "file://.clusters/stored"}
  objectStorage: {url: "s3://bucket/stored", region: us-east-1, endpoint: "http://127.0.0.1:1"}
  properties:
    cloud_storage_access_key: "${env:FAR_PASSWORD}"
    cloud_storage_secret_key: "${file:FOLDER/secret}"
---
apiVersion: reconciler/v1
kind: Cluster
metadata: {name: blobs}
spec:
  embedded: {root: "file://.clusters/blobs"}
  objectStorage: {url: "az://box/blobs", endpoint: "http://127.0.0.1:1/me"}
  properties:
    cloud_storage_azure_storage_account: me
    cloud_storage_azure_shared_key: "${env:FAR_PASSWORD}"
"""


@pytest.fixture
def far(bench: Bench) -> Bench:
    """A workspace with a secret in every place that takes one, and the secrets at hand."""
    bench.write("secret", SECRET)
    bench.write("manifests/far.yaml", FAR.replace("FOLDER", str(bench.folder)))
    return bench.with_(environ={"FAR_PASSWORD": SECRET})


def clusters(bench: Bench) -> list[Cluster]:
    desired = load_files(bench.invocation, Select()).desired
    return [item.resource for item in desired.values() if isinstance(item.resource, Cluster)]


def secret_fields(schema: Any, path: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the names of the fields that a schema marks as secret."""
    match schema:
        case {"secret": True}:
            yield path[-1]
        case dict():
            for key, item in schema.items():
                yield from secret_fields(item, path if key in {"anyOf", "items"} else (*path, key))
        case list():
            for item in schema:
                yield from secret_fields(item, path)
        case _:
            pass


def written(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder but the secret's own, unpacked."""
    found = {}
    for path in folder.rglob("*"):
        if path.is_file() and path.name != "secret":
            body = path.read_bytes()
            found[str(path)] = gzip.decompress(body) if path.suffix == ".gz" else body
    return found


def test_every_place_that_takes_a_secret_is_looked_at_here() -> None:
    fields = {name for schema in build_schemas().values() for name in secret_fields(schema)}
    assert fields == {"password", "clientSecret", "token", "apiKey", "apiSecret", *REFERENCES}
    assert all(f"{name}:" in FAR for name in fields)


def test_whatever_is_made_of_an_action_holds_the_reference(far: Bench) -> None:
    found = [cluster for cluster in clusters(far) if cluster.metadata.name != "west"]
    assert len(found) == 6
    change = Change("kafka.security.username", "you", "me")
    actions = tuple(
        action
        for each in found
        for action in (
            Create(address=each.address, after=each),
            Adopt(address=each.address, observed=each, after=each),
            Update(address=each.address, before=each, after=each, changes=(change,)),
            Delete(address=each.address, before=each),
        )
    )
    plan = Plan(
        workspace="shop",
        environment=None,
        base=None,
        tool="0.1.0",
        git_commit=None,
        actions=actions,
        digest=compute_digest(actions),
    )
    saved = encode_saved_plan(plan, {})
    made = [
        saved,
        orjson.dumps([encode_action(action) for action in actions]),
        format_plan_comment(plan).encode(),
        format_junit(list_plan_remarks(plan)),
        format_document(SarifDocument.from_remarks(list_plan_remarks(plan))),
    ]
    assert not [body for body in made if SECRET.encode() in body]
    for reference in ("${env:FAR_PASSWORD}", f"${{file:{far.folder}/secret}}"):
        assert reference.encode() in saved
    afters = [after for action in read_plan_to_apply(saved).plan.actions if (after := build_result_json(action))]
    kept = {after["spec"]["provider"] for after in afters}
    assert kept == {"kafka", "redpanda", "confluent", "embedded"}
    assert all(map(read_resource, afters))


def test_a_plan_that_is_saved_and_applied_leaves_no_secret_anywhere(far: Bench) -> None:
    names = [cluster.metadata.name for cluster in clusters(far) if cluster.metadata.name != "west"]
    rest = Select(excludes=tuple(pattern for name in names for pattern in (f"*/{name}/*", f"cluster/{name}")))
    far.plan(rest, out=Path("p.json"))
    assert far.apply(options=ApplyOptions(file=Path("p.json"))).verdict is None
    files = written(far.folder)
    names_written = {Path(name).name for name in files}
    assert {"p.json", "run.json", "result.json", "lockfile.json", "000001.json"} <= names_written
    assert not [name for name, body in files.items() if SECRET.encode() in body]


def test_a_cluster_that_cannot_be_reached_is_said_without_its_secret(far: Bench) -> None:
    with pytest.raises(ReconcilerError) as caught:
        far.plan()
    assert any(name in caught.value.message for name in ("plain", "oauth", "cloud", "kafka", "confluent"))
    assert SECRET not in str(caught.value)
    assert not [name for name, body in written(far.folder).items() if SECRET.encode() in body]
