"""Findings as JUnit XML, which CI servers read. In: findings. Out: one suite per run, with a case
for the claim, for each planned fault, and for each broken limit.
"""

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable

from hil.judge.checker import Verdict
from hil.report.findings import Findings
from hil.report.text import offender, way

OFFENDERS_SHOWN = 100


NOT_XML = re.compile("[^\\t\\n\\r\\x20-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")
"""Characters that XML 1.0 cannot hold (section 2.2), such as the escapes of a colourful log."""


def junit(runs: Iterable[Findings]) -> str:
    root = ElementTree.Element("testsuites", name="onceway hil")
    for run in runs:
        _suite(root, run)
    ElementTree.indent(root)
    for element in root.iter():
        element.text = _clean(element.text) if element.text else None
        element.attrib.update({name: _clean(value) for name, value in element.attrib.items()})
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _clean(text: str) -> str:
    return NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)


def _suite(root: ElementTree.Element, run: Findings) -> None:
    name = f"{run.title}, seed {run.seed}"
    missing = [fault for fault in run.faults.values() if fault.t is None]
    failed = run.result.verdict is Verdict.FAILS
    errors = len(missing) + (run.result.verdict is Verdict.UNKNOWN)
    failures = failed + len(run.exceeded)
    counts = {
        "tests": str(1 + len(run.faults) + len(run.exceeded)),
        "failures": str(failures),
        "errors": str(errors),
    }
    suite = ElementTree.SubElement(
        root, "testsuite", {"name": name, "time": f"{run.seconds:.3f}", **counts}
    )
    promise = ElementTree.SubElement(
        suite, "testcase", classname=name, name="every publication once", time=f"{run.seconds:.3f}"
    )
    if run.result.verdict is not Verdict.HOLDS:
        tag = "failure" if failed else "error"
        found = ElementTree.SubElement(
            promise, tag, message="; ".join(run.result.reasons), type=run.result.verdict
        )
        shown = run.result.offenders[:OFFENDERS_SHOWN]
        ways = [line for one in shown for line in (offender(one), *way(one, run.result.start))]
        words = [line for lines in run.result.last_words.values() for line in lines]
        found.text = "\n".join([*ways, *words])
    for limit in run.exceeded:
        case = ElementTree.SubElement(
            suite, "testcase", classname=name, name=limit.partition(" ")[0], time="0"
        )
        ElementTree.SubElement(case, "failure", message=limit, type="limit")
    for fault in run.faults.values():
        case = ElementTree.SubElement(
            suite, "testcase", classname=name, name=f"{fault.id} happened", time="0"
        )
        if fault.t is None:
            ElementTree.SubElement(
                case,
                "error",
                message=f"planned at {fault.place}, but did not happen",
                type="unknown",
            )
        else:
            ElementTree.SubElement(case, "system-out").text = fault.evidence
