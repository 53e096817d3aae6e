"""Processes that are killed at a chosen system call, or in the middle of a write: ptrace and seccomp, without a compiler."""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import struct
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

_NUMBERS: Final = {
    "x86_64": {
        "write": 1, "close": 3, "mmap": 9, "munmap": 11, "pwrite64": 18, "writev": 20, "msync": 26, "sendfile": 40, "fsync": 74,
        "fdatasync": 75, "truncate": 76, "ftruncate": 77, "rename": 82, "mkdir": 83, "rmdir": 84, "link": 86, "unlink": 87,
        "openat": 257, "mkdirat": 258, "unlinkat": 263, "renameat": 264, "linkat": 265, "utimensat": 280, "fallocate": 285,
        "pwritev": 296, "renameat2": 316, "copy_file_range": 326,
    },
    "aarch64": {
        "write": 64, "close": 57, "mmap": 222, "munmap": 215, "pwrite64": 68, "writev": 66, "msync": 227, "sendfile": 71, "fsync": 82,
        "fdatasync": 83, "truncate": 45, "ftruncate": 46, "openat": 56, "mkdirat": 34, "unlinkat": 35, "renameat": 38, "linkat": 37,
        "utimensat": 88, "fallocate": 47, "pwritev": 70, "renameat2": 276, "copy_file_range": 285,
    },
}  # fmt: skip
CHANGING: Final = (
    "write", "pwrite64", "writev", "pwritev", "sendfile", "copy_file_range", "fsync", "fdatasync", "msync", "truncate", "ftruncate",
    "rename", "renameat", "renameat2", "mkdir", "mkdirat", "rmdir", "link", "linkat", "unlink", "unlinkat", "utimensat", "fallocate",
)  # fmt: skip
"""Calls that change what is on the disk."""
ALL: Final = (*CHANGING, "openat", "close", "mmap", "munmap")

_TRACEME, _CONT, _GETREGS, _SETREGS, _SYSCALL, _SETOPTIONS = 0, 7, 12, 13, 24, 0x4200
_OPTIONS: Final = 0x1 | 0x8 | 0x80 | 0x100000  # good syscall stops, threads too, seccomp, and no tracee outlives its tracer
_EVENT_SECCOMP, _WALL, _PAGE = 7, 0x40000000, 4096
_RDX, _RSI, _RDI, _NR = 12, 13, 14, 15


class _Filter(ctypes.Structure):
    _fields_ = (("code", ctypes.c_ushort), ("jt", ctypes.c_ubyte), ("jf", ctypes.c_ubyte), ("k", ctypes.c_uint))


class _Program(ctypes.Structure):
    _fields_ = (("len", ctypes.c_ushort), ("filter", ctypes.POINTER(_Filter)))


def can_trace() -> bool:
    """Whether processes can be traced here."""
    return sys.platform == "linux" and platform.machine() in _NUMBERS


def _libc() -> Any:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
    libc.ptrace.restype = ctypes.c_long
    return libc


def _ptrace(request: int, pid: int, data: Any = 0) -> int:
    return int(_libc_once().ptrace(request, pid, None, data))


_found: list[Any] = []


def _libc_once() -> Any:
    if not _found:
        _found.append(_libc())
    return _found[0]


def _stop_at(names: tuple[str, ...]) -> None:
    """Have the system stop this process, for who traces it, at some calls."""
    numbers = [n for name, n in _NUMBERS[platform.machine()].items() if name in names]
    lines = [_Filter(0x20, 0, 0, 0)]  # load the number of the call
    lines += [_Filter(0x15, len(numbers) - i, 0, n) for i, n in enumerate(numbers)]
    lines += [_Filter(0x06, 0, 0, 0x7FFF0000), _Filter(0x06, 0, 0, 0x7FF00000)]  # allow; trace
    code = (_Filter * len(lines))(*lines)
    libc = _libc_once()
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.byref(_Program(len(lines), code)), 0, 0):
        raise OSError(ctypes.get_errno(), "seccomp")


@dataclass(slots=True)
class Call:
    """A system call that a traced process is about to make."""

    number: int
    pid: int
    name: str
    registers: list[int]

    def data(self) -> bytes:
        """Return the bytes that it is to write."""
        with open(f"/proc/{self.pid}/mem", "rb", buffering=0) as memory:
            memory.seek(self.registers[_RSI])
            return bytes(memory.read(self.registers[_RDX]))

    def path(self) -> str:
        """Return the path of the file that it is about, by its descriptor."""
        try:
            return os.readlink(f"/proc/{self.pid}/fd/{self.registers[_RDI]}")
        except OSError:
            return ""

    def position(self) -> int:
        """Return where the file that it is about is written next."""
        try:
            with open(f"/proc/{self.pid}/fdinfo/{self.registers[_RDI]}") as told:
                lines = dict(line.split(":", 1) for line in told.read().splitlines() if ":" in line)
            if int(lines["flags"], 8) & os.O_APPEND:
                return os.stat(f"/proc/{self.pid}/fd/{self.registers[_RDI]}").st_size
            return int(lines["pos"])
        except (OSError, KeyError):
            return 0

    @property
    def offset(self) -> int:
        """Where it writes."""
        return self.registers[7]  # r10


@dataclass(slots=True)
class Ended:
    """How a process ended: the signal or exit status, and at how many calls it stopped."""

    signal: int
    status: int
    calls: int
    late: bool = False


def fork(child: Callable[[], int | None]) -> int:
    """Run a function in a forked process, which ends with it."""
    pid = os.fork()
    if pid:
        return pid
    status = 101
    try:
        status = child() or 0
    except SystemExit as e:
        status = int(e.code or 0)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def run_killed_after(child: Callable[[], int | None], seconds: float, limit: float = 60.0) -> Ended:
    """Run a function in a process of its own and kill it after some seconds, if it has not ended by then."""
    pid = fork(child)
    deadline, killed = time.monotonic() + seconds, False
    last = deadline + limit
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return Ended(os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0, os.waitstatus_to_exitcode(status), 0)
        now = time.monotonic()
        if now >= deadline and not killed:
            os.kill(pid, signal.SIGKILL)
            killed = True
        if now > last:
            raise TimeoutError(f"process {pid} did not die")
        time.sleep(min(0.001, max(0.0, deadline - now)) if not killed else 0.0005)


def _torn(call: Call, tear: float) -> int:
    """Return how many bytes a write that is torn between two pages writes; 0 if it lies in one page."""
    length = call.registers[_RDX]
    start = call.offset if call.name == "pwrite64" else call.position()
    pages = [end - start for end in range(-(-(start + 1) // _PAGE) * _PAGE, start + length, _PAGE)]
    return pages[int(tear * len(pages))] if pages else 0


def run_traced(
    child: Callable[[], int | None],
    at: int = -1,
    tear: float | None = None,
    names: tuple[str, ...] = CHANGING,
    see: Callable[[Call], None] | None = None,
) -> Ended:
    """Run a function in a process of its own, and kill it when it is about to make a system call.

    Parameters
    ----------
    child : callable
        The function.
    at : int, optional
        The number of the call, from 0; -1 is never.
    tear : float, optional
        If the call writes, have it write that part of its pages, and kill the process then. A kill tears a write between pages only.
    names : tuple of str, optional
        Calls that count.
    see : callable, optional
        Called with each of them, while the process stands still.
    """

    def traced() -> int | None:
        _ptrace(_TRACEME, 0)
        os.kill(os.getpid(), signal.SIGSTOP)
        _stop_at(names)
        return child()

    main = fork(traced)
    os.waitpid(main, 0)
    if _ptrace(_SETOPTIONS, main, _OPTIONS) < 0:
        os.kill(main, signal.SIGKILL)
        os.waitpid(main, 0)
        raise OSError(ctypes.get_errno(), "ptrace")
    known = {main}
    by_number = {n: name for name, n in _NUMBERS[platform.machine()].items()}
    calls, torn = 0, -1
    needs_registers = see is not None or (tear is not None and platform.machine() == "x86_64")
    buffer = ctypes.create_string_buffer(27 * 8)
    _ptrace(_CONT, main)
    while True:
        pid, status = os.waitpid(-1, _WALL)
        if os.WIFEXITED(status) or os.WIFSIGNALED(status):
            known.discard(pid)
            if pid == main:
                return Ended(os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0, os.waitstatus_to_exitcode(status), calls)
            continue
        stop, event = os.WSTOPSIG(status), status >> 16
        deliver, how = 0, _CONT
        if event == _EVENT_SECCOMP:
            registers: list[int] = []
            if needs_registers and (see is not None or calls == at):
                _ptrace(_GETREGS, pid, buffer)
                registers = list(struct.unpack("27Q", buffer.raw))
                if see is not None:
                    see(Call(calls, pid, by_number.get(registers[_NR], "?"), registers))
            if calls == at:
                writes = registers and by_number.get(registers[_NR]) in ("write", "pwrite64") and registers[_RDX] > 1
                part = _torn(Call(calls, pid, by_number[registers[_NR]], registers), tear) if tear is not None and writes else 0
                if part:
                    registers[_RDX] = part
                    _ptrace(_SETREGS, pid, ctypes.create_string_buffer(struct.pack("27Q", *registers), 27 * 8))
                    torn, how = pid, _SYSCALL
                else:
                    os.kill(main, signal.SIGKILL)
            calls += 1
        elif stop == signal.SIGTRAP | 0x80:
            if pid == torn:
                os.kill(main, signal.SIGKILL)
        elif event:
            pass
        elif pid not in known:
            known.add(pid)  # a new thread's first stop
        elif stop != signal.SIGTRAP:
            deliver = stop
        _ptrace(how, pid, deliver)
