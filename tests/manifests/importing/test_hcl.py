"""Expressions of Terraform: worked out as far as the files allow, and never further."""

from __future__ import annotations

import time
from typing import Any

import pytest

from reconciler.manifests.importing.hcl.modules import Module
from reconciler.manifests.importing.hcl.parsing import Block, parse_hcl
from reconciler.manifests.importing.hcl.values import UnresolvedError

AROUND = """
variable "prefix" { default = "shop" }
variable "unset" {}
variable "object" { default = { a = { b = [1, 2, { c = "deep" }] } } }
locals {
  day    = 24 * 60 * 60 * 1000
  names  = ["orders", "clicks"]
  topics = { orders = { partitions = 12 }, clicks = { partitions = 3, tags = ["x", "y"] } }
  loop   = local.pool
  pool   = local.loop
  big    = "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
}
resource "kafka_topic" "one" { name = "one-${var.prefix}" }
resource "kafka_topic" "each" {
  for_each = local.topics
  name     = each.key
}
resource "kafka_topic" "counted" {
  count = 2
  name  = "counted-${count.index}"
}
"""


def read_file(name: str) -> str:
    return {"topics.yaml": "orders: {partitions: 3}\n"}[name]


def block_of(text: str) -> Block:
    parsed = parse_hcl(text.encode(), "main.tf")
    assert isinstance(parsed, Block), parsed
    return parsed


def value_of(expression: str) -> Any:
    module = Module(list(block_of(AROUND).blocks), {}, read_file)
    return module.evaluation.value(block_of(f"x = {expression}\n").attributes["x"].expression)


KNOWN = {
    "12": 12,
    "-1": -1,
    "1.5": 1.5,
    "1e3": 1000,
    "true": True,
    "null": None,
    '"plain"': "plain",
    r'"a\tb\"c\\dé"': 'a\tb"c\\dé',
    '"$${kept} %%{too}"': "${kept} %{too}",
    '"${var.prefix}.orders"': "shop.orders",
    '"${7}"': 7,
    '"n${7}"': "n7",
    '"${true}-${1.0}"': "true-1",
    "7 * local.day": 604_800_000,
    "10 / 4": 2.5,
    "10 / 5": 2,
    "-7 % 4 + 1": 2,
    "(1 + 2) * 3": 9,
    '1 < 2 && !("a" == "b")': True,
    "false || 3 >= 3": True,
    '1 > 2 ? var.unset : "kept"': "kept",
    "[1, 2, 3][1]": 2,
    "local.names.1": "clicks",
    'local.topics["orders"].partitions': 12,
    "var.object.a.b[2].c": "deep",
    "local.topics.clicks.tags[*]": ["x", "y"],
    "values(local.topics)[*].partitions": [3, 12],
    "[for name in local.names : upper(name)]": ["ORDERS", "CLICKS"],
    '[for i, name in local.names : i if name != "orders"]': [1],
    "{for name, topic in local.topics : name => topic.partitions}": {"orders": 12, "clicks": 3},
    '{"retention.ms" = 1, plain = 2, (var.prefix) = 3}': {"retention.ms": 1, "plain": 2, "shop": 3},
    "merge({a = 1, b = 1}, {b = 2}, null)": {"a": 1, "b": 2},
    'toset(["b", "a", "b"])': ["a", "b"],
    'lookup(local.topics.orders, "tags", [])': [],
    'try(local.topics.orders.tags, "none")': "none",
    "can(local.topics.orders.tags)": False,
    'format("%s-%03d-%v%%", "a", 7, true)': "a-007-true%",
    'join(",", ["delete", "compact"])': "delete,compact",
    'split(".", "a.b")': ["a", "b"],
    'replace("a_b", "_", "-")': "a-b",
    "flatten([[1], [2, [3]]])": [1, 2, 3],
    'setproduct(["a", "b"], [1, 2])': [["a", 1], ["a", 2], ["b", 1], ["b", 2]],
    'zipmap(["a", "b"], [1, 2])': {"a": 1, "b": 2},
    "range(3)": [0, 1, 2],
    'concat(local.names, [["more"]]...)': ["orders", "clicks", "more"],
    'coalesce("", null, "x")': "x",
    'jsondecode("{\\"a\\": [1]}")': {"a": [1]},
    'yamldecode(file("topics.yaml")).orders.partitions': 3,
    "kafka_topic.one.name": "one-shop",
    "kafka_topic.one.id": "one-shop",
    'kafka_topic.each["clicks"].name': "clicks",
    "kafka_topic.counted[1].name": "counted-1",
    "[for t in kafka_topic.each : t.name]": ["orders", "clicks"],
    "<<-EOT\n    two\n    lines\n  EOT\n": "two\nlines\n",
}
UNKNOWN = {
    "var.unset": "the variable unset has no value in these files",
    "var.absent": "no variable absent is declared",
    "local.absent": "no local absent is declared",
    "local.loop": "is made of itself",
    "data.http.x.body": "data is known to Terraform alone",
    "aws_msk_cluster.x.brokers": "aws_msk_cluster is known to Terraform alone",
    "kafka_topic.absent.name": "no kafka_topic.absent is declared",
    "kafka_topic.one.partitions": "is known to Terraform alone",
    'templatefile("x", {})': "the function templatefile is not known here",
    "timestamp()": "the function timestamp is not known here",
    "lower(1)": "is called with what it does not take",
    'local.topics["absent"]': "there is no 'absent' in it",
    "local.names[7]": "there is no 7 in it",
    '"${local.names}!"': "a list or a mapping stands where a text belongs",
    '"a" + 1': "a number is expected",
    "1 / 0": "divides by nothing",
    '"%{ if true }x%{ endif }"': "a template with %{ } is not worked out here",
    'yamldecode("a: [")': "not one document of YAML",
    "range(1000000000)": "is called with what it does not take",
    "[for a in range(99999) : [for b in range(99999) : b]]": "it takes too long to work out",
    'join("", [for i in range(99999) : local.big])': "it comes out too big",
    "pow(9, 999999)": "is called with what it does not take",
}


@pytest.mark.parametrize("expression", KNOWN)
def test_an_expression_has_the_value_that_terraform_gives_it(expression: str) -> None:
    assert value_of(expression) == KNOWN[expression]


@pytest.mark.parametrize("expression", UNKNOWN)
def test_what_only_terraform_knows_is_told_and_never_guessed(expression: str) -> None:
    with pytest.raises(UnresolvedError) as raised:
        value_of(expression)
    assert UNKNOWN[expression] in raised.value.why


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            'resource "kafka_topic" "x" {\n  name = \n}\n',
            "main.tf:2:10: is not HCL: something is missing at the end of the line",
        ),
        ('resource "kafka_topic" "x" {\n', "main.tf:2"),
        ("a = [1, 2\n", "main.tf:"),
        ('a = "unfinished\n', "main.tf:"),
        ("\x00", "main.tf:1:1: is not HCL"),
    ],
)
def test_broken_declarations_are_told_with_their_line(text: str, said: str) -> None:
    parsed = parse_hcl(text.encode(), "main.tf")
    assert str(parsed).startswith(said)
    assert "Check it with: terraform validate" in str(parsed)


def test_declarations_that_are_no_text_are_told() -> None:
    assert "is not UTF-8" in str(parse_hcl(b"a = \xff\xfe", "main.tf"))


def test_nesting_without_end_costs_neither_time_nor_the_stack() -> None:
    began = time.monotonic()
    for text in (
        "a = " + "[" * 5_000 + "]" * 5_000,
        "a = " + "(" * 5_000 + "1" + ")" * 5_000,
        "a { " * 500 + "}" * 500,
    ):
        parsed = parse_hcl(text.encode(), "main.tf")
        if isinstance(parsed, Block) and "a" in parsed.attributes:
            with pytest.raises((UnresolvedError, RecursionError)):
                Module([], {}, read_file).evaluation.value(parsed.attributes["a"].expression)
    assert time.monotonic() - began < 20
