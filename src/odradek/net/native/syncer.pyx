"""File syncs in threads that never hold the interpreter's lock.

    loop ── sync ──> queue ──> the next free thread: fdatasync, one file after another
    loop <── finished ──── eventfd <── the last file

Passing work to an interpreter thread and receiving its result takes longer than the sync on many disks: both take the
lock from the thread that answers requests, and return it late.
"""

from libc.errno cimport EINTR, errno
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free, malloc

import os

cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_mutex_t:
        pass
    ctypedef struct pthread_cond_t:
        pass
    int pthread_mutex_init(pthread_mutex_t *mutex, void *attributes)
    int pthread_mutex_lock(pthread_mutex_t *mutex)
    int pthread_mutex_unlock(pthread_mutex_t *mutex)
    int pthread_cond_init(pthread_cond_t *condition, void *attributes)
    int pthread_cond_signal(pthread_cond_t *condition)
    int pthread_cond_broadcast(pthread_cond_t *condition)
    int pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex)

cdef extern from "<sys/eventfd.h>" nogil:
    int EFD_CLOEXEC, EFD_NONBLOCK
    int eventfd(unsigned int start, int flags)

cdef extern from "<time.h>" nogil:
    int CLOCK_MONOTONIC
    cdef struct timespec:
        int64_t tv_sec
        int64_t tv_nsec
    int clock_gettime(int clock, timespec *now)

cdef extern from "<unistd.h>" nogil:
    int fdatasync(int file)
    ssize_t write(int file, const void *buffer, size_t size)
    ssize_t read(int file, void *buffer, size_t size)
    int close(int descriptor)

cdef struct Job:
    Job *next
    uint64_t number
    double seconds
    int count
    int *files  # Descriptors; at the end the error of each, 0 for none.


cdef class Syncer:
    """Queue of syncs and their threads.

    Threads call `run`; the loop calls everything else, and calls `finished` whenever `fileno` is readable.
    """

    cdef pthread_mutex_t _lock
    cdef pthread_cond_t _has_work
    cdef Job *_first
    cdef Job *_last
    cdef Job *_finished
    cdef bint _is_stopped
    cdef int _bell

    def __cinit__(self):
        self._first = self._last = self._finished = NULL
        self._is_stopped = False
        pthread_mutex_init(&self._lock, NULL)
        pthread_cond_init(&self._has_work, NULL)
        self._bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)
        if self._bell < 0:
            raise OSError(errno, os.strerror(errno))

    def __dealloc__(self):
        _free_all(self._first)
        _free_all(self._finished)
        if self._bell >= 0:
            close(self._bell)

    def fileno(self):
        return self._bell

    def sync(self, uint64_t number, list files):
        """Queue a sync of these descriptors.  Raises MemoryError.

        The descriptors must stay open until `finished` returns the number.
        """
        cdef Job *job = <Job *>malloc(sizeof(Job))
        cdef int index
        if job is NULL:
            raise MemoryError
        job.files = <int *>malloc(max(len(files), 1) * sizeof(int))
        if job.files is NULL:
            free(job)
            raise MemoryError
        job.next, job.number, job.seconds, job.count = NULL, number, 0, len(files)
        for index in range(job.count):
            job.files[index] = files[index]
        pthread_mutex_lock(&self._lock)
        if self._first is NULL:
            self._first = job
        else:
            self._last.next = job
        self._last = job
        pthread_cond_signal(&self._has_work)
        pthread_mutex_unlock(&self._lock)

    def finished(self):
        """Return (number, seconds, errno or 0 of each file) of syncs that have ended since the last call."""
        cdef uint64_t count
        cdef Job *job
        cdef Job *next
        cdef int index
        cdef list ended = []
        read(self._bell, &count, sizeof(count))
        pthread_mutex_lock(&self._lock)
        job, self._finished = self._finished, NULL
        pthread_mutex_unlock(&self._lock)
        while job is not NULL:
            ended.append((job.number, job.seconds, [job.files[index] for index in range(job.count)]))
            next = job.next
            _free(job)
            job = next
        return ended

    def stop(self):
        """Make every `run` return as soon as no sync is left."""
        pthread_mutex_lock(&self._lock)
        self._is_stopped = True
        pthread_cond_broadcast(&self._has_work)
        pthread_mutex_unlock(&self._lock)

    def run(self):
        """Run queued syncs until `stop`."""
        with nogil:
            self._serve()

    cdef void _serve(self) noexcept nogil:
        cdef Job *job
        cdef uint64_t one = 1
        pthread_mutex_lock(&self._lock)
        while True:
            job = self._first
            if job is NULL:
                if self._is_stopped:
                    break
                pthread_cond_wait(&self._has_work, &self._lock)
                continue
            self._first = job.next
            pthread_mutex_unlock(&self._lock)
            _sync(job)
            pthread_mutex_lock(&self._lock)
            job.next, self._finished = self._finished, job
            write(self._bell, &one, sizeof(one))
        pthread_mutex_unlock(&self._lock)


cdef void _sync(Job *job) noexcept nogil:
    cdef double began = _now()
    cdef int index
    for index in range(job.count):
        while fdatasync(job.files[index]):
            if errno != EINTR:
                job.files[index] = errno
                break
        else:
            job.files[index] = 0
    job.seconds = _now() - began


cdef double _now() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return now.tv_sec + now.tv_nsec / 1e9


cdef void _free(Job *job) noexcept nogil:
    free(job.files)
    free(job)


cdef void _free_all(Job *job) noexcept nogil:
    cdef Job *next
    while job is not NULL:
        next = job.next
        _free(job)
        job = next
