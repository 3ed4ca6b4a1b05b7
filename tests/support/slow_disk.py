"""A file on a disk that can be paused: a file system of one file (FUSE), whose reads complete on request.

    test ── DISK ──> this module in its own process: responds to the kernel, whatever the test's threads wait for
    test <── the file's descriptor, then a byte for each waiting read

The mount is private, and ends with its process. It requires /dev/fuse, and root or a system that allows user
namespaces. As with any other disk, data that was read stays in the page cache.
"""

from __future__ import annotations

import ctypes
import os
import select
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

CLONE_NEWNS, CLONE_NEWUSER = 0x20000, 0x10000000
MS_REC, MS_PRIVATE, MS_NOSUID, MS_NODEV = 1 << 14, 1 << 18, 2, 4
ASYNC_READ = 1  # As with a real disk, the reader does not wait for the read-ahead that it starts,
QUEUE_LENGTH = 1000  # nor for a slot in the queue of reads.
LOOKUP, FORGET, GETATTR, OPEN, READ, RELEASE, FLUSH, INIT, INTERRUPT, BATCH_FORGET = 1, 2, 3, 14, 15, 18, 25, 26, 36, 42
UNANSWERED = (FORGET, INTERRUPT, BATCH_FORGET)
ENOSYS = 38
ROOT_NODE, FILE_NODE = 1, 2
NAME = "file"
FOR_EVER_SECONDS = 1 << 30
REQUEST_BYTES_MAX = 1 << 18
READ_AHEAD_BYTES = 1 << 17
NONE_WAITS = 1 << 62  # A position beyond all reads.
POSITION = struct.Struct("<q")
SECONDS_MAX = 60
NOT_PERMITTED = ("OSError: ", "PermissionError: ", "FileNotFoundError: ")  # Refused by unshare or mount, or no FUSE.


class SlowFile:
    """The file, with the interface that the mover expects."""

    def __init__(self, descriptor: int, disk: socket.socket) -> None:
        self._descriptor = descriptor
        self._disk = disk

    def fileno(self) -> int:
        return self._descriptor

    def again(self) -> SlowFile:
        """Return the same file with another descriptor, which is closed when it is no longer referenced."""
        return SlowFile(os.dup(self._descriptor), self._disk)

    def __del__(self) -> None:
        with suppress(OSError):  # Its disk may be gone.
            os.close(self._descriptor)

    def hold(self, position: int = 0) -> None:
        """Hold reads that start at this position or after it."""
        self._disk.sendall(POSITION.pack(position))
        assert self._disk.recv(1) == b"="

    def let_go(self) -> None:
        self._disk.sendall(POSITION.pack(NONE_WAITS))

    def wait_for_reads(self, count: int = 1) -> None:
        """Wait for this number of reads that are held in addition to the earlier ones."""
        for _ in range(count):
            assert self._disk.recv(1) == b"."


@contextmanager
def slow_file(content: Path) -> Iterator[SlowFile]:
    """Return a file with this content, or skip the test if mounting is not permitted."""
    ours, theirs = socket.socketpair()
    with ours, theirs, tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", __name__, folder, str(content), str(theirs.fileno())]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        with subprocess.Popen(command, pass_fds=[theirs.fileno()], env=environment, stderr=subprocess.PIPE) as process:
            theirs.close()
            ours.settimeout(SECONDS_MAX)
            try:
                _, descriptors, _, _ = socket.recv_fds(ours, 1, 1)
                if not descriptors:
                    assert process.stderr is not None
                    lines = process.stderr.read().decode().strip().splitlines()
                    # Any other failure is not a reason to skip.
                    assert lines[-1:] and lines[-1].startswith(NOT_PERMITTED), lines
                    pytest.skip(f"no file system of ours can be mounted here: {lines[-1]}")
                yield SlowFile(descriptors[0], ours)
            finally:
                process.kill()  # Held reads fail.
                process.wait()


# The process's part.


def mount(folder: str) -> int:
    """Mount an empty file system on the folder, for this process only; return the descriptor of its requests."""
    libc = ctypes.CDLL(None, use_errno=True)

    def checked(what: str, result: int) -> None:
        if result:
            raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")

    user, group = os.getuid(), os.getgid()
    checked("unshare", libc.unshare(CLONE_NEWNS | (CLONE_NEWUSER if user else 0)))
    if user:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    checked("mount /", libc.mount(None, b"/", None, ctypes.c_ulong(MS_REC | MS_PRIVATE), None))
    device = os.open("/dev/fuse", os.O_RDWR)  # In the namespace of the mount.
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0"
    flags = ctypes.c_ulong(MS_NOSUID | MS_NODEV)
    checked("mount", libc.mount(b"odradek", os.fsencode(folder), b"fuse", flags, options.encode()))
    return device


class Disk:
    """The file system, which responds to the kernel's requests."""

    def __init__(self, device: int, content: Path, test: socket.socket) -> None:
        self._device = device
        self._content = os.open(content, os.O_RDONLY)
        self._test = test
        self._held_from = NONE_WAITS
        self._waiting: list[tuple[int, int, int]] = []

    def serve(self) -> None:
        poll = select.poll()  # The test may have more descriptors open than select supports.
        for descriptor in (self._device, self._test.fileno()):
            poll.register(descriptor, select.POLLIN)
        while True:
            ready = {descriptor for descriptor, _ in poll.poll()}
            if self._test.fileno() in ready:
                data = self._test.recv(POSITION.size)
                if not data:
                    return
                self._hold_from(POSITION.unpack(data)[0])
            if self._device in ready:
                self._answer(os.read(self._device, REQUEST_BYTES_MAX))

    def _hold_from(self, position: int) -> None:
        self._held_from = position
        if position != NONE_WAITS:
            self._test.sendall(b"=")
            return
        waiting, self._waiting = self._waiting, []
        for unique, start, size in waiting:
            self._read(unique, start, size)

    def _answer(self, request: bytes) -> None:
        _, operation, unique, node = struct.unpack_from("<IIQQ", request)
        body = request[40:]
        if operation == READ:
            _, position, size = struct.unpack_from("<QQI", body)
            self._read(unique, position, size)
        elif operation not in UNANSWERED:
            answer = self._answer_to(operation, node)
            self._reply(unique, answer or b"", -ENOSYS if answer is None else 0)

    def _read(self, unique: int, position: int, size: int) -> None:
        if position + size > self._held_from:
            self._waiting.append((unique, position, size))
            self._test.sendall(b".")
        else:
            self._reply(unique, os.pread(self._content, size, position))

    def _answer_to(self, operation: int, node: int) -> bytes | None:
        """Return the response, or None for anything unsupported."""
        if operation == INIT:
            queue = QUEUE_LENGTH, QUEUE_LENGTH
            return struct.pack("<IIIIHHIIHHI28x", 7, 31, READ_AHEAD_BYTES, ASYNC_READ, *queue, 1 << 16, 1, 0, 0, 0)
        if operation == LOOKUP:
            entry = struct.pack("<QQQQII", FILE_NODE, 0, FOR_EVER_SECONDS, FOR_EVER_SECONDS, 0, 0)
            return entry + self._attributes(FILE_NODE)
        if operation == GETATTR:
            return struct.pack("<QII", FOR_EVER_SECONDS, 0, 0) + self._attributes(node)
        if operation == OPEN:
            return struct.pack("<QII", 0, 0, 0)
        return b"" if operation in (RELEASE, FLUSH) else None

    def _attributes(self, node: int) -> bytes:
        size = os.fstat(self._content).st_size
        mode = 0o40700 if node == ROOT_NODE else 0o100600
        return struct.pack("<6Q10I", node, size, size // 512, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)

    def _reply(self, unique: int, answer: bytes, error: int = 0) -> None:
        os.write(self._device, struct.pack("<IiQ", 16 + len(answer), error, unique) + answer)


def main(folder: str, content: str, descriptor: str) -> None:
    test = socket.socket(fileno=int(descriptor))
    device = mount(folder)

    def hand_over() -> None:  # The file system must respond in the meantime.
        file = os.open(f"{folder}/{NAME}", os.O_RDONLY)
        socket.send_fds(test, [b"f"], [file])
        os.close(file)

    threading.Thread(target=hand_over, daemon=True).start()
    Disk(device, Path(content), test).serve()


if __name__ == "__main__":
    main(*sys.argv[1:])
