"""Spark, Java and Python workers wrap errors in each other. The ingest reports the innermost
message.
"""

import os
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("pyspark")

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark import SparkContext
from pyspark.errors import PySparkException, PySparkRuntimeError, StreamingQueryException

from gateway.errors import OncewayError
from gateway.ingest.delta.causes import cause_of, explained, full_disks, is_java_gone

JAVA = "org.apache.spark.SparkException: "
AT = "\n\tat org.apache.spark.Some.call(Some.scala:416)\n"
PROXY = (
    "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception:"
    " [FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred in the user provided function in"
    " foreach batch sink. Reason: An exception was raised by the Python Proxy. Return Message:"
    " Traceback (most recent call last):\n"
    '  File "clientserver.py", line 644, in _call_proxy\n    return_value = getattr(self)\n'
)
TASK = (
    f": {JAVA}Job aborted due to stage failure: Task 0 in stage 7.0 failed 1 times, most recent"
    " failure: Lost task 0.0 in stage 7.0 (TID 9) (10.0.0.7 executor 1): "
)
WORKER = "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"


def stacked(text: str) -> Exception:
    """Return the exception that Spark's Python API raises for an error with this text."""
    return StreamingQueryException(text)


@pytest.mark.parametrize(
    ("text", "reason", "advice"),
    [
        (
            f"{PROXY}py4j.protocol.Py4JJavaError: An error occurred while calling o675.commit.\n"
            ": org.apache.hadoop.fs.FSError: java.io.IOException: No space left on device"
            f"{AT}Caused by: java.io.IOException: No space left on device{AT}",
            "No space left on device",
            "Make room",
        ),
        (
            f"{PROXY}OSError: [Errno 28] No space left on device: '/srv/lake/publications/part-1'",
            "[Errno 28] No space left on device: '/srv/lake/publications/part-1'",
            "Make room",
        ),
        (
            f"An error occurred while calling o1.collect.\n{TASK}java.io.FileNotFoundException:"
            " /tmp/blockmgr-7a3c/0c/temp_shuffle_93 (No such file or directory)"
            f"{AT}\nDriver stacktrace:{AT}",
            "/tmp/blockmgr-7a3c/0c/temp_shuffle_93 (No such file or directory)",
            "systemd-tmpfiles",
        ),
        (
            "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Python worker"
            f" failed to connect back.\nCaused by: {JAVA}Python worker failed to connect back.{AT}",
            "Python worker failed to connect back.",
            "very busy",
        ),
        (
            f"An error occurred while calling o1.collect.\n{TASK}java.io.IOException: No space left"
            f" on device: /tmp/blockmgr-7a3c/0c/temp_shuffle_93{AT}\nDriver stacktrace:{AT}",
            "No space left on device: /tmp/blockmgr-7a3c/0c/temp_shuffle_93",
            "Make room",
        ),
        (
            f"{PROXY}gateway.errors.OncewayError: site/0a1b2c3d: batch 7 comes next. Start again",
            "site/0a1b2c3d: batch 7 comes next. Start again",
            None,
        ),
        (
            f"An error occurred while calling o1.collect.\n{TASK}{WORKER}"
            '  File "/opt/x.py", line 3, in read\n'
            "PermissionError: [Errno 13] Permission denied: '/srv/landing/site'\n"
            f"{AT}\nDriver stacktrace:{AT}",
            "[Errno 13] Permission denied: '/srv/landing/site'",
            "May this account read and write there?",
        ),
        (
            f"An error occurred while calling o1.collect.\n{TASK}java.lang.OutOfMemoryError: Java"
            f" heap space{AT}",
            "Java heap space",
            "--memory",
        ),
        (
            "An error occurred while calling o9.getResult.\n"
            f": {JAVA}Exception thrown in awaitResult: {AT}"
            f"Caused by: {JAVA}[FAILED_READ_FILE.NO_HINT] Encountered error while reading file"
            f" s3a://lake/publications/part-1.parquet.  SQLSTATE: KD001{AT}"
            "Caused by: software.amazon.awssdk.services.s3.model.S3Exception: The requested range"
            f" is not satisfiable (Service: S3, Status Code: 416){AT}",
            "The requested range is not satisfiable (Service: S3, Status Code: 416)"
            " (s3a://lake/publications/part-1.parquet)",
            "A file of a table is missing or damaged",
        ),
        (
            "An error occurred while calling o55.sql.\n"
            ": java.nio.file.AccessDeniedException: s3a://lake/publications/_delta_log:"
            " getFileStatus on s3a://lake/publications/_delta_log:"
            " software.amazon.awssdk.services.s3.model.S3Exception: Forbidden (Status Code: 403)"
            f"{AT}Caused by: software.amazon.awssdk.services.s3.model.S3Exception: Forbidden"
            f" (Status Code: 403){AT}",
            "Forbidden (Status Code: 403) (s3a://lake/publications/_delta_log)",
            "May this account read and write there?",
        ),
        (
            "An error occurred while calling z:io.delta.tables.DeltaTable.isDeltaTable.\n"
            ": org.apache.spark.sql.delta.DeltaIllegalStateException:"
            " [DELTA_VERSIONS_NOT_CONTIGUOUS] Versions (0, 1, 3) are not contiguous. \nThis can"
            f" happen when files have been manually removed.{AT}"
            f"\tSuppressed: java.io.IOException: closed{AT}",
            "[DELTA_VERSIONS_NOT_CONTIGUOUS] Versions (0, 1, 3) are not contiguous.",
            "_delta_log",
        ),
    ],
)
def test_the_innermost_message_is_the_reason(text: str, reason: str, advice: str | None) -> None:
    assert cause_of(stacked(text)) == reason
    told = explained(stacked(text))
    assert reason.rstrip(".") in str(told)
    assert told.hint is None if advice is None else advice in str(told.hint)


S3 = "software.amazon.awssdk.services.s3.model.S3Exception"


@pytest.mark.parametrize(
    ("message", "advice"),
    [
        ("java.io.FileNotFoundException: /tmp/blockmgr-7a/0c/x (Too many open files)", "ulimit"),
        ("java.lang.OutOfMemoryError: unable to create native thread", "TasksMax"),
        (
            "OSError: [Errno 30] Read-only file system: '/srv/lake/publications'",
            "mount the disk again",
        ),
        ("java.io.IOException: Input/output error", "mount the disk again"),
        ("OSError: [Errno 116] Stale file handle: '/srv/landing/site'", "mount the disk again"),
        (f"{S3}: The provided token has expired (Code: ExpiredToken, Status: 400)", "credentials"),
        ("PermissionError: An error occurred (RequestTimeTooSkewed): too large", "clock"),
        (f"{S3}: The specified bucket does not exist (Status Code: 404)", "Make the bucket"),
        ("javax.net.ssl.SSLHandshakeException: PKIX path building failed", "certificate"),
        ("ssl.SSLError: [SSL: CERTIFICATE_VERIFY_FAILED] self-signed", "certificate"),
        ("socket.gaierror: [Errno -2] Name or service not known", "Is the server up"),
        ("asyncssh.misc.PermissionDenied: Permission denied for user landing", "this account"),
        ("asyncssh.misc.ConnectionLost: Connection lost", "Is the server up"),
        ("asyncssh.misc.HostKeyNotVerifiable: Host key is not trusted for host x", "known_hosts"),
        ("java.net.NoRouteToHostException: No route to host", "Is the server up"),
        ("EndpointConnectionError: Could not connect to the endpoint URL", "Is the server up"),
    ],
)
def test_each_cause_has_its_advice(message: str, advice: str) -> None:
    for text in (
        f"An error occurred while calling o1.x.\n{TASK}{message}{AT}",
        f"{PROXY}{message}",
    ):
        told = explained(stacked(text))
        assert str(told).startswith(f"the ingest stopped: {message.partition(': ')[2]}")
        assert advice in str(told.hint)


def test_a_java_that_has_ended_is_called_that() -> None:
    error = Py4JNetworkError("Answer from Java side is empty")
    assert "Java, in which Spark runs, has ended" in str(explained(error))
    assert "--memory" in str(explained(error))


@pytest.mark.parametrize("error", [ConnectionRefusedError(111, "no"), Py4JError("getResult")])
@pytest.mark.parametrize("listens", [True, False])
def test_silent_java_process_has_ended(
    monkeypatch: pytest.MonkeyPatch, error: Exception, listens: bool
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        java = SimpleNamespace(address="127.0.0.1", port=server.getsockname()[1])
        gateway = SimpleNamespace(java_parameters=java, gateway_parameters=None)
        monkeypatch.setattr(SparkContext, "_gateway", gateway)
        if not listens:
            server.close()
        assert is_java_gone(error) is not listens
        assert not is_java_gone(ValueError())


def test_a_java_of_another_version_is_called_that() -> None:
    error = PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})
    assert "Spark needs Java 17 or 21" in str(explained(error))


def test_an_error_without_a_message_has_its_name() -> None:
    assert cause_of(OSError()) == "OSError"
    assert (
        cause_of(stacked("[STREAM_FAILED] Query terminated")) == "[STREAM_FAILED] Query terminated"
    )


def test_our_own_sentence_stays_as_it_is() -> None:
    error = OncewayError("the landing place is empty", "/srv/landing", "Is it mounted?")
    assert explained(error) is error


def test_the_cause_of_any_error_of_a_dead_java_is_that() -> None:
    assert cause_of(Py4JNetworkError("Answer from Java side is empty")).startswith("Java, in which")


def test_slow_java_process_has_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(*_: object, **__: object) -> None:
        raise TimeoutError("timed out")

    java = SimpleNamespace(address="127.0.0.1", port=1)
    gateway = SimpleNamespace(java_parameters=java, gateway_parameters=None)
    monkeypatch.setattr(SparkContext, "_gateway", gateway)
    monkeypatch.setattr(socket, "create_connection", slow)
    assert not is_java_gone(Py4JError("getResult"))


def test_an_error_whose_text_java_can_no_longer_tell_has_the_text_of_python() -> None:
    class Gone(Py4JJavaError):
        def __init__(self) -> None:
            self.errmsg = "java.io.IOException: No space left on device"

        def __str__(self) -> str:
            raise Py4JNetworkError("Answer from Java side is empty")

    assert cause_of(Gone()) == "No space left on device"


def test_java_causes_that_name_each_other_have_an_end() -> None:
    class Cause:
        def getCause(self) -> "Cause":
            return self

        def toString(self) -> str:
            return "java.io.IOException: Input/output error"

    error = PySparkException("[FAILED] a task failed")
    error._origin = Cause()
    assert cause_of(error) == "Input/output error"


def test_full_disks_are_named_also_for_folders_that_do_not_exist_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full, empty = tmp_path / "full", tmp_path / "empty"
    asked = []

    def statvfs(path: Path) -> SimpleNamespace:
        asked.append(path)
        if path not in (full, empty, tmp_path):
            raise FileNotFoundError(path)
        free = 0 if path == full else 10**9
        return SimpleNamespace(f_files=9, f_favail=9, f_bavail=free, f_frsize=4096)

    monkeypatch.setattr(os, "statvfs", statvfs)
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{empty},{tmp_path}/work")
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    folders = [f"file:{full}/lake/table", f"{empty}/table", "s3a://lake/table"]
    assert full_disks(folders) == folders[:1]
    assert full / "lake" in asked
