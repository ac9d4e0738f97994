"""What no patch of `drift --accept` can change is a note that says what to write where, and blocks nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.workflow.test_accepting import HEAD, ORDERS, UNSAFE, accepted, check_agreed, topic, west

if TYPE_CHECKING:
    from conftest import Bench

OUTSIDE = "(its file lies outside the workspace)"


def one_folder_down(bench: Bench) -> Bench:
    """Return the workspace in a folder below, so that there is something around it."""
    folder = bench.folder / "shop"
    folder.mkdir()
    for name in ("reconciler.yaml", "manifests"):
        (bench.folder / name).rename(folder / name)
    return replace(bench.with_(cwd=folder), folder=folder)


def test_what_is_written_outside_the_workspace_is_changed_by_hand_and_the_rest_by_the_patch(bench: Bench) -> None:
    bench = one_folder_down(bench)
    spec = "spec: {manifests: [manifests, ../common]}\n"
    bench.write("reconciler.yaml", f"{HEAD}kind: Workspace\nmetadata: {{name: shop}}\n{spec}")
    common = bench.write("../common/clicks.yaml", topic("  partitions: 3\n  configs: {retention.ms: 7d}\n", "clicks"))
    gone = bench.write("../common/gone.yaml", topic("  partitions: 3\n", "gone"))
    assert bench.apply().verdict is None
    west(bench).alter_topic("shop:clicks", {"retention.ms": "1000"})
    west(bench).alter_topic("shop:orders", {"retention.ms": "1000"})
    west(bench).delete_topic("shop:gone")
    before = common.read_text()
    found = accepted(bench, "topic/*")
    assert sorted(found.notes) == [
        f"topic/west/shop:clicks: change by hand: {common.resolve()}:6 spec.configs.retention.ms: 1s {OUTSIDE}",
        f"topic/west/shop:gone: change by hand: {gone.resolve()}:1 take this document out {OUTSIDE}",
    ]
    assert found.left_out == 2
    assert common.read_text() == before
    assert "retention.ms: 1s" in (bench.folder / "manifests/orders.yaml").read_text()


def test_through_a_link_the_real_file_is_patched_where_it_lies_in_the_workspace(bench: Bench) -> None:
    real = bench.folder / "shared/orders.yaml"
    bench.write("shared/orders.yaml", (bench.folder / "manifests/orders.yaml").read_text())
    (bench.folder / "manifests/orders.yaml").unlink()
    (bench.folder / "manifests/orders.yaml").symlink_to("../shared/orders.yaml")
    bench.apply()
    west(bench).alter_topic("shop:orders", {"retention.ms": "1000"})
    found = accepted(bench, "topic/*")
    assert found.patch.startswith("--- a/shared/orders.yaml\n+++ b/shared/orders.yaml\n")
    assert "retention.ms: 1s" in real.read_text()
    check_agreed(bench)
    bench.apply()
    west(bench).delete_topic("shop:orders")
    accepted(bench, "topic/*")
    assert real.read_text() == ""  # a link that leads nowhere would be an error
    check_agreed(bench)


def test_a_link_to_a_file_outside_is_a_note_and_blocks_nothing(bench: Bench) -> None:
    bench = one_folder_down(bench)
    outside = bench.write("../clicks.yaml", topic("  partitions: 3\n  configs: {retention.ms: 7d}\n", "clicks"))
    (bench.folder / "manifests/clicks.yaml").symlink_to(outside)
    bench.apply()
    west(bench).alter_topic("shop:clicks", {"retention.ms": "1000"})
    west(bench).alter_topic("shop:orders", {"retention.ms": "1000"})
    found = accepted(bench, "topic/*")
    assert found.notes == (
        f"topic/west/shop:clicks: change by hand: manifests/clicks.yaml:6 spec.configs.retention.ms: 1s {OUTSIDE}",
    )
    assert "shared" not in found.patch
    assert "retention.ms: 1s" in (bench.folder / "manifests/orders.yaml").read_text()


def test_a_manifest_folder_that_is_a_link_gets_its_new_files_where_it_really_is(bench: Bench) -> None:
    (bench.folder / "manifests").rename(bench.folder / "real")
    (bench.folder / "manifests").symlink_to("real")
    bench.apply()
    west(bench).create_topic("odd", partitions=1)
    assert accepted(bench, "*").patch.startswith("--- /dev/null\n+++ b/real/accepted/topic-west-odd.yaml\n")
    check_agreed(bench)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("%YAML 1.2\n---\n{head}spec:\n  partitions: 3\n  configs: {{retention.ms: 7d, segment.ms: 1d}}\n", 8),
        ("{head}? spec\n:\n  partitions: 3\n  configs: {{retention.ms: 7d, segment.ms: 1d}}\n", 7),
        ("# a\u2028# b\n{head}spec:\n  partitions: 3\n  configs: {{retention.ms: 7d, segment.ms: 1d}}\n", 8),
        ("{head}spec:\r  partitions: 3\r  configs: {{retention.ms: 7d, segment.ms: 1d}}\r", 6),
    ],
    ids=["a directive", "a key with its sign", "another line end", "carriage returns"],
)
def test_a_layout_that_is_left_alone_says_each_field_once_with_its_line(bench: Bench, text: str, line: int) -> None:
    head = f"{HEAD}kind: Topic\nmetadata: {{name: orders, namespace: shop, cluster: west}}\n"
    head = head.replace("\n", "\r") if "\r" in text else head
    (bench.folder / "manifests/orders.yaml").write_bytes(text.format(head=head).encode())
    bench.apply()
    west(bench).alter_topic("shop:orders", {"retention.ms": "1000", "segment.ms": "7200000"}, partitions=6)
    found = accepted(bench, ORDERS)
    assert (found.patch, found.left_out) == ("", 3)
    at = f"{ORDERS}: change by hand: manifests/orders.yaml"
    assert found.notes == (
        f"{at}:{line} spec.configs.retention.ms: 1s {UNSAFE}",
        f"{at}:{line} spec.configs.segment.ms: 2h {UNSAFE}",
        f"{at}:{line - 1} spec.partitions: 6 {UNSAFE}",
    )


def test_comments_before_the_mark_of_a_document_outlive_it(bench: Bench) -> None:
    first, second, third = (topic("  partitions: 3\n", name) for name in ("orders", "second", "third"))
    text = f"# of the file\n---\n# of orders\n{first}\n# of second\n---\n{second}# of third\n---\n{third}"
    bench.write("manifests/orders.yaml", text)
    bench.apply()
    west(bench).delete_topic("shop:orders")
    accepted(bench, ORDERS)
    path = bench.folder / "manifests/orders.yaml"
    assert path.read_text() == f"# of the file\n# of second\n---\n{second}# of third\n---\n{third}"
    west(bench).delete_topic("shop:second")
    accepted(bench, "topic/west/shop:second")
    assert path.read_text() == f"# of the file\n# of second\n# of third\n---\n{third}"
    check_agreed(bench)
