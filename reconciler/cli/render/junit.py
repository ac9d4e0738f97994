"""JUnit XML, as pipelines read it: one test case a remark, what somebody has to act on is a failure.

XML 1.0 has no way to write most control characters, not even escaped: `visible` writes them out as text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from reconciler.foreign import visible, without_commands

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reconciler.cli.render.remarks import Remark, Remarks


def junit(remarks: Remarks) -> bytes:
    """Return the document. The same remarks give the same bytes: it holds no time and no host."""
    name = f"reconciler {remarks.command}"
    suite_name = f"{remarks.workspace} ({remarks.environment})" if remarks.environment else remarks.workspace
    cases = remarks.rows
    counts = {
        "tests": str(max(1, len(cases))),
        "failures": str(sum(map(_fails, cases))),
        "errors": "0",
        "skipped": str(sum(each.is_skipped for each in cases)),
    }
    root = Element("testsuites", {"name": name, **counts})
    suite = SubElement(root, "testsuite", {"name": visible(f"{name}: {suite_name}"), **counts})
    for each in cases:
        _case(suite, each)
    if not cases:
        # A report without a single case is an error to many who read it.
        SubElement(suite, "testcase", {"classname": remarks.command, "name": "nothing to tell"})
    indent(root)
    text: str = tostring(root, encoding="utf-8", xml_declaration=True).decode()
    return without_commands(text).encode() + b"\n"


def _case(suite: Element, remark: Remark) -> None:
    file, _, line = (remark.source or "").rpartition(":")
    place = {"file": visible(file), "line": visible(line)} if file else {}
    case = SubElement(suite, "testcase", {"classname": visible(remark.rule), "name": visible(remark.name), **place})
    said = "\n".join(_said(remark))
    if remark.is_skipped:
        SubElement(case, "skipped", {"message": visible(remark.message)})
    elif _fails(remark):
        failure = SubElement(case, "failure", {"message": visible(remark.message), "type": visible(remark.rule)})
        failure.text = said
    else:
        SubElement(case, "system-out").text = said


def _fails(remark: Remark) -> bool:
    return remark.level == "error" and not remark.is_skipped


def _said(remark: Remark) -> Sequence[str]:
    parts = (remark.message, f"hint: {remark.hint}" if remark.hint else "", remark.source or "")
    return [visible(part) for part in parts if part]
