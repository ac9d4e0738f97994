"""A secret is a reference wherever something is written: plans, runs, journals, states, reports and logs."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from reconciler.cli.json.sarif import SarifDocument, sarif_bytes
from reconciler.cli.text.markdown import plan_markdown
from reconciler.cli.text.remarks import junit, plan_remarks
from reconciler.errors import ReconcilerError
from reconciler.manifests.json_schema import schemas
from reconciler.operations.apply import ApplyOptions
from reconciler.operations.steps.invocation import Select, load_files
from reconciler.planning.actions import Adopt, Change, Create, Delete, Update
from reconciler.planning.plan import Plan
from reconciler.planning.plan_rows import digest
from reconciler.planning.saved_plan import canonical_bytes, read_saved, stored_action, to_document
from reconciler.resources.cluster import Cluster
from reconciler.resources.inventory import RESOURCE

if TYPE_CHECKING:
    from conftest import Bench

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
metadata: {name: cloud}
spec:
  provider: confluent
  confluent:
    restEndpoint: https://localhost:3
    clusterId: lkc-1
    apiKey: "${env:FAR_PASSWORD}"
    apiSecret: "${file:FOLDER/secret}"
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
    fields = {name for schema in schemas().values() for name in secret_fields(schema)}
    assert fields == {"password", "clientSecret", "apiKey", "apiSecret"}
    assert all(f"{name}:" in FAR for name in fields)


def test_whatever_is_made_of_an_action_holds_the_reference(far: Bench) -> None:
    found = [cluster for cluster in clusters(far) if cluster.metadata.name != "west"]
    assert len(found) == 3
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
        digest=digest(actions),
    )
    saved = canonical_bytes(to_document(plan, {}))
    made = [
        saved,
        orjson.dumps([stored_action(action) for action in actions]),
        plan_markdown(plan).encode(),
        junit(plan_remarks(plan)),
        sarif_bytes(SarifDocument.of(plan_remarks(plan))),
    ]
    assert not [body for body in made if SECRET.encode() in body]
    for reference in ("${env:FAR_PASSWORD}", f"${{file:{far.folder}/secret}}"):
        assert reference.encode() in saved
    kept = {action.after["spec"]["provider"] for action in read_saved(saved).actions if action.after}
    assert kept == {"kafka", "confluent"}
    assert all(RESOURCE.validate_python(action.after) for action in read_saved(saved).actions if action.after)


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
