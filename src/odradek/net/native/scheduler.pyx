"""Longer time slices from Linux's scheduler (sched_setattr, 6.12).

A thread that wakes preempts at once a thread with longer slices. Otherwise it waits until a slice is over, which delays
a response by some milliseconds. Processor shares stay the same, so a thread that holds the interpreter's lock
progresses, which another nice value would not ensure.
"""

from libc.stdint cimport int32_t, uint32_t, uint64_t
from libc.string cimport memset

cdef extern from "<sys/syscall.h>" nogil:
    int SYS_sched_getattr, SYS_sched_setattr

cdef extern from "<sched.h>" nogil:
    int SCHED_OTHER

cdef extern from "<unistd.h>" nogil:
    long syscall(long number, ...)

cdef uint64_t RESET_ON_FORK = 1  # Threads started by this thread have default slices.

cdef struct Attributes:  # The kernel's struct sched_attr.
    uint32_t size
    uint32_t policy
    uint64_t flags
    int32_t nice
    uint32_t priority
    uint64_t runtime  # Slice of an ordinary thread in nanoseconds; 0 before 6.12.
    uint64_t deadline
    uint64_t period
    uint32_t clamp_min
    uint32_t clamp_max


def double_slice():
    """Double the calling thread's slices.

    Returns the new length in nanoseconds, or 0 if nothing changed.
    """
    cdef Attributes attributes
    memset(&attributes, 0, sizeof(attributes))
    if syscall(SYS_sched_getattr, 0, &attributes, <uint32_t>sizeof(attributes), 0):
        return 0
    if attributes.policy != <uint32_t>SCHED_OTHER or not attributes.runtime:
        return 0
    attributes.size = sizeof(attributes)
    attributes.flags = RESET_ON_FORK
    attributes.runtime *= 2
    return 0 if syscall(SYS_sched_setattr, 0, &attributes, 0) else attributes.runtime
