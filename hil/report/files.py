"""The report files of a run: report.html for people, report.json and junit.xml for machines."""

import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gateway.errors import OncewayError
from hil.report.findings import Findings
from hil.report.html import page
from hil.report.junit import junit

JSON, HTML, JUNIT = "report.json", "report.html", "junit.xml"


def write(folder: Path, found: Findings) -> None:
    """Write the reports. Raises OncewayError if the folder cannot be written."""
    texts = {
        JSON: json.dumps(found.to_json(), indent=1) + "\n",
        HTML: page(found),
        JUNIT: junit([found]),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise OncewayError(f"cannot write the report ({error.strerror})", str(folder)) from error


def read_json(path: Path) -> dict[str, Any]:
    """Return a report. Raises OncewayError if it is missing or damaged."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise OncewayError(
            f"cannot read the report ({error.strerror})",
            str(path),
            "To make the report: onceway hil report RUN",
        ) from error
    except ValueError as error:
        raise OncewayError(f"the report is damaged ({error})", str(path)) from error
    if not isinstance(data, dict):
        raise OncewayError("this is not a report", str(path))
    return data


def merge_junit(files: Iterable[Path]) -> str:
    """Return the text of one JUnit file with the test suites of all `files` that exist."""
    root = ElementTree.Element("testsuites", name="onceway hil")
    for path in files:
        if path.exists():
            root.extend(ElementTree.parse(path).getroot())  # noqa: S314 - written by us
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"
