"""The notes of a release come out of the changelog, and a tag that does not fit is refused."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

FILE = Path(__file__).resolve().parents[2] / ".ci" / "release.py"
_SPEC = importlib.util.spec_from_file_location("release", FILE)
assert _SPEC is not None
assert _SPEC.loader is not None
release = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(release)

PACKAGE = '__version__ = "1.2.0"\n'
CHANGELOG = """\
# Changelog

## [Unreleased]

- Not yet.

## [1.2.0] - 2027-01-31

### Plans

- See [facts](docs/facts.md), [below](#plans) and [elsewhere](https://example.com/x).

## [1.1.0] - 2027-01-01

- Before.
"""


def test_notes_are_the_section_of_the_tag_with_links_that_work_outside_of_the_repository() -> None:
    assert release.notes("v1.2.0", PACKAGE, CHANGELOG) == (
        "### Plans\n\n- See [facts](https://github.com/stream-reconciler/reconciler/blob/v1.2.0/docs/facts.md), "
        "[below](#plans) and [elsewhere](https://example.com/x).\n"
    )


def test_the_oldest_section_ends_with_the_file() -> None:
    assert release.notes("v1.1.0", '__version__ = "1.1.0"', CHANGELOG) == "- Before.\n"


@pytest.mark.parametrize(
    ("tag", "package", "changelog", "said"),
    [
        ("v1.3.0", PACKAGE, CHANGELOG, "the tag is v1.3.0, and reconciler.__version__ is 1.2.0"),
        ("1.2.0", PACKAGE, CHANGELOG, "tag v1.2.0, or change it"),
        ("v1.2.0", "", CHANGELOG, "reconciler.__version__ is missing"),
        ("v1.2.0", PACKAGE, CHANGELOG.replace("## [1.2.0]", "## [1.2.1]"), "has no section for 1.2.0"),
        ("v1.2.0", PACKAGE, CHANGELOG.replace(" - 2027-01-31", ""), "has no date for 1.2.0"),
        ("v1.1.0", '__version__ = "1.1.0"', CHANGELOG.replace("- Before.", ""), "says nothing about 1.1.0"),
    ],
)
def test_a_tree_that_does_not_fit_its_tag_is_refused(tag: str, package: str, changelog: str, said: str) -> None:
    with pytest.raises(release.UnfitError, match=said.replace(".", r"\.")):
        release.notes(tag, package, changelog)
