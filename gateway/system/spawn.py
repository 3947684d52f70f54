"""Running a program without stopping the other threads.

In: a command, and its standard input. Out: its exit code. `subprocess` holds the interpreter's lock
until the kernel has read the program from the disk. On a busy SD card that takes tenths of a
second, in which the event loop is blocked. A call through `ctypes` releases the lock.
"""

import ctypes
import os
import select
import signal
from collections.abc import Iterable

_SETSIGDEF, _SETSID = 0x04, 0x80  # <spawn.h> of glibc
_LARGE = 512
"""Size of a buffer, in bytes, that is large enough for a posix_spawnattr_t (336), a
posix_spawn_file_actions_t (80) or a sigset_t (128).
"""
_LIBC = ctypes.CDLL(None)


def run(command: list[str], stdin: bytes, timeout_s: float) -> int:
    """Run a program in a session of its own, without its output. Return its exit code, negative for
    the signal that ended it. Raises OSError if the program can't be started, and TimeoutError if it
    does not end in time. After a TimeoutError, all processes of its session have been killed.
    """
    reading = os.memfd_create("stdin")
    try:
        with open(reading, "wb", closefd=False) as file:
            file.write(stdin)
        os.lseek(reading, 0, os.SEEK_SET)
        pid = _spawn(command, reading)
    finally:
        os.close(reading)
    if not _ends(pid, timeout_s):
        os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise TimeoutError(f"no answer in {timeout_s:g} s")
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _ends(pid: int, timeout_s: float) -> bool:
    """Return whether a child process ends within `timeout_s` seconds."""
    watched = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(watched, select.POLLIN)
        return bool(poll.poll(timeout_s * 1000))
    finally:
        os.close(watched)


def _spawn(command: list[str], stdin: int) -> int:
    """Start a program with posix_spawnp(3) and return its process id. In the program, all
    descriptors above 2 are closed, including sockets from systemd.
    """
    actions, attributes, signals = (ctypes.create_string_buffer(_LARGE) for _ in range(3))
    _LIBC.posix_spawn_file_actions_init(actions)
    _LIBC.posix_spawnattr_init(attributes)
    try:
        _LIBC.posix_spawn_file_actions_adddup2(actions, stdin, 0)
        for number in (1, 2):
            _LIBC.posix_spawn_file_actions_addopen(actions, number, b"/dev/null", os.O_WRONLY, 0)
        _LIBC.posix_spawn_file_actions_addclosefrom_np(actions, 3)
        _LIBC.sigemptyset(signals)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them
            _LIBC.sigaddset(signals, number)
        _LIBC.posix_spawnattr_setsigdefault(attributes, signals)
        flags = ctypes.c_short(_SETSIGDEF | _SETSID)
        _LIBC.posix_spawnattr_setflags(attributes, flags)
        pid = ctypes.c_int()
        error = _LIBC.posix_spawnp(
            ctypes.byref(pid),
            os.fsencode(command[0]),
            actions,
            attributes,
            _strings(os.fsencode(item) for item in command),
            _strings(key + b"=" + value for key, value in os.environb.items()),
        )
    finally:
        _LIBC.posix_spawn_file_actions_destroy(actions)
        _LIBC.posix_spawnattr_destroy(attributes)
    if error:
        raise OSError(error, os.strerror(error), command[0])
    return pid.value


def _strings(items: Iterable[bytes]) -> ctypes.Array[ctypes.c_char_p]:
    """Return strings as a null-terminated array, which execve(2) needs."""
    found = list(items)
    return (ctypes.c_char_p * (len(found) + 1))(*found, None)
