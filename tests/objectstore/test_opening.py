"""How a location becomes a store."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from reconciler.errors import UserError
from reconciler.objectstore.memory import MemoryStore
from reconciler.objectstore.open import open_store
from reconciler.objectstore.settings import StoreSettings


@pytest.mark.parametrize(
    ("url", "resolved"),
    [
        ("file://.reconciler", "file:///w/s/.reconciler"),
        ("file:///abs/x", "file:///abs/x"),
        ("file://../up", "file:///w/up"),
        ("file://a/../b c", "file:///w/s/b c"),
        ("s3://bucket/prefix", "s3://bucket/prefix"),
        ("memory://m", "memory://m"),
    ],
)
def test_a_relative_folder_starts_at_the_workspace(url: str, resolved: str) -> None:
    assert StoreSettings.resolve(url, folder=Path("/w/s")).url == resolved


def test_settings_stay_with_the_location() -> None:
    settings = StoreSettings.resolve("s3://b", folder=Path("/w"), region="eu-1", endpoint="http://e", kms_key_id="k")
    assert (settings.region, settings.endpoint, settings.kms_key_id) == ("eu-1", "http://e", "k")
    assert pickle.loads(pickle.dumps(settings)) == settings  # noqa: S301 - our own bytes
    assert settings.join_prefix("a/b").url == "s3://b/a/b"


def test_a_folder_without_a_name_is_refused() -> None:
    with pytest.raises(UserError):
        StoreSettings.resolve("file://", folder=Path("/w"))


def test_a_folder_whose_name_is_not_utf_8_is_refused_before_anything_is_written_there() -> None:
    with pytest.raises(
        UserError, match=r"'file://.reconciler' is at /w\\udcff/.reconciler, and that name is not UTF-8"
    ):
        StoreSettings.resolve("file://.reconciler", folder=Path("/w\udcff"))


def test_a_file_location_opens_a_directory(tmp_path: Path) -> None:
    store = open_store(StoreSettings(f"file://{tmp_path}/x"))
    store.put("a", b"1")
    assert (tmp_path / "x" / "a").read_bytes() == b"1"
    assert store.url == f"file://{tmp_path}/x"


def test_a_memory_location_is_the_same_store_wherever_it_is_opened() -> None:
    store = MemoryStore("shared-by-name")
    store.put("a", b"1")
    twin = open_store(StoreSettings("memory://shared-by-name"))
    found = twin.get("a")
    assert found is not None


@pytest.mark.parametrize(
    "url", ["file://relative", "s3://B_", "s3:///prefix", "s3://bucket/a//b", "ftp://host/x", "nothing"]
)
def test_what_cannot_be_opened_says_why(url: str) -> None:
    with pytest.raises(UserError) as caught:
        open_store(StoreSettings(url))
    assert url in caught.value.message
    assert caught.value.hint
