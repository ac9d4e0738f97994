"""The guides' code runs as it stands, in a workspace of a reader, and prints what the guides say."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from reconciler.objectstore.directory import DirectoryStore
from tests.embedded.samples import NOW, cluster_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.thorough]

GUIDES = Path(__file__).parents[2] / "docs" / "guides"
BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TOPIC = "shop:eu:orders"
WORKSPACE = "apiVersion: reconciler/v1\nkind: Workspace\nmetadata: {name: shop}\n"
WEST = """\
apiVersion: reconciler/v1
kind: Cluster
metadata: {name: west}
spec: {embedded: {root: "file://.clusters/west"}}
"""


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "reconciler.yaml").write_text(WORKSPACE)
    (tmp_path / "manifests").mkdir()
    (tmp_path / "manifests" / "west.yaml").write_text(WEST)
    west = cluster_in(DirectoryStore(tmp_path / ".clusters" / "west"), now_ms=NOW)
    west.create_namespace("shop:eu")
    west.create_topic(TOPIC, partitions=3)
    west.create_topic("shop:eu:paid", partitions=3)
    with west.producer() as producer:
        producer.send(TOPIC, "one", key="a", partition=2)
        producer.send(TOPIC, "", key="a", partition=2)
        producer.send(TOPIC, None, key="a", partition=2)
        producer.send(TOPIC, "two", key="b", partition=0)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(guide: str) -> dict[str, Any]:
    """Run the programs of a guide one after the other, compare what they print, and return their names."""
    names: dict[str, Any] = {}
    printed: str | None = None
    compared = 0
    for language, text in BLOCK.findall((GUIDES / guide).read_text(encoding="utf-8")):
        if language == "python":
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile(text, guide, "exec"), names)  # noqa: S102 - the page is ours
            printed = out.getvalue()
        elif printed is not None:
            assert printed == text
            printed, compared = None, compared + 1
    assert compared == 2
    return names


@pytest.mark.usefixtures("workspace")
def test_the_guide_does_what_it_says(spark: SparkSession) -> None:
    names = run("data-frames.md")
    assert names["spark"] is spark
    assert (names["latest"][0].timestamp() * 1000, names["late"]) == (NOW, 4)


@pytest.mark.usefixtures("workspace", "spark")
def test_the_guide_about_streams_does_what_it_says() -> None:
    run("topic-streams.md")


@pytest.mark.usefixtures("workspace")
def test_a_pattern_finds_topics_of_the_workspace(spark: SparkSession) -> None:
    from reconciler import Workspace, register_topics  # noqa: PLC0415 - as the guide does

    register_topics(spark, Workspace.open(environ={}))
    frame = spark.read.format("topic-log").options(cluster="west", subscribePattern="shop:.*").load()
    assert [tuple(row) for row in frame.groupBy("topic").count().collect()] == [(TOPIC, 4)]


@pytest.mark.usefixtures("workspace")
@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"cluster": "west"}, "topic-log needs the option topic"),
        ({"topic": TOPIC}, "topic-log needs the option cluster"),
        ({"cluster": "west", "topics": TOPIC}, "topic-log has no option topics. Did you mean topic?"),
        ({"cluster": "north", "topic": TOPIC}, "there is no cluster 'north' in this workspace"),
        (
            {"cluster": "west", "topic": "shop:eu:order"},
            "topic shop:eu:order does not exist. Did you mean shop:eu:orders?",
        ),
    ],
)
def test_options_that_name_nothing_are_refused(spark: SparkSession, options: dict[str, str], problem: str) -> None:
    from pyspark.errors import AnalysisException  # noqa: PLC0415 - beside its only use

    from reconciler import Workspace, register_topics  # noqa: PLC0415 - as the guide does

    register_topics(spark, Workspace.open(environ={}))
    with pytest.raises(AnalysisException, match=re.escape(problem)):
        spark.read.format("topic-log").options(**options).load().count()
