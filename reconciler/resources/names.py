"""What names may look like, said once and quoted by every refusal (Kafka, KIP-37)."""

from __future__ import annotations

import re
from typing import Annotated, Final

from pydantic import AfterValidator

MAX_NAME: Final = 249
"""Longest full name, namespace and topic together (Kafka's limit for a topic)."""

MAX_TIER: Final = 64

_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]+")
_TIER: Final = re.compile(rf"[a-zA-Z0-9.-]{{1,{MAX_TIER}}}")
_PLAIN: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,99}")


def check_topic_name(name: str) -> str:
    """Return `name` if it is a legal topic name. Raises ValueError saying what is legal."""
    if not _TOPIC.fullmatch(name) or name in {".", ".."} or len(name) > MAX_NAME:
        message = f"not a topic name: 1 to {MAX_NAME} of [a-zA-Z0-9._-], and not '.' or '..'"
        raise ValueError(message)
    return name


def check_namespace(namespace: str) -> str:
    """Return `namespace` if every tier of it is legal; the default namespace is the empty one."""
    tiers = namespace.split(":") if namespace else []
    if not all(_TIER.fullmatch(tier) and tier not in {".", ".."} for tier in tiers):
        message = f"not a namespace: tiers of 1 to {MAX_TIER} of [a-zA-Z0-9.-] joined by ':', and not '.' or '..'"
        raise ValueError(message)
    return namespace


def check_full_name(full_name: str) -> str:
    """Return `full_name`, `<namespace>:<topic>` or `<topic>`, if both parts and their length are legal."""
    namespace, _, name = full_name.rpartition(":")
    check_namespace(namespace)
    check_topic_name(name)
    if len(full_name) > MAX_NAME:
        message = f"namespace and topic together are longer than {MAX_NAME} characters"
        raise ValueError(message)
    return full_name


def check_plain_name(name: str) -> str:
    """Return `name` if it can name a cluster, link, policy or workspace."""
    if not _PLAIN.fullmatch(name):
        message = "not a name: a letter or digit, then up to 99 of [a-zA-Z0-9._-]"
        raise ValueError(message)
    return name


TopicName = Annotated[str, AfterValidator(check_topic_name)]
NamespaceName = Annotated[str, AfterValidator(check_namespace)]
FullName = Annotated[str, AfterValidator(check_full_name)]
PlainName = Annotated[str, AfterValidator(check_plain_name)]
