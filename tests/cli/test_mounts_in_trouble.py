"""The mount commands where something is in the way: a state, a cluster or a bucket that does not answer, a signal."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from reconciler.cli.environment import invocation
from reconciler.embedded.catalog.model import AclEntry
from reconciler.errors import IncompleteError, InterruptedRunError
from reconciler.operations.clusters.mounts import MountSite, ask_migration
from reconciler.operations.steps.invocation import Select
from reconciler.operations.steps.runner import Stop
from tests.cli.sample_mounts import ORDERS, follows

if TYPE_CHECKING:
    from tests.cli.sample_mounts import Shop


def test_what_is_cancelled_without_an_answer_of_the_bucket_goes_on_in_a_run(shop: Shop) -> None:
    number = shop.mounting(shop.unmounted(), "prepare", "execute")
    register = next((shop.folder / ".bucket" / "mountable").rglob("*.json"))
    kept = register.read_text()
    register.write_text("{")
    said = shop.typed("mount", "cancel", str(number), "--yes")
    assert said.code == 4
    assert f"migration {number} is canceling, and not cancelled yet: " in said.err
    assert "reconciler run --once --only migrations" in said.err
    register.write_text(kept)
    assert "`reconciler run --once --only migrations` goes on with it" in shop.said("mount", "status", str(number))
    shop.said("run", "--once", "--only", "migrations")
    (printed,) = follows("mount-status", shop.typed("mount", "status", "--format", "json"))["migrations"]
    assert (printed["state"], printed["legal"]) == ("cancelled", ["delete"])


def test_a_state_that_cannot_be_read_is_gone_on_without_where_that_is_asked(shop: Shop) -> None:
    number = shop.unmounting("prepare")
    lockfile = next(path for path in (shop.folder / ".state").iterdir() if path.suffix == ".json" or path.is_file())
    lockfile.write_text("{")
    looked = shop.typed("mount", "status")
    assert (looked.code, f"migration {number} of west" in looked.out) == (0, True)
    assert "Warning: which clusters these should be is not known" in looked.err
    refused = shop.typed("mount", "cancel", str(number), "--yes")
    assert (refused.code, refused.out) == (1, "")
    assert "To go on without the state: --no-state" in refused.err
    shop.said("mount", "cancel", str(number), "--yes", "--no-state")


def test_a_cluster_that_is_gone_is_named_and_the_others_are_shown(shop: Shop) -> None:
    number = shop.unmounting("prepare")
    shutil.rmtree(shop.folder / ".clusters" / "east")
    for command in ("list", "status"):
        said = shop.typed("mount", command)
        assert (said.code, shop.location in said.out) == (1, True)
        assert "cannot read cluster east: it is recorded, but nothing is there now" in said.err
    refused = shop.typed("mount", "cancel", str(number), "--yes")
    assert (refused.code, refused.out) == (1, "")
    assert "say whose: --cluster NAME" in refused.err
    shop.said("mount", "cancel", str(number), "--yes", "--cluster", "west")


def test_a_bucket_that_does_not_answer_hides_no_migration(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    number = shop.unmounting("prepare")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "any")
    manifests = shop.folder / "manifests" / "all.yaml"
    nowhere = 's3://shop/bucket", region: eu, endpoint: "http://127.0.0.1:9'
    manifests.write_text(manifests.read_text().replace("file://.bucket", nowhere))
    said = shop.typed("mount", "list")
    assert (said.code, f"unmounting (west {number}: preparing)" in said.out) == (1, True)
    assert "cannot list s3://shop/bucket/mountable/: connection refused" in said.err
    assert f"migration {number} of west" in shop.said("mount", "status")
    shop.said("mount", "cancel", str(number), "--yes")  # the catalog alone says so


def test_what_is_finished_by_hand_is_deleted_by_hand_and_no_run_goes_on_with_it(shop: Shop) -> None:
    number = shop.begun("unmount", "prepare", "execute", "finish", "")
    told = shop.said("mount", "status", str(number))
    assert told.splitlines()[-1] == f"  next: `reconciler mount delete {number} --cluster west`"
    shop.said("run", "--once", "--only", "migrations")
    assert shop.said("mount", "status", str(number)) == told


def test_a_topic_on_its_way_is_described_as_that_and_how_to_stop_it_is_asked_of_its_status(shop: Shop) -> None:
    describe = ("topic", "describe", f"topic/west/{ORDERS}")
    assert "being unmounted" not in shop.said(*describe)
    number = shop.unmounting()
    refused = shop.typed("topic", "alter", f"topic/west/{ORDERS}", "--set", "retention.ms=9d").err
    assert "(POLICY_VIOLATION)" in refused
    assert refused.rstrip().endswith("reconciler mount status")
    assert "being unmounted: planned, cannot be changed" in shop.said(*describe)
    shop.said("mount", "delete", str(number), "--yes")
    number = shop.unmounting("prepare", "execute")
    see = f"see: reconciler mount status {number} --cluster west"
    assert f"being unmounted: executing, takes and gives no records until then; {see}" in shop.said(*describe)
    printed = follows("topic-description", shop.typed(*describe, "--format", "json"))
    assert printed["migration"] == {"id": number, "direction": "outbound", "state": "executing", "closed": True}


def test_broken_files_keep_nobody_from_a_migration_and_the_way_around_them_is_told(shop: Shop) -> None:
    shop.unmounting("prepare")
    (shop.folder / "manifests" / "broken.yaml").write_text("kind: [")
    for command in ("list", "status"):
        said = shop.typed("mount", command)
        assert (said.code, "--state URL" in said.err) == (1, True)


class StopAfter(Stop):
    """A request to stop that comes when it was looked for so many times."""

    def __init__(self, looks: int) -> None:
        super().__init__()
        self._looks = looks

    @property
    def is_requested(self) -> bool:
        self._looks -= 1
        return self._looks < 0


def test_a_cancel_that_is_stopped_did_nothing_or_goes_on_in_a_run(shop: Shop) -> None:
    number = shop.unmounting("prepare", "execute")
    reach = MountSite(invocation=invocation(shop.folder), select=Select())

    def cancel(looks: int) -> None:
        ask_migration(reach, number, "cancel", None, confirm=lambda _one: True, stop=StopAfter(looks))

    with pytest.raises(InterruptedRunError):
        cancel(1)
    assert shop.cluster("west").mounts.under_way()[number].state == "executing"
    with pytest.raises(IncompleteError, match="is canceling, and not cancelled yet: Interrupted"):
        cancel(2)
    assert shop.cluster("west").mounts.under_way()[number].state == "canceling"
    assert "is canceling: it is being cancelled already" in shop.typed("mount", "cancel", str(number), "--yes").err


def test_who_may_not_delete_a_topic_may_not_stop_its_unmount_and_who_may_not_see_it_sees_none(shop: Shop) -> None:
    number = shop.unmounting("prepare")
    west = shop.cluster("west")
    rule = AclEntry("User:anna", "allow", ("describe",))
    west.set_topic_acls(ORDERS, [rule])
    anna = ("--principal", "User:anna")
    assert f"migration {number} of west" in shop.said("mount", "status", *anna)
    refused = shop.typed("mount", "cancel", str(number), "--yes", *anna)
    assert (refused.code, "User:anna" in refused.err) == (1, True)
    assert west.mounts.under_way()[number].state == "preparing"
    unseen = shop.typed("mount", "status", str(number), "--principal", "User:ben")
    assert (unseen.code, "Data migration does not exist" in unseen.err) == (1, True)
