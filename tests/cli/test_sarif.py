"""JUnit XML and SARIF: what pages that collect results are given, and that nothing a user named breaks them."""

from __future__ import annotations

import dataclasses
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree as ET

import jsonschema
import pytest

from reconciler.cli.json import sarif as sarif_module
from reconciler.cli.json.base import format_document
from reconciler.cli.json.checks_json import DRIFT
from reconciler.cli.json.sarif import MOST_RESULTS, SarifDocument
from reconciler.cli.text.drift_text import format_drift_comment, format_drift_junit, list_drift_remarks
from reconciler.cli.text.remarks import format_junit, list_plan_remarks
from reconciler.operations.drift import DriftItem, DriftResult
from reconciler.operations.plan import PlanHeader, PlanResult
from reconciler.operations.steps.invocation import Select
from reconciler.planning.plan import Plan, PlanFinding
from reconciler.resources.address import Address
from tests.cli import sample_results as sample_plans
from tests.cli.test_foreign_text import HOSTILE

SCHEMA = jsonschema.Draft202012Validator(
    json.loads((Path(__file__).resolve().parents[2] / "schemas" / "sarif.json").read_bytes())
)
NOT_IN_XML = (*HOSTILE, "\x00", "\ufffe", "\uffff", "]]>", "<!--", "&amp;", "\x0b\x0c", "\u2028", "a\r\nb", "😀")


def tree(body: bytes) -> ET.Element:
    return ET.fromstring(body)  # noqa: S314 - our own output


def results(plan: Plan, prefix: str = "") -> list[dict[str, Any]]:
    printed = json.loads(format_document(SarifDocument.from_remarks(list_plan_remarks(plan), prefix)))
    SCHEMA.validate(printed)
    found: list[dict[str, Any]] = printed["runs"][0]["results"]
    return found


def hostile(name: str) -> Plan:
    finding = PlanFinding(Address(name), f"{name}:7", name, name)
    (first, *_) = sample_plans.dangerous()
    return dataclasses.replace(
        sample_plans.everything(),
        workspace=name,
        environment=name,
        actions=(dataclasses.replace(first, address=Address(f"topic/west/{name}")),),
        errors=(finding,),
        warnings=(finding,),
    )


def test_every_action_is_a_test_case_and_only_what_is_blocked_fails() -> None:
    plan = sample_plans.everything()
    (suite,) = tree(format_junit(list_plan_remarks(plan)))
    cases = suite.findall("testcase")
    failed = [case.get("name") for case in cases if case.find("failure") is not None]
    assert failed == [action.id for action in plan.blocked]
    assert {action.id for action in plan.actions} <= {case.get("name") for case in cases}
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == (str(len(cases)), "2", "1")
    assert "--allow delete:topic/west/shop:eu:orders" in (suite.findtext("testcase/failure") or "")
    placed = suite.find("testcase[@name='create:topic/west/shop:eu:refunds']")
    assert placed is not None
    assert (placed.get("file"), placed.get("line")) == ("manifests/topics.yaml", "88")


def test_errors_of_a_plan_fail() -> None:
    (suite,) = tree(format_junit(list_plan_remarks(sample_plans.refused())))
    assert [case.find("failure") is not None for case in suite] == [True, True]


def test_an_empty_plan_is_one_case_that_passes() -> None:
    (suite,) = tree(format_junit(list_plan_remarks(sample_plans.empty())))
    assert (suite.get("tests"), len(suite), suite.find("testcase/failure")) == ("1", 1, None)


@pytest.mark.parametrize("name", NOT_IN_XML)
def test_a_hostile_name_leaves_the_xml_well_formed_and_stays_one_name(name: str) -> None:
    plan = hostile(name)
    (suite,) = tree(format_junit(list_plan_remarks(plan)))
    plain = tree(format_junit(list_plan_remarks(hostile("plain"))))[0]
    assert [case.tag for case in suite.iter()] == [case.tag for case in plain.iter()]
    assert all("\n" not in (case.get("name") or "") for case in suite)


def test_a_blocked_action_is_an_error_danger_and_drift_are_warnings_and_ordinary_changes_are_left_out() -> None:
    found = results(sample_plans.everything())
    levels = [each["level"] for each in found]
    assert levels == sorted(levels, key=["error", "warning"].index)
    rules = {each["locations"][0]["logicalLocations"][0]["fullyQualifiedName"]: each["ruleId"] for each in found}
    assert rules["topic/west/shop:eu:orders"] == "blocked-protected"
    assert rules["topic/west/shop:eu:logs"] == "blocked-data-loss"
    assert rules["topic/west/shop:eu:clicks"] == "danger-partitions-increase"
    assert "topic/west/shop:eu:payments" not in rules
    assert "drift" in {each["ruleId"] for each in found}
    assert Counter(each["level"] for each in found)["error"] == 2


def test_a_result_stands_at_the_file_and_line_that_declare_it_and_what_nothing_declares_at_the_workspace() -> None:
    plan = sample_plans.everything()
    plan = dataclasses.replace(
        plan,
        actions=tuple(
            dataclasses.replace(each, source="manifests/topics.yaml:88")
            if each.address == "topic/west/shop:eu:clicks"
            else each
            for each in plan.actions
        ),
    )
    found = results(plan, "streams/shop/")
    places = {
        each["locations"][0]["logicalLocations"][0]["fullyQualifiedName"]: each["locations"][0]["physicalLocation"]
        for each in found
    }
    declared = places["topic/west/shop:eu:clicks"]
    assert declared["artifactLocation"]["uri"] == "streams/shop/manifests/topics.yaml"
    assert declared["region"]["startLine"] == 88
    assert places["topic/west/shop:eu:orders"]["artifactLocation"]["uri"] == "streams/shop/reconciler.yaml"


def test_a_file_name_is_an_uri_that_leads_back_to_it() -> None:
    finding = PlanFinding(None, "manifests/ä b#c?%20.yaml:3:9", "no", "Mend it.")
    (each,) = results(dataclasses.replace(sample_plans.refused(), errors=(finding,)))
    place = each["locations"][0]["physicalLocation"]
    assert unquote(place["artifactLocation"]["uri"]) == "manifests/ä b#c?%20.yaml"
    assert place["artifactLocation"]["uri"].isascii()
    assert place["region"]["startLine"] == 3


def test_a_fingerprint_is_the_same_run_after_run_and_nobody_elses() -> None:
    plan = sample_plans.everything()
    first = [each["partialFingerprints"]["reconciler/v1"] for each in results(plan)]
    moved = dataclasses.replace(
        plan,
        git_commit="another",
        actions=tuple(dataclasses.replace(action, source="elsewhere.yaml:1") for action in reversed(plan.actions)),
    )
    assert sorted(each["partialFingerprints"]["reconciler/v1"] for each in results(moved)) == sorted(first)
    assert len(set(first)) == len(first)


def test_an_empty_plan_has_a_run_without_results_so_that_what_stood_there_is_closed() -> None:
    assert results(sample_plans.empty()) == []


@pytest.mark.parametrize("name", [name for name in NOT_IN_XML if name])
def test_a_hostile_name_is_text_in_a_result_and_no_link(name: str) -> None:
    found = results(hostile(name))
    assert len(found) > 2
    for each in found:
        text = each["message"]["text"]
        assert not re.search(r"(?<!\\)[\[\]]", text)
        assert not re.search(r"(?<!\{)\{\d+\}(?!\})", text)
        assert text.isprintable()


def test_more_results_than_a_file_may_hold_leave_out_the_mildest_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST_RESULTS == 25_000
    monkeypatch.setattr(sarif_module, "MOST_RESULTS", 1)
    printed = json.loads(format_document(SarifDocument.from_remarks(list_plan_remarks(sample_plans.many(300)))))
    SCHEMA.validate(printed)
    (run,) = printed["runs"]
    assert len(run["results"]) == 1
    assert run["results"][0]["level"] == "error"
    (notification,) = run["invocations"][0]["toolExecutionNotifications"]
    assert "3 results not shown" in notification["message"]["text"]


def test_the_same_plan_gives_the_same_bytes() -> None:
    plan = sample_plans.everything()
    assert format_junit(list_plan_remarks(plan)) == format_junit(list_plan_remarks(plan))
    assert format_document(SarifDocument.from_remarks(list_plan_remarks(plan))) == format_document(
        SarifDocument.from_remarks(list_plan_remarks(plan))
    )


def drifted(count: int, name: str = "t") -> DriftResult:
    """Return a drift of `count` fields, one that is left as it is, and one that fails nothing."""
    fails = tuple(
        DriftItem(
            "drift",
            Address(f"topic/west/{name}-{number:06}"),
            "moved",
            f"sha256:{number}",
            path="configs.retention.ms",
            recorded="604800000",
            observed="86400000",
        )
        for number in range(count)
    )
    ignored = DriftItem("drift", Address("topic/west/kept"), "moved", "sha256:i", path="partitions", ignored="OPS-13")
    other = DriftItem("unmanaged", Address(f"topic/west/{name}"), "exists, but no file declares it", "sha256:u")
    plan = dataclasses.replace(sample_plans.empty(), actions=sample_plans.ordinary())
    planned = PlanResult(plan, PlanHeader(1, 1, 0.1, 7, None), Select(), Path())
    return DriftResult(planned, (*fails, ignored, other), fails, None)


def test_drift_fails_where_its_exit_code_does_and_what_is_left_as_it_is_is_skipped() -> None:
    (suite,) = tree(format_drift_junit(drifted(2)))
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("4", "2", "1")
    printed = json.loads(format_document(SarifDocument.from_remarks(list_drift_remarks(drifted(2)))))
    SCHEMA.validate(printed)
    assert [each["level"] for each in printed["runs"][0]["results"]] == ["error", "error"]
    assert printed["runs"][0]["results"][0]["partialFingerprints"]["reconciler/v1"] == "sha256:0"


@pytest.mark.parametrize("name", NOT_IN_XML)
def test_a_hostile_name_breaks_no_report_of_drift(name: str) -> None:
    tree(format_drift_junit(drifted(1, name)))
    SCHEMA.validate(json.loads(format_document(SarifDocument.from_remarks(list_drift_remarks(drifted(1, name))))))
    format_drift_comment(drifted(1, name)).encode()


def test_many_findings_as_json_are_not_held_against_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[object] = []
    monkeypatch.setattr(DriftItem, "__eq__", lambda one, other: compared.append(one) or one is other)
    row = DRIFT.build_row(drifted(100))
    assert [finding["fails"] for finding in row["findings"]] == [True] * 100 + [False] * 2
    assert compared == []


@pytest.mark.parametrize("count", [0, 1, 500, 1_500, 20_000])
def test_a_comment_about_drift_fits_and_names_what_fails_for_as_long_as_it_does(count: int) -> None:
    comment = format_drift_comment(drifted(count))
    assert len(comment.encode()) <= 50_000
    named = len(set(re.findall(r"t-\d{6}", comment)))
    told = re.search(r"\*\*([\d,]+) more rows? of danger do not fit", comment)
    assert named + (int(told[1].replace(",", "")) if told else 0) == count


def test_a_comment_about_drift_counts_also_errors_that_do_not_fit() -> None:
    errors = tuple(
        PlanFinding(Address(f"topic/west/e-{number:06}"), None, "x" * 100, "Look.") for number in range(1_000)
    )
    planned = drifted(0).planned
    planned = dataclasses.replace(planned, plan=dataclasses.replace(planned.plan, errors=errors))
    comment = format_drift_comment(DriftResult(planned, (), (), None))
    named = len(set(re.findall(r"e-\d{6}", comment)))
    told = re.search(r"\*\*([\d,]+) more rows of danger do not fit", comment)
    assert named + (int(told[1].replace(",", "")) if told else 0) == 1_000
