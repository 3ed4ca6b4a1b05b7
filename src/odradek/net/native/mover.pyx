"""Transfers of large byte ranges between sockets and files, in threads without the interpreter's lock.

    loop ── send, store ──> a thread's epoll ──> the thread: recv, checksum, pwrite; sendfile
    loop <── finished ──── eventfd <──────────── the last byte, or an error
                                                  │ its next step is not in the page cache      ↑ it is cached again
                                                  ↓                                             │
                           the cold epoll set ──> a thread: waits for the disk; sendfile ───────┘

A transfer stays with one thread. A thread that waits for a socket that is nearly always ready wakes for each piece; if
two threads served one transfer, they would contend for its lock. A store goes to the thread with the fewest transfers.
A send goes to the thread of the processors that received the peer's last bytes. On one machine that is where the peer
runs, so it need not be woken from a distant processor for each piece; for remote peers, it is where the network card's
interrupts are handled. If the loop runs there, it would have to wait, so one of the storing threads sends instead;
these are not bound to a processor.

A thread with hot transfers never waits for a disk. A transfer whose next step is not in the page cache moves to the
cold threads. They share an epoll set, so each can continue any transfer. A stalled disk delays others only when it
occupies all of these threads. They wait for the disk with a descriptor of their own and without the transfer's lock. The
transfer can thus be cancelled during the wait. Afterwards they send the bytes that were read.

The bytes that a peer will request next are read ahead, in pieces. Linux would do that on its own, as much at once as
the disk's read_ahead_kb allows. With 8 MB and little free memory, one system call then occupies a processor for 20 ms.
A transfer that approaches the end of the bytes read ahead starts more reading. Hot threads do this as well, because it
waits only for the disk's queue. For random access, only the requested bytes are read.

A transfer has a slot. Slots are never freed, and a thread ignores an event of an earlier generation. A transfer can
therefore be cancelled at any time, and after `cancel` returns no thread uses its descriptors.
"""

from cpython.bytes cimport PyBytes_AS_STRING
from libc.errno cimport EAGAIN, EINTR, EIO, ENOSPC, errno
from posix.fcntl cimport O_CLOEXEC, O_WRONLY, fcntl, open as open_file
from posix.stat cimport fstat, struct_stat
from posix.time cimport clock_gettime, timespec
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc

import os

from odradek.log.files import page_cache

cdef extern from "../../record/kernels/crc32c.h" nogil:
    int crc32c_is_here()
    void crc32c_prepare()
    uint32_t crc32c_extend(uint32_t crc, const unsigned char *data, size_t size)

cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_mutex_t:
        pass
    int pthread_mutex_init(pthread_mutex_t *mutex, void *attributes)
    int pthread_mutex_lock(pthread_mutex_t *mutex)
    int pthread_mutex_trylock(pthread_mutex_t *mutex)
    int pthread_mutex_unlock(pthread_mutex_t *mutex)

cdef extern from *:
    """
    #define FENCE() __atomic_thread_fence(__ATOMIC_SEQ_CST)
    #define LOAD(place) __atomic_load_n(place, __ATOMIC_RELAXED)
    #define STORE(place, value) __atomic_store_n(place, value, __ATOMIC_RELAXED)
    """
    void FENCE() nogil
    int LOAD(int *place) nogil
    void STORE(int *place, int value) nogil

cdef extern from "<sys/epoll.h>" nogil:
    ctypedef union epoll_data_t:
        uint64_t u64
    cdef struct epoll_event:
        uint32_t events
        epoll_data_t data
    int EPOLL_CLOEXEC, EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD
    uint32_t EPOLLIN, EPOLLONESHOT, EPOLLOUT
    int epoll_create1(int flags)
    int epoll_ctl(int epoll, int operation, int descriptor, epoll_event *event)
    int epoll_wait(int epoll, epoll_event *events, int events_max, int timeout_ms)

cdef extern from "<sys/eventfd.h>" nogil:
    int EFD_CLOEXEC, EFD_NONBLOCK
    int eventfd(unsigned int start, int flags)

cdef extern from "<sys/sendfile.h>" nogil:
    ssize_t sendfile(int socket, int file, int64_t *position, size_t count)

cdef extern from "<sys/socket.h>" nogil:
    ctypedef unsigned int socklen_t
    int MSG_DONTWAIT, MSG_MORE, MSG_NOSIGNAL, SOL_SOCKET, SO_INCOMING_CPU
    int getsockopt(int socket, int level, int name, void *value, socklen_t *size)
    ssize_t recv(int socket, void *buffer, size_t size, int flags)
    ssize_t send_some "send"(int socket, const void *buffer, size_t size, int flags)

cdef extern from "<sys/uio.h>" nogil:
    cdef struct iovec:
        void *iov_base
        size_t iov_len

cdef extern from *:
    # musl has neither before 1.2.5 (in Alpine since 3.20); the system call exists since Linux 4.6.
    """
    #include <sys/syscall.h>
    #ifndef RWF_NOWAIT
    #define RWF_NOWAIT 8
    #endif
    #define READ_WITH_FLAGS(file, parts, count, position, flags) \\
        syscall(SYS_preadv2, file, parts, count, (long)(position), (long)((position) >> 32), flags)
    """
    int RWF_NOWAIT
    long READ_WITH_FLAGS(int file, const iovec *parts, int count, int64_t position, int flags) nogil

cdef extern from "<sys/vfs.h>" nogil:
    cdef struct FileSystem "statfs":
        long f_type
    int fstatfs(int file, FileSystem *found)

cdef extern from "<sched.h>" nogil:
    int sched_getcpu()

cdef extern from "<fcntl.h>" nogil:
    int F_DUPFD_CLOEXEC, POSIX_FADV_SEQUENTIAL, POSIX_FADV_WILLNEED
    int posix_fadvise(int file, int64_t position, int64_t size, int advice)

cdef extern from "<unistd.h>" nogil:
    ssize_t pwrite(int file, const void *buffer, size_t size, int64_t position)
    ssize_t write(int file, const void *buffer, size_t size)
    ssize_t read(int file, void *buffer, size_t size)
    int close(int descriptor)
    long syscall(long number, ...)

cdef extern from "<time.h>" nogil:
    int CLOCK_MONOTONIC_COARSE

cdef enum:
    SLOTS = 1024
    THREADS_MAX = 64
    PIECE_BYTES = 128 * 1024  # Stays in a processor's cache while it is received, checksummed and written.
    STEP_BYTES = 1024 * 1024  # Another transfer has its turn after this.
    SENT_BYTES = 256 * 1024  # Per call, as many kernels interrupt a thread only between two calls.
    COLD_STEP_BYTES = 256 * 1024  # Read from disk before some of it is sent.
    STRETCH_BYTES = 512 * 1024  # Unit in which pages are read ahead and dropped; checking one costs a microsecond.
    HOT_MS = 100  # Time for which cached bytes are assumed to stay cached.
    OVERLAY = 0x794C7630  # From <linux/magic.h>.
    CACHESTAT = 451  # Linux 6.5; the same on every processor that Linux runs on, except Alpha.
    TAIL_BYTES_MAX = 16
    PROCESSORS_MAX = 1024
    AHEAD_MAX = 4  # Number of transfers by which the nearest processor's thread may exceed another thread.

cdef uint64_t STOP = <uint64_t>-1
cdef int64_t PAGE_BYTES = page_cache.PAGE_BYTES
cdef int64_t AHEAD_BYTES = page_cache.AHEAD_BYTES
cdef int64_t AHEAD_PIECE_BYTES = page_cache.AHEAD_PIECE_BYTES

cdef enum Known:
    ABSENT
    UNKNOWN  # The file system cannot report it.
    CACHED

cdef struct Stretch:
    uint64_t position
    uint64_t size

cdef struct CacheStat:
    uint64_t cached
    uint64_t dirty
    uint64_t written
    uint64_t evicted
    uint64_t lately_evicted

cdef struct Slot:
    pthread_mutex_t lock
    uint32_t generation
    int thread
    int epoll  # Epoll set of its socket: the thread's own or the cold one.
    bint is_store
    int is_quiet  # The loop writes it without the lock.
    bint is_ended
    int socket
    int file
    int64_t position
    int64_t left
    int64_t moved  # Bytes of the file.
    int64_t hot_upto  # End of the bytes that the page cache had
    int64_t hot_at_ms  # at this time.
    bint is_onward  # The preceding bytes were cached, so its peer reads sequentially.
    const unsigned char *head
    int64_t head_left
    const unsigned char *after
    int64_t after_left
    unsigned char tail[TAIL_BYTES_MAX]
    int tail_bytes
    int tail_left
    uint32_t crc
    int error
    bint is_files_error


cdef class Transfer:
    """Transfer of one byte range; `done` is called on the loop at its end, and is None if cancelled."""

    cdef readonly object done
    cdef object file
    cdef object head
    cdef object after
    cdef int index
    cdef readonly long long moved
    cdef readonly int error
    cdef readonly bint is_files_error
    cdef readonly unsigned int crc
    cdef readonly bytes tail


cdef class Mover:
    """Threads that transfer bytes, and their transfers.

    Threads call `run`; the loop calls everything else, and calls `finished` whenever `fileno` is readable.

    There are `threads` threads, plus one for each of `groups` of processors, if any. Each of the latter should be bound
    to its group, and these threads then do all the sending. Any number of additional threads call `run_cold`; without
    one, bytes that are not in the page cache are never sent.
    """

    cdef Slot *_slots
    cdef pthread_mutex_t _lock
    cdef uint64_t *_finished
    cdef int _finished_count
    cdef int _threads
    cdef int _senders_from  # First thread that sends.
    cdef int _stores_upto  # One past the last thread that stores.
    cdef short[PROCESSORS_MAX] _nearest  # Sending thread for each processor.
    cdef int[THREADS_MAX] _epolls
    cdef int[THREADS_MAX] _loads
    cdef int _cold  # Epoll set of cold transfers.
    cdef int _nowhere
    cdef int _bell
    cdef int _stop
    cdef list _transfers
    cdef list _free
    cdef set _sockets

    can_store = bool(crc32c_is_here())

    def __cinit__(self, int threads, groups=()):
        cdef int index, processor
        cdef epoll_event event
        if threads + len(groups) > THREADS_MAX:
            raise ValueError(f"{threads + len(groups)} threads, there is room for {THREADS_MAX}")
        self._threads = 0
        self._cold = self._nowhere = self._bell = self._stop = -1
        self._slots = <Slot *>calloc(SLOTS, sizeof(Slot))
        self._finished = <uint64_t *>calloc(SLOTS, sizeof(uint64_t))
        if self._slots is NULL or self._finished is NULL:
            raise MemoryError
        for index in range(SLOTS):
            pthread_mutex_init(&self._slots[index].lock, NULL)
        pthread_mutex_init(&self._lock, NULL)
        self._transfers = [None] * SLOTS
        self._free = list(range(SLOTS - 1, -1, -1))
        self._sockets = set()
        crc32c_prepare()
        self._bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)
        self._stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)
        self._cold = epoll_create1(EPOLL_CLOEXEC)
        self._nowhere = open_file(b"/dev/null", O_WRONLY | O_CLOEXEC)
        if self._bell < 0 or self._stop < 0 or self._cold < 0 or self._nowhere < 0:
            raise OSError(errno, os.strerror(errno))
        event.events = EPOLLIN
        event.data.u64 = STOP
        if epoll_ctl(self._cold, EPOLL_CTL_ADD, self._stop, &event):
            raise OSError(errno, os.strerror(errno))
        self._stores_upto = threads
        self._senders_from = self._stores_upto if groups else 0
        for index in range(PROCESSORS_MAX):
            self._nearest[index] = -1
        for index, processors in enumerate(groups, self._senders_from):
            for processor in processors:
                if processor < PROCESSORS_MAX:
                    self._nearest[processor] = index
        for index in range(threads + len(groups)):
            self._loads[index] = 0
            self._epolls[index] = epoll_create1(EPOLL_CLOEXEC)
            if self._epolls[index] < 0:
                raise OSError(errno, os.strerror(errno))
            self._threads += 1
            if epoll_ctl(self._epolls[index], EPOLL_CTL_ADD, self._stop, &event):
                raise OSError(errno, os.strerror(errno))

    def __dealloc__(self):
        cdef int index
        if self._slots is NULL:
            return  # The constructor failed.
        for index in range(self._threads):
            close(self._epolls[index])
        for index in (self._cold, self._nowhere, self._bell, self._stop):
            if index >= 0:
                close(index)
        free(self._slots)
        free(self._finished)

    def fileno(self):
        return self._bell

    @property
    def is_busy(self):
        return bool(self._sockets)

    def send(self, int socket, bytes head, file, int64_t position, int64_t size, bytes after, bint is_quiet, done):
        """Send `head`, `size` bytes of the file from `position`, then `after`; return None if impossible now.

        The transfer keeps the file; the socket must not be closed before the transfer has ended or is cancelled. The
        end of a quiet transfer wakes no one unless it failed: `finished` returns it with the next one that is not
        quiet, or `check_ended` reports it earlier.
        """
        cdef Slot *slot
        transfer = self._begin(self._sender(socket), socket, file, position, size, done)
        if transfer is None:
            return None
        slot = &self._slots[(<Transfer>transfer).index]
        slot.is_store = False
        slot.is_quiet = is_quiet
        (<Transfer>transfer).head = head
        slot.head = <const unsigned char *>PyBytes_AS_STRING(head)
        slot.head_left = len(head)
        (<Transfer>transfer).after = after
        slot.after = <const unsigned char *>PyBytes_AS_STRING(after)
        slot.after_left = len(after)
        slot.tail_bytes = slot.tail_left = 0
        return self._arm(transfer)

    def store(self, int socket, file, int64_t position, int64_t size, uint32_t crc, int tail_bytes, done):
        """Write `size` bytes from the socket to the file.

        Extends `crc` by them, and returns up to 16 more bytes for inspection in `tail`.
        """
        cdef Slot *slot
        assert 0 <= tail_bytes <= TAIL_BYTES_MAX
        transfer = self._begin(self._least_loaded(0, self._stores_upto), socket, file, position, size, done)
        if transfer is None:
            return None
        slot = &self._slots[(<Transfer>transfer).index]
        slot.is_store = True
        slot.is_quiet = False
        slot.crc = crc
        slot.head_left = 0
        slot.tail_bytes = slot.tail_left = tail_bytes
        return self._arm(transfer)

    cdef Transfer _begin(self, int thread, int socket, file, int64_t position, int64_t size, done):
        cdef Slot *slot
        cdef Transfer transfer
        if not self._free or socket in self._sockets:
            return None
        transfer = Transfer.__new__(Transfer)
        transfer.done, transfer.file, transfer.index = done, file, self._free.pop()
        slot = &self._slots[transfer.index]
        slot.thread = thread
        self._loads[slot.thread] += 1
        slot.is_ended = False
        slot.socket, slot.file = socket, file.fileno()
        slot.position, slot.left, slot.moved = position, size, 0
        slot.hot_upto = 0
        slot.error, slot.is_files_error = 0, False
        return transfer

    cdef int _sender(self, int socket):
        cdef int processor = -1, nearest = -1
        cdef int least = self._least_loaded(self._senders_from, self._threads)
        cdef socklen_t size = sizeof(processor)
        if not getsockopt(socket, SOL_SOCKET, SO_INCOMING_CPU, &processor, &size):
            nearest = self._of(processor)
        if nearest < 0 or self._loads[nearest] > self._loads[least] + AHEAD_MAX:
            return least
        if nearest == self._of(sched_getcpu()):
            return self._least_loaded(0, self._stores_upto)
        return nearest

    cdef int _of(self, int processor):
        """Return the thread that sends from a processor, or -1 if there is none."""
        return self._nearest[processor] if 0 <= processor < PROCESSORS_MAX else -1

    cdef int _least_loaded(self, int start, int stop):
        cdef int index, least = start
        for index in range(start + 1, stop):
            if self._loads[index] < self._loads[least]:
                least = index
        return least

    cdef Transfer _arm(self, Transfer transfer):
        cdef Slot *slot = &self._slots[transfer.index]
        cdef epoll_event event
        self._transfers[transfer.index] = transfer
        self._sockets.add(slot.socket)
        event.events = EPOLLIN if slot.is_store else EPOLLOUT
        event.data.u64 = <uint64_t>slot.generation << 32 | <uint64_t>transfer.index
        slot.epoll = self._epolls[slot.thread]
        # Decided here, so no hot thread wakes for it. Threads have the time to check the whole step page by page.
        if not slot.is_store and slot.left and _is_absent(slot.file, slot.position, 1):
            slot.epoll = self._cold
            event.events |= EPOLLONESHOT
        # The thread that gets the event sees the slot's contents, and finds its lock free.
        pthread_mutex_lock(&slot.lock)
        pthread_mutex_unlock(&slot.lock)
        if epoll_ctl(slot.epoll, EPOLL_CTL_ADD, slot.socket, &event):  # No memory is left, or it is not a socket.
            self._release(transfer)
            return None
        return transfer

    def moved(self, Transfer transfer not None):
        """Return the bytes of the file moved so far; a transfer that does not progress waits for its peer."""
        return self._slots[transfer.index].moved if self._transfers[transfer.index] is transfer else transfer.moved

    def check_ended(self, Transfer transfer not None):
        """Return whether a transfer has ended, without calling `done`; if not, it is no longer quiet.

        Does not wait for a thread that works on it, which may have been preempted by the peer that received the last
        bytes.
        """
        cdef Slot *slot = &self._slots[transfer.index]
        cdef bint is_ended
        if self._transfers[transfer.index] is not transfer:
            return False
        STORE(&slot.is_quiet, False)
        FENCE()  # Either the thread has released the lock, or it then sees that a caller wants to know.
        if pthread_mutex_trylock(&slot.lock):
            return False
        is_ended = slot.is_ended
        pthread_mutex_unlock(&slot.lock)
        if not is_ended:
            return False
        self.cancel(transfer)
        return True

    def cancel(self, Transfer transfer not None):
        """Cancel a transfer and return how many of the file's bytes were moved; `done` is not called."""
        cdef Slot *slot = &self._slots[transfer.index]
        transfer.done = None  # It may have ended together with the transfer whose end caused this call.
        if self._transfers[transfer.index] is not transfer:
            return transfer.moved
        with nogil:
            pthread_mutex_lock(&slot.lock)
            self._forget(<uint64_t>slot.generation << 32 | <uint64_t>transfer.index)
            slot.generation += 1
            if not slot.is_ended:
                epoll_ctl(slot.epoll, EPOLL_CTL_DEL, slot.socket, NULL)
            pthread_mutex_unlock(&slot.lock)
        self._take_result(transfer, slot)
        self._release(transfer)
        return transfer.moved

    cdef void _forget(self, uint64_t number) noexcept nogil:
        """Remove a transfer that has ended but was not reported."""
        cdef int count
        pthread_mutex_lock(&self._lock)
        for count in range(self._finished_count):
            if self._finished[count] == number:
                self._finished_count -= 1
                self._finished[count] = self._finished[self._finished_count]
                break
        pthread_mutex_unlock(&self._lock)

    def finished(self):
        """Return the transfers that have ended since the last call."""
        cdef uint64_t number
        cdef int count, index
        cdef Slot *slot
        cdef Transfer transfer
        cdef list ended = []
        read(self._bell, &number, sizeof(number))
        pthread_mutex_lock(&self._lock)
        for count in range(self._finished_count):
            number = self._finished[count]
            index = <uint32_t>number
            slot = &self._slots[index]
            transfer = self._transfers[index]
            self._take_result(transfer, slot)
            slot.generation += 1
            ended.append(transfer)
        self._finished_count = 0
        pthread_mutex_unlock(&self._lock)
        for transfer in ended:
            self._release(transfer)
        return ended

    cdef void _take_result(self, Transfer transfer, Slot *slot):
        transfer.moved, transfer.error, transfer.crc = slot.moved, slot.error, slot.crc
        transfer.is_files_error = slot.is_files_error
        transfer.tail = slot.tail[: slot.tail_bytes - slot.tail_left]

    cdef void _release(self, Transfer transfer):
        self._loads[self._slots[transfer.index].thread] -= 1
        self._sockets.discard(self._slots[transfer.index].socket)
        self._transfers[transfer.index] = None
        self._free.append(transfer.index)
        transfer.file = transfer.head = transfer.after = None

    def stop(self):
        """Make every `run` return; unfinished transfers stay as they are."""
        cdef uint64_t one = 1
        write(self._stop, &one, sizeof(one))

    def run(self, int number):
        """Serve transfers as thread `number` until `stop`."""
        cdef unsigned char *piece = <unsigned char *>malloc(PIECE_BYTES)
        if piece is NULL:
            raise MemoryError
        with nogil:
            self._serve(self._epolls[number], piece)
        free(piece)

    def run_cold(self):
        """Serve transfers that are not in the page cache, waiting for the disk, until `stop`."""
        with nogil:
            self._serve(self._cold, NULL)

    cdef void _serve(self, int epoll, unsigned char *piece) noexcept nogil:
        cdef epoll_event event
        cdef Slot *slot
        cdef uint64_t one = 1
        cdef bint is_ended, has_failed
        cdef int count
        while True:
            count = epoll_wait(epoll, &event, 1, -1)
            if count < 0 and errno == EINTR:
                continue
            if count != 1 or event.data.u64 == STOP:
                return
            slot = &self._slots[<uint32_t>event.data.u64]
            pthread_mutex_lock(&slot.lock)
            if slot.generation == event.data.u64 >> 32:
                if epoll == self._cold:
                    self._step_cold(slot, event.data.u64)
                elif slot.is_store:
                    if _store(slot, piece):
                        self._end(slot, event.data.u64)
                elif not _is_hot(slot):
                    self._wait(slot, event.data.u64, self._cold, EPOLLOUT | EPOLLONESHOT)
                elif _send(slot, min(slot.hot_upto - slot.position, <int64_t>SENT_BYTES)):
                    self._end(slot, event.data.u64)
            is_ended, has_failed = slot.is_ended, slot.error != 0
            pthread_mutex_unlock(&slot.lock)
            FENCE()  # As in `check_ended`.
            if is_ended and (has_failed or not LOAD(&slot.is_quiet)):
                write(self._bell, &one, sizeof(one))

    cdef void _step_cold(self, Slot *slot, uint64_t number) noexcept nogil:
        """Wait for the disk and send what was read; return the transfer to its thread if the rest is cached."""
        cdef int64_t loaded = 0
        if slot.left and not _is_known_hot(slot):
            _note_onward(slot)
            loaded = self._load(slot)
            if slot.generation != number >> 32:
                return  # It was cancelled during the wait.
            _take_as_hot(slot, max(loaded, 0))
        if loaded < 0:
            slot.error, slot.is_files_error = -loaded, True
            self._end(slot, number)
        elif _send(slot, slot.hot_upto - slot.position):
            self._end(slot, number)
        elif slot.position >= slot.hot_upto and _look(slot) == CACHED:
            _take_as_hot(slot, STEP_BYTES)
            self._wait(slot, number, self._epolls[slot.thread], EPOLLOUT)
        else:
            self._wait(slot, number, self._cold, EPOLLOUT | EPOLLONESHOT)

    cdef int64_t _load(self, Slot *slot) noexcept nogil:
        """Read the next bytes into the page cache, as _read_in, without holding the slot's lock."""
        cdef int64_t position = slot.position, size = min(slot.left, <int64_t>COLD_STEP_BYTES)
        cdef int64_t ahead_upto = _ahead_upto(slot)
        cdef int file = fcntl(slot.file, F_DUPFD_CLOEXEC, 0)
        if file < 0:  # No descriptor is left; a cancellation then has to wait.
            return _read_in(slot.file, position, size, ahead_upto, self._nowhere)
        pthread_mutex_unlock(&slot.lock)
        size = _read_in(file, position, size, ahead_upto, self._nowhere)
        close(file)
        pthread_mutex_lock(&slot.lock)
        return size

    cdef void _wait(self, Slot *slot, uint64_t number, int epoll, uint32_t events) noexcept nogil:
        """Let the transfer wait in this epoll set for room in its socket."""
        cdef epoll_event event
        cdef int operation = EPOLL_CTL_MOD if epoll == slot.epoll else EPOLL_CTL_ADD
        event.events, event.data.u64 = events, number
        if operation == EPOLL_CTL_ADD:
            epoll_ctl(slot.epoll, EPOLL_CTL_DEL, slot.socket, NULL)
            slot.epoll = epoll
        if epoll_ctl(epoll, operation, slot.socket, &event):
            slot.error = errno
            self._end(slot, number)

    cdef void _end(self, Slot *slot, uint64_t number) noexcept nogil:
        epoll_ctl(slot.epoll, EPOLL_CTL_DEL, slot.socket, NULL)
        slot.is_ended = True
        pthread_mutex_lock(&self._lock)
        self._finished[self._finished_count] = number
        self._finished_count += 1
        pthread_mutex_unlock(&self._lock)


cdef bint _failed(Slot *slot, bint is_files) noexcept nogil:
    """Record errno; return False if the socket merely has no data or no room."""
    if errno == EINTR or (errno == EAGAIN and not is_files):
        return False
    slot.error = errno
    slot.is_files_error = is_files
    return True


# State of the page cache.

cdef bint _is_hot(Slot *slot) noexcept nogil:
    """Return whether the bytes before `hot_upto` need no wait for the disk, as far as is known."""
    if slot.left and not _is_known_hot(slot):
        _note_onward(slot)
        if _look(slot) == ABSENT:
            return False
        _take_as_hot(slot, STEP_BYTES)
        _read_ahead(slot.file, slot.position + min(slot.left, <int64_t>STEP_BYTES), _ahead_upto(slot))
    return True


cdef bint _is_known_hot(Slot *slot) noexcept nogil:
    """Return whether the next bytes were in the page cache a moment ago."""
    return slot.position < slot.hot_upto and _now_ms() - slot.hot_at_ms < HOT_MS


cdef void _take_as_hot(Slot *slot, int64_t size) noexcept nogil:
    slot.hot_upto, slot.hot_at_ms = slot.position + size, _now_ms()


cdef Known _look(Slot *slot) noexcept nogil:
    """Check which part of the next step is in the page cache."""
    cdef int64_t size = min(slot.left, <int64_t>STEP_BYTES)
    return ABSENT if _is_absent(slot.file, slot.position, size) else _have_come(slot.file, slot.position, size)


cdef bint _is_absent(int file, int64_t position, int64_t size) noexcept nogil:
    """Return whether a page is not even being read; False also if the system cannot report it.

    A check with RWF_NOWAIT would start reading, and wait until the disk's queue accepts the read.
    """
    cdef CacheStat pages
    cdef Stretch stretch
    cdef int64_t count = (position + size - 1) // PAGE_BYTES - position // PAGE_BYTES + 1
    stretch.position, stretch.size = position, size
    if size <= 0 or syscall(CACHESTAT, file, &stretch, &pages, 0) or <int64_t>pages.cached >= count:
        return False
    return not _is_in_overlay(file)


cdef bint _is_told(int file) noexcept nogil:
    """Return whether the system reports the page cache's contents for the file."""
    cdef CacheStat pages
    cdef Stretch stretch
    stretch.position, stretch.size = 0, 1
    return not syscall(CACHESTAT, file, &stretch, &pages, 0) and not _is_in_overlay(file)


cdef bint _is_in_overlay(int file) noexcept nogil:
    """Return whether the file is in a container's file system, whose pages belong to the one below."""
    cdef FileSystem found
    return not fstatfs(file, &found) and found.f_type == OVERLAY


cdef Known _have_come(int file, int64_t position, int64_t size) noexcept nogil:
    """Check each stretch, as pages in the cache may still be on their way from the disk."""
    cdef char octet
    cdef iovec part
    cdef int64_t end = position + size
    part.iov_base, part.iov_len = &octet, 1
    while position < end:
        if READ_WITH_FLAGS(file, &part, 1, position, RWF_NOWAIT) < 0:
            return ABSENT if errno == EAGAIN else UNKNOWN
        position = end - 1 if position < end - 1 < position + STRETCH_BYTES else position + STRETCH_BYTES
    return CACHED


cdef void _note_onward(Slot *slot) noexcept nogil:
    """Determine whether the peer reads sequentially, as long as a transfer has not moved anything."""
    if not slot.moved:
        slot.is_onward = slot.position == 0 or not _is_absent(slot.file, slot.position - 1, 1)


cdef int64_t _ahead_upto(Slot *slot) noexcept nogil:
    """Return the offset up to which the file should be read for this transfer now."""
    cdef int64_t end = slot.position + AHEAD_BYTES
    return end if slot.is_onward else min(end, slot.position + slot.left)


cdef void _read_ahead(int file, int64_t position, int64_t end) noexcept nogil:
    """Start reading the uncached rest of this part; it was read in order, so the rest is contiguous."""
    cdef struct_stat found
    cdef int64_t start
    if position >= end or not _is_absent(file, end - 1, 1):
        return
    if fstat(file, &found) or found.st_size <= position:
        return
    end = start = min(end, <int64_t>found.st_size)
    while start > position and _is_absent(file, start - 1, 1):
        start = max(start - AHEAD_PIECE_BYTES, position)
    while start < end:
        posix_fadvise(file, start, min(AHEAD_PIECE_BYTES, end - start), POSIX_FADV_WILLNEED)
        start += AHEAD_PIECE_BYTES


cdef int64_t _read_in(int file, int64_t position, int64_t size, int64_t ahead_upto, int nowhere) noexcept nogil:
    """Wait until the page cache has this part, without a copy, while the disk reads on.

    Returns the number of bytes, 0 at the end of the file, or minus errno.
    """
    cdef int64_t end = position, left = size
    cdef ssize_t sent
    if _is_told(file):
        posix_fadvise(file, position, size, POSIX_FADV_WILLNEED)
        _read_ahead(file, position + size, ahead_upto)
    else:
        posix_fadvise(file, 0, 0, POSIX_FADV_SEQUENTIAL)  # The system then reads ahead on its own, twice as far.
    while left:
        sent = sendfile(nowhere, file, &end, left)
        if sent < 0 and errno == EINTR:
            continue
        if sent <= 0:
            return size - left or -errno * (sent < 0)
        left -= sent
    return size


cdef int64_t _now_ms() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now)
    return <int64_t>now.tv_sec * 1000 + now.tv_nsec // 1000000


# Each step moves what can be moved now, and returns True when nothing is left to do.

cdef bint _send(Slot *slot, int64_t size) noexcept nogil:
    """Send up to `size` bytes of the file, and the bytes before and after it."""
    cdef ssize_t sent
    while slot.head_left:
        sent = send_some(slot.socket, slot.head, slot.head_left, MSG_DONTWAIT | MSG_MORE | MSG_NOSIGNAL)
        if sent < 0:
            return _failed(slot, False)
        slot.head += sent
        slot.head_left -= sent
    if slot.left:
        sent = sendfile(slot.socket, slot.file, &slot.position, min(slot.left, size))
        if sent < 0:
            return _failed(slot, errno == EIO)  # A socket has no such error.
        if sent == 0:
            slot.error, slot.is_files_error = EIO, True  # The file is shorter than expected.
            return True
        slot.left -= sent
        slot.moved += sent
        if slot.left:
            return False
    while slot.after_left:
        sent = send_some(slot.socket, slot.after, slot.after_left, MSG_DONTWAIT | MSG_NOSIGNAL)
        if sent < 0:
            return _failed(slot, False)
        slot.after += sent
        slot.after_left -= sent
    return True


cdef bint _store(Slot *slot, unsigned char *piece) noexcept nogil:
    cdef ssize_t received
    cdef int64_t budget = STEP_BYTES
    while slot.left and budget > 0:
        received = recv(slot.socket, piece, min(slot.left, <int64_t>PIECE_BYTES), MSG_DONTWAIT)
        if received <= 0:
            return received == 0 or _failed(slot, False)
        slot.crc = crc32c_extend(slot.crc, piece, received)
        if not slot.error:  # After an error, the rest is still received because the next request is behind it.
            _write(slot, piece, received)
        slot.left -= received
        slot.moved += received
        budget -= received
    if slot.left:
        return False
    while slot.tail_left:
        received = recv(slot.socket, slot.tail + (slot.tail_bytes - slot.tail_left), slot.tail_left, MSG_DONTWAIT)
        if received <= 0:
            return received == 0 or _failed(slot, False)
        slot.tail_left -= received
    return True


cdef void _write(Slot *slot, const unsigned char *piece, ssize_t size) noexcept nogil:
    """Write all of it at the transfer's position.

    A short write indicates a full disk, and the next write reports it.
    """
    cdef ssize_t written
    while size:
        written = pwrite(slot.file, piece, size, slot.position)
        if written <= 0:
            if written < 0 and errno == EINTR:
                continue
            slot.error = errno if written < 0 else ENOSPC
            slot.is_files_error = True
            return
        slot.position += written
        piece += written
        size -= written
