"""Explanations of Spark's errors: the innermost message, and advice.

In: an exception of Spark, Java or a Python worker, whose text contains several nested messages.
Out: one line with the innermost message and its file, and a second sentence with advice.

Three kinds of messages are nested in each other. Java lists its causes from the outermost to the
innermost ("Caused by: CLASS: MESSAGE"). Python prints the error after a traceback ("CLASS:
MESSAGE"). Spark puts both kinds into its own messages. So the last message is the innermost one. If
the text contains an OncewayError, that error's sentence is used instead.
"""

import os
import re
import socket
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark import SparkContext
from pyspark.errors import PySparkException

from gateway.errors import OncewayError
from gateway.ingest.delta import local_disk

LONGEST = 500
"""Largest number of characters of a reason."""

DEEPEST = 20
"""Largest number of causes of a Java exception that are followed."""

ANSWER_S = 5.0
"""Longest time, in seconds, for Java to accept a local connection."""

LITTLE_ROOM = 1_000_000
"""Free space of a disk, in bytes, below which the disk counts as full."""

_OURS = "gateway."
"""Prefix of the names of Onceway's errors in a traceback."""

_NAMED = re.compile(r"(?:Caused by: |: )?((?:[\w$]+\.)*\w*(?:[Ee]rror|Exception|Failure)): (.*)")
_OTHERWISE_NAMED = re.compile(r"((?:[a-z_]\w*\.)+[A-Z]\w*): (.*)")
"""Pattern of a Python error whose class name does not end in Error, Exception or Failure, such as
asyncssh.misc.PermissionDenied.
"""
_LOST_TASK = re.compile(r".*Lost task [^)]*\) \([^)]*\): ")
_STATE = re.compile(r" *SQLSTATE: \w+$")
_PLACE = re.compile(r"(?<![\w.])(?:[a-z][a-z0-9+.-]*:/|/)[^\s'\",;()]+")
_WRAPPERS = (
    "An error occurred while calling",
    "Exception thrown in awaitResult",
    "An exception was raised by the Python Proxy",
    "Traceback (most recent call last)",
    "Job aborted",
    "Task failed while writing rows",
    "Task not serializable",
)
"""Texts in messages that name no cause: the cause is in another message of the same error."""

_LOG_FILE = (
    "A file of the table's log (_delta_log) is missing or damaged. Restore the table from a"
    " backup, with all its files: no job of the ingest can create a file of the log again"
)
_MEMORY = "Give Spark more memory (--memory), or take smaller micro-batches (--rows)"
_ADVICE = [
    (
        "No space left|Disk quota exceeded|not enough space",
        "Make room on the full disk. The next start continues from the state of the table",
    ),
    (
        "JAVA_GATEWAY_EXITED|UnsupportedClassVersion|Java gateway process exited",
        "Spark needs Java 17 or 21: look at `java -version`, at JAVA_HOME, and at the lines above",
    ),
    (
        "Too many open files|unable to create native thread",
        "A limit of this account or service is reached: raise LimitNOFILE= and TasksMax= of the"
        " systemd unit, or `ulimit -n` and `ulimit -u`",
    ),
    (
        "Read-only file system|Input/output error|Stale file handle",
        "Look at the disk or the mount (`journalctl -k`), and mount the disk again. The next start"
        " continues from the state of the table",
    ),
    (
        r"blockmgr-|temp_(shuffle|local)_|/spark-[0-9a-f]{8}-",
        "Files of Spark's work folder are gone: does something delete old files there, such as"
        " systemd-tmpfiles in /tmp? Give Spark a folder of its own (--conf spark.local.dir=…). The"
        " next start continues from the state of the table",
    ),
    ("OutOfMemory|Java heap space|GC overhead limit|MemoryError|Cannot allocate memory", _MEMORY),
    (
        "VERSIONS_NOT_CONTIGUOUS|TRUNCATED_TRANSACTION_LOG|LOG_FILE_NOT_FOUND|STATE_RECOVER_ERROR"
        "|FAILED_READ_CHECKPOINT|MISSING_PART_FILES",
        _LOG_FILE,
    ),
    (
        "FAILED_READ_FILE|is not a Parquet file|Could not read footer|\\.parquet does not exist",
        "A file of a table is missing or damaged. Put it back from a backup. The ingest makes the"
        " tables …_readings, …_devices and …_quality again by itself if their folder is deleted",
    ),
    (
        "status code: 416|\\b416\\b|InvalidRange|not satisfiable",
        "An object of a table is empty, or shorter than the table's log says. Put it back from a"
        " backup, or"
        " from an older version of the bucket",
    ),
    (
        "S3AFileSystem not found",
        "The libraries for S3 were not loaded: start the ingest with `onceway ingest run`, or with"
        " the line that `onceway ingest command` prints for this table",
    ),
    (
        "No FileSystem for scheme",
        "Spark does not know this kind of URL. Give a path, or a URL that begins with s3a:, hdfs:"
        " or"
        " another scheme whose jars are loaded (--conf spark.jars.packages=…)",
    ),
    (
        "Permission denied|AccessDenied|Access Denied|AccessControl|Forbidden|\\b403\\b"
        "|SignatureDoesNotMatch|InvalidAccessKeyId|(Expired|Invalid)Token|RequestTimeTooSkewed"
        "|CREDENTIALS|[Cc]redentials",
        "May this account read and write there? Look at the owner of the folder, or at the"
        " credentials, at their permissions, and at this machine's clock",
    ),
    (
        "Destination exists and is not a directory|not a directory|Not a directory"
        "|CANNOT_CREATE_LOG_PATH|Is a directory",
        "Is a file in the way, or a disk not mounted? Remove the file, or name another folder",
    ),
    (
        "Python worker failed to connect",
        "If this machine is very busy, start the ingest again. Otherwise Spark cannot start Python:"
        " set the path of Python with --conf spark.pyspark.python=…",
    ),
    (
        "PYTHON_VERSION_MISMATCH|No module named",
        "The workers need the same Python and packages as the driver:"
        " --conf spark.pyspark.python=…",
    ),
    (
        "NoSuchBucket|bucket does not exist",
        "Make the bucket, or correct its name or the endpoint (AWS_ENDPOINT_URL)",
    ),
    (
        "[Hh]ost key is not|HostKeyNotVerifiable",
        "Enter the server's key in the file that FSSPEC_SFTP_KNOWN_HOSTS names, or in"
        " ~/.ssh/known_hosts",
    ),
    (
        "PKIX path|CERTIFICATE_VERIFY_FAILED|SSLHandshake|SSLError",
        "The server's certificate is not trusted here. Java has its own list of authorities"
        " (keytool -importcert -cacerts), Python uses AWS_CA_BUNDLE",
    ),
    (
        "UnknownHost|Name or service not known|name resolution|Connection refused|No route to host"
        "|Network is unreachable|[Cc]onnection (reset|lost)|timed out|[Uu]nable to connect"
        "|not connect to",
        "Is the server up, and can this machine reach it?",
    ),
    ("Python worker exited|Worker died|OOMKilled", _MEMORY),
]
"""(regular expression, advice). The first expression that is found in one of the messages
decides.
"""

_JAVA_GONE = (
    "Java, in which Spark runs, has ended",
    "If the kernel ended Java for lack of memory (`journalctl -k`), give Java less (--memory) or"
    " the machine more, or take smaller micro-batches (--rows). Otherwise the lines above say why",
)


def cause_of(error: BaseException) -> str:
    """Return the cause of an error in one line: the last message of an error class of Onceway, else
    the innermost message. If the innermost message names no path or URL, the path or URL of the
    next outer message is added in brackets.
    """
    if is_java_gone(error):
        return _JAVA_GONE[0]
    if not isinstance(error, OncewayError | OSError | Py4JError | PySparkException):
        return _first_line(_text(error))
    messages = list(_messages(_text(error)))
    ours = [text for name, text in messages if name.startswith(_OURS)]
    if ours:
        return ours[-1][:LONGEST]
    found = [text for _, text in messages]
    if not found:
        return _first_line(_text(error)) or type(error).__name__
    places = [place for text in reversed(found) if (place := _place(text))]
    where = f" ({places[0]})" if places and not _place(found[-1]) else ""
    return f"{found[-1][: LONGEST - len(where)]}{where}"


def explained(error: Exception, folders: Iterable[str] = ()) -> OncewayError:
    """Return an OncewayError with reason, place and advice, for the error that ends a job. folders:
    URLs to which the job writes. If a disk is full, the place is a list of the folders on it.
    """
    if isinstance(error, OncewayError):
        return error
    if is_java_gone(error):
        return OncewayError(f"the ingest stopped: {_JAVA_GONE[0]}", hint=_JAVA_GONE[1])
    reason = cause_of(error)
    texts = "\n".join(f"{name}: {text}" for name, text in _messages(_text(error))) or reason
    hint = next((then for words, then in _ADVICE if re.search(words, texts)), None)
    full = full_disks(folders) if hint == _ADVICE[0][1] else []
    return OncewayError(f"the ingest stopped: {reason.rstrip('. ')}", ", ".join(full) or None, hint)


def is_java_gone(error: BaseException) -> bool:
    """Whether the Java process has ended, judged by the kind of error or by Java's closed port."""
    if isinstance(error, Py4JNetworkError):
        return True
    return isinstance(error, Py4JError | OSError) and not _java_listens()


def _java_listens() -> bool:
    """Whether Java accepts connections. Also true if Java was not started yet, or does not answer
    in time.
    """
    gateway: Any = SparkContext._gateway
    if gateway is None:
        return True
    java = getattr(gateway, "java_parameters", gateway.gateway_parameters)
    try:
        socket.create_connection((java.address, java.port), timeout=ANSWER_S).close()
    except ConnectionRefusedError:
        return False
    except OSError:  # a slow store still answers
        return True
    return True


def full_disks(folders: Iterable[str]) -> list[str]:
    """Return those of `folders` and of Spark's work folders that are on a full disk."""
    temporary = os.environ.get("SPARK_LOCAL_DIRS", tempfile.gettempdir())
    context = SparkContext._active_spark_context
    with suppress(Py4JError, OSError):
        temporary = context.getConf().get("spark.local.dir", temporary) if context else temporary
    return [folder for folder in [*folders, *temporary.split(",")] if _is_full(folder)]


def _is_full(folder: str) -> bool:
    path = local_disk.local_path(folder)
    for ancestor in () if path is None else (path, *path.parents):
        with suppress(OSError):
            disk = os.statvfs(ancestor)
            no_inodes = disk.f_files > 0 and disk.f_favail == 0
            return disk.f_bavail * disk.f_frsize < LITTLE_ROOM or no_inodes
    return False


def _text(error: BaseException) -> str:
    """Return the whole text of an error, including the Java causes that `str` leaves out."""
    try:
        text = str(error)
    except (Py4JError, OSError):  # str() asks Java, which may have ended
        text = str(getattr(error, "errmsg", "")) or type(error).__name__
    if isinstance(error, PySparkException):
        text = "\n".join([text, *_java_causes(getattr(error, "_origin", None))])
    if not isinstance(error, Py4JJavaError | PySparkException):
        text = f"{type(error).__name__}: {text}".removesuffix(": ")
    return text


def _java_causes(origin: Any) -> Iterator[str]:
    with suppress(Py4JError, OSError):
        for _ in range(DEEPEST):
            origin = None if origin is None else origin.getCause()
            if origin is None:
                return
            yield f"Caused by: {origin.toString()}"


def _messages(text: str) -> Iterator[tuple[str, str]]:
    """Yield (class, text) of each message in a text with nested messages, in order. Messages that
    only announce another message are left out.
    """
    for line in text.splitlines():
        line = line.rpartition("terminated with exception: ")[2]
        line = _LOST_TASK.sub("", line)
        name, message = "", line
        while found := _NAMED.fullmatch(message.strip()) or (
            None if name else _OTHERWISE_NAMED.fullmatch(line)
        ):
            name, message = found[1] if not name.startswith(_OURS) else name, found[2]
        is_message = bool(name) or line.startswith("[")
        message = " ".join(_STATE.sub("", message).split())
        if is_message and message and not any(words in message for words in _WRAPPERS):
            yield name, message


def _place(text: str) -> str | None:
    found = _PLACE.search(text)
    return found[0].rstrip(".:") if found else None


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")[:LONGEST]
