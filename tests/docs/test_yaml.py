"""Every manifest on our pages is one the tool accepts."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from reconciler.resources.inventory import MANIFEST_KINDS
from tests.docs import markdown

BLOCKS = [block for block in markdown.blocks("yaml") if "apiVersion: reconciler/v1" in block.text]


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_manifests_on_a_page_are_valid(block: markdown.Block) -> None:
    for document in yaml.safe_load_all(block.text):
        if not document.pop("$delete", False):
            MANIFEST_KINDS[document["kind"]].model_validate(document)


@pytest.mark.parametrize("block", list(markdown.blocks("yaml")), ids=str)
def test_yaml_on_a_page_is_yaml(block: markdown.Block) -> None:
    assert all(document is None or isinstance(document, dict) for document in yaml.safe_load_all(block.text))


@pytest.mark.parametrize("file", sorted((markdown.ROOT / ".github").rglob("*.yml")), ids=lambda file: file.name)
def test_what_github_reads_is_yaml(file: Path) -> None:
    assert isinstance(yaml.safe_load(file.read_text(encoding="utf-8")), dict)
