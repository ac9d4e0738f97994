"""Cuts on stores as they are: a folder, and a real S3 server, the local and the remote tier."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from reconciler.embedded.check.check import check_cluster
from reconciler.embedded.check.damage import Kind
from reconciler.resources.mirrors import Truncated
from tests.embedded.tiered import BOTH, Tiered
from tests.embedded.truncated import cut, is_sound, joined, let_go, mirror_more, rows
from tests.embedded.upkeeping import append_parts, head_of, with_topic
from tests.servers.stores import fresh_store

if TYPE_CHECKING:
    from pathlib import Path

KINDS = [("directory", 9), ("directory", 18), pytest.param("s3", 9, marks=pytest.mark.soak)]


@pytest.mark.fact("F-C-079")
@pytest.mark.parametrize(("kind", "at"), KINDS)
def test_both_tiers_are_cut(request: pytest.FixtureRequest, tmp_path: Path, kind: str, at: int) -> None:
    request.param = kind
    it = Tiered(fresh_store(request, tmp_path / "here"), fresh_store(request, tmp_path / "there"))
    it.switch_on(spillover_manifest_size="1024")
    with_topic(it.cluster, segment_bytes="4500", **{key.replace(".", "_"): value for key, value in BOTH.items()})
    append_parts(it.cluster, 14)
    it.upload()
    let_go(it, 3)
    before = rows(it)
    joined(it)
    assert cut(it, at) == cut(it, at) == Truncated(at, 28 - at)
    assert rows(it) == before[:at]
    assert it.manifest().end == head_of(it.opened()).uploaded_to == at
    is_sound(it)
    mirror_more(it, 5)
    assert cut(it, at) == Truncated(at, 28 - at)
    it.switch_on(segment_max_upload_interval_sec="1")
    it.clock.now_ms += 5_000
    assert not it.upload().errors
    assert it.manifest().end == at + 5
    assert [offset for offset, _, _ in rows(it)] == list(range(at + 5))
    findings = check_cluster(it.store, deep=True, storage=it.storage).findings
    assert {finding.kind for finding in findings} == {Kind.TRANSITION_UNDER_WAY}
