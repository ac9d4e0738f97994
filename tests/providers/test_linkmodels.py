"""Links as their destination keeps them, whoever reads them."""

from __future__ import annotations

import pytest

from reconciler.errors import UserError
from reconciler.planning.actions import Change
from reconciler.providers.models import apply_declared_changes, to_declared_link, to_link_entry
from reconciler.resources.mirror_link import SYNCED_BY_DEFAULT, MirrorLink
from reconciler.resources.mirrors import LinkEntry, list_synced_configs

KEPT = LinkEntry("id", "west", {"source": "west"})


def test_a_link_is_read_back_as_it_was_declared() -> None:
    assert to_declared_link("dr", "east", KEPT).spec.source == "west"


def test_a_link_that_says_only_how_often_configs_follow_is_read_back_as_it_was_declared() -> None:
    spec = {"source": "west", "topicConfigSync": {"interval": "10s"}}
    declared = MirrorLink.model_validate({"metadata": {"name": "dr", "cluster": "east"}, "spec": spec})
    assert to_declared_link("dr", "east", to_link_entry(declared, "id")).spec == declared.spec


def test_a_part_of_a_link_without_fields_is_absent_and_an_empty_one_that_is_kept_means_the_default() -> None:
    taken_away = [Change("topicConfigSync.interval", 10_000, None), Change("topicConfigSync.include", ("a",), None)]
    synced = {"interval": 10_000, "include": ["a"]}
    assert apply_declared_changes({**KEPT.declared, "topicConfigSync": synced}, taken_away) == KEPT.declared
    assert apply_declared_changes({"topicConfigSync": synced}, taken_away[:1]) == {
        "topicConfigSync": {"include": ["a"]}
    }
    empty = LinkEntry("id", "west", {**KEPT.declared, "topicConfigSync": {}})
    assert list_synced_configs(empty) == tuple(sorted(SYNCED_BY_DEFAULT))


def test_a_workspace_that_calls_the_destination_what_another_calls_the_source_is_told() -> None:
    with pytest.raises(UserError, match="link dr of cluster west was declared elsewhere") as raised:
        to_declared_link("dr", "west", KEPT)
    assert "use the same cluster names" in str(raised.value)
