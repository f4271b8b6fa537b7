"""The operating system's side of the embedded Redis: which process it is, starting one, ending one.

In: a command line, or the pid and start time of a leftover. Out: a `ChildServer` or `AdoptedServer`, alike to use. A
pid alone never identifies a process here: pids are recycled, start times are not.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Protocol

_POLL_S = 0.01
_PROC = Path("/proc")

# Runs between fork and the server: asks the kernel for SIGTERM (so that the server flushes) when our thread dies. A
# process of its own, since preexec_fn runs Python between fork and exec of a process with threads, which may deadlock
# and warns from Python 3.12 on; it costs about 15 ms. The owner may have died before prctl: then it is not our parent.
_DIE_WITH_OWNER = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, int(signal.SIGTERM), 0, 0, 0)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""


class Server(Protocol):
    """A running Redis server process."""

    @property
    def pid(self) -> int:
        """Process id."""

    def alive(self) -> bool:
        """Whether the process still runs."""

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; nothing happens when the process is gone."""

    def wait(self, timeout_s: float) -> bool:
        """Wait for the process to be gone; False when it still runs after `timeout_s` seconds."""


def can_die_with_owner() -> bool:
    """Whether the kernel can end a server whose owner died: Linux only; elsewhere the next start adopts it."""
    return sys.platform == "linux" and bool(sys.executable)


def start_time(pid: int) -> str | None:
    """What tells this process from a later one with its pid; None when it is gone (a zombie is: it holds nothing)."""
    return _start_time_from_proc(pid) if sys.platform == "linux" else _start_time_from_ps(pid)


def terminate(server: Server, grace_s: float = 5.0) -> bool:
    """End a server: SIGTERM lets it flush, SIGCONT wakes a stopped one for that, SIGKILL follows `grace_s` later.

    Returns:
        Whether it is gone.
    """
    server.signal(signal.SIGTERM)
    server.signal(signal.SIGCONT)
    if server.wait(grace_s):
        return True
    server.signal(signal.SIGKILL)
    return server.wait(grace_s)


class ChildServer:
    """A server that we started, with a thread of its own that starts it, waits for it, and lives exactly as long.

    The thread matters: Linux sends the parent-death signal when the *thread* that started the process ends, and a
    pool's thread may end long before we do.

    Args:
        command: Absolute path of the binary, and its arguments.
        lock_fd: Descriptor that the server inherits: its lock is held for as long as the server lives.
        log: Where the server's output goes.
        dies_with_owner: Linux: the server gets SIGTERM when we die, however that happens.

    Raises:
        OSError: The process cannot be started.
    """

    def __init__(self, command: Sequence[str], lock_fd: int, log: BinaryIO, *, dies_with_owner: bool) -> None:
        self._command = list(command)
        if dies_with_owner:
            self._command[:0] = [sys.executable, "-I", "-S", "-c", _DIE_WITH_OWNER, str(os.getpid())]
        self._process: subprocess.Popen[bytes] | None = None
        self._error: OSError | None = None
        self._started = threading.Event()
        self._exited = threading.Event()
        threading.Thread(target=self._keep, args=(lock_fd, log), name="embedded-redis", daemon=True).start()
        self._started.wait()
        if self._error is not None:
            raise self._error

    @property
    def pid(self) -> int:
        """Process id."""
        assert self._process is not None
        return self._process.pid

    def alive(self) -> bool:
        """Whether the process still runs."""
        return not self._exited.is_set()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; nothing happens when the process is gone."""
        if self._process is not None:
            self._process.send_signal(number)

    def wait(self, timeout_s: float) -> bool:
        """Wait for the process to be gone; False when it still runs after `timeout_s` seconds."""
        return self._exited.wait(timeout_s)

    def _keep(self, lock_fd: int, log: BinaryIO) -> None:
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own binary, no shell
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=(lock_fd,),
                env=_environment(),
                # A Ctrl-C in the terminal is for us; we stop the server after its last write.
                start_new_session=True,
            )
        except OSError as error:
            self._error = error
            self._exited.set()
            return
        finally:
            self._started.set()
        self._process.wait()
        self._exited.set()


class AdoptedServer:
    """A server that an earlier owner left running.

    Args:
        pid: Process id.
        started: Its `start_time`.
    """

    def __init__(self, pid: int, started: str) -> None:
        self._pid = pid
        self._started = started

    @property
    def pid(self) -> int:
        """Process id."""
        return self._pid

    def alive(self) -> bool:
        """Whether the process still runs."""
        return start_time(self._pid) == self._started

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; nothing happens when the process is gone."""
        if self.alive():
            try:
                os.kill(self._pid, number)
            except ProcessLookupError:
                return

    def wait(self, timeout_s: float) -> bool:
        """Wait for the process to be gone; False when it still runs after `timeout_s` seconds."""
        # Not our child, so there is nothing to wait on but its entry.
        deadline = time.monotonic() + timeout_s
        while self.alive():
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_S)
        return True


def _environment() -> dict[str, str]:
    # The server needs none of ours, least of all provider keys; the loader's paths serve a relocated Python.
    kept = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "TZ", "TMPDIR")
    return {name: os.environ[name] for name in kept if name in os.environ} | {"LC_ALL": "C"}


def _start_time_from_proc(pid: int) -> str | None:
    try:
        stat = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
        boot = (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name may hold spaces and parentheses: count from the last one, where field 3 (state) comes; 22 is start time.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else f"{boot}:{fields[19]}"


def _start_time_from_ps(pid: int) -> str | None:
    result = subprocess.run(  # noqa: S603 - fixed command
        ["/bin/ps", "-o", "stat=,lstart=", "-p", str(pid)],
        capture_output=True,
        text=True,
        check=False,
        env={"LC_ALL": "C"},
    )
    state, _, started = result.stdout.strip().partition(" ")
    return started.strip() if state and not state.startswith("Z") else None
