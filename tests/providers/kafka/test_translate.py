"""Descriptions of configs are read as the library reads them, whatever brokers say; names by what threads learn."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.protocol.admin import DescribeConfigsResponse
from kafka.protocol.frame import KafkaBytes

from reconciler.providers.kafka.connection import VERSION, DescribeAllConfigsRequest
from reconciler.providers.kafka.provider import KafkaProvider
from reconciler.providers.kafka.translate import ConfigSeen
from reconciler.providers.protocol import Edge
from reconciler.resources.address import address_of
from reconciler.resources.cluster import Cluster

TEXTS = st.text(max_size=5) | st.text(min_size=120, max_size=300)
SMALL = st.integers(-1, 9)


def row(of: str, **fields: Any) -> st.SearchStrategy[Any]:
    """Return strategies for a structure of the answer, by its name there."""
    return st.builds(getattr(DescribeConfigsResponse, of, None) or nested(of), **fields)


def nested(of: str) -> Any:
    result = DescribeConfigsResponse.DescribeConfigsResult
    entry = result.DescribeConfigsResourceResult
    return {"DescribeConfigsResourceResult": entry, "DescribeConfigsSynonym": entry.DescribeConfigsSynonym}[of]


synonyms = row("DescribeConfigsSynonym", name=TEXTS, value=st.none() | TEXTS, source=SMALL)
entries = row(
    "DescribeConfigsResourceResult",
    name=TEXTS,
    value=st.none() | TEXTS,
    read_only=st.booleans(),
    config_source=SMALL,
    is_sensitive=st.booleans(),
    synonyms=st.lists(synonyms, max_size=2),
    config_type=SMALL,
    documentation=st.none() | TEXTS,
)
results = row(
    "DescribeConfigsResult",
    error_code=SMALL,
    error_message=st.none() | TEXTS,
    resource_type=SMALL,
    resource_name=TEXTS,
    configs=st.lists(entries, max_size=4),
)
# Few different ones, many times: most topics of a cluster are alike, or nearly.
answers = st.lists(results, min_size=1, max_size=3).flatmap(lambda some: st.lists(st.sampled_from(some), max_size=8))


def on_the_wire(answer: Any) -> KafkaBytes:
    encoded = answer.encode(version=VERSION)
    came = KafkaBytes(len(encoded))
    came.write(encoded)
    came.seek(0)
    return came


def reader() -> Any:
    request = DescribeAllConfigsRequest([])
    request.API_VERSION = VERSION
    request.with_header()
    return request.header.get_response_class()


@pytest.mark.thorough
@given(answers, st.integers(0, 1_000))
@settings(max_examples=60)
def test_every_answer_is_read_as_the_library_reads_it(some: list[Any], throttled: int) -> None:
    came = on_the_wire(DescribeConfigsResponse(throttle_time_ms=throttled, results=some))
    theirs = DescribeConfigsResponse.decode(bytes(came), version=VERSION)
    ours = reader().decode(came)
    assert ours.throttle_time_ms == theirs.throttle_time_ms
    assert [(each.resource_name, each.error_code, each.error_message, each.configs) for each in ours.results] == [
        (
            each.resource_name,
            each.error_code,
            each.error_message,
            {
                one.name: ConfigSeen(one.value, one.config_source, one.read_only, one.is_sensitive, one.config_type)
                for one in each.configs
            },
        )
        for each in theirs.results
    ]


def test_what_brokers_of_later_versions_add_is_passed_over() -> None:
    plain = [
        DescribeConfigsResponse.DescribeConfigsResult(
            error_code=0, error_message=None, resource_type=2, resource_name=name, configs=[]
        )
        for name in ("first", "second")
    ]
    sent = bytes(on_the_wire(DescribeConfigsResponse(throttle_time_ms=0, results=plain)))
    tagged = sent.replace(b"first\x01\x00", b"first\x01\x01\x05\x03abc")
    assert tagged != sent
    came = KafkaBytes(len(tagged))
    came.write(tagged)
    came.seek(0)
    assert [each.resource_name for each in reader().decode(came).results] == ["first", "second"]


@given(answers.filter(bool), st.data())
@settings(max_examples=40)
def test_an_answer_that_is_cut_off_is_refused(some: list[Any], data: st.DataObject) -> None:
    whole = bytes(on_the_wire(DescribeConfigsResponse(throttle_time_ms=0, results=some)))
    kept = data.draw(st.integers(0, len(whole) - 2))
    came = KafkaBytes(kept)
    came.write(whole[:kept])
    came.seek(0)
    with pytest.raises(ValueError):  # noqa: PT011 - what the library takes for an answer that it cannot read
        reader().decode(came)


@pytest.fixture
def busy() -> Iterator[None]:
    """Let threads take turns all the time."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("busy")
def test_what_threads_learn_at_once_is_known_afterwards() -> None:
    spec = {"provider": "kafka", "kafka": {"bootstrapServers": ["localhost:1"]}}
    declared = Cluster.model_validate({"metadata": {"name": "live"}, "spec": spec})
    names = [f"n{number}" for number in range(8)]
    with ThreadPoolExecutor(len(names)) as threads:
        for _ in range(300):
            provider, start = KafkaProvider(declared, Edge(Path(), {}, str, int)), Barrier(len(names))

            def learn(name: str, provider: KafkaProvider = provider, start: Barrier = start) -> None:
                start.wait()
                provider.learn([address_of("namespace", "live", name)])

            list(threads.map(learn, names))
            assert sorted(provider._naming.prefixes.values()) == names
