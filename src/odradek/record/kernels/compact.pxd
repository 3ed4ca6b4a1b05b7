cimport cython
from odradek.record.kernels._copy cimport copy_bytes, low64, prefetch, wrap64

cdef Py_ssize_t RECORD_BYTES_MIN, RESTAMPED_BYTES_MAX
cdef long long SLOTS_MAX
cdef long long INT64_MAX
cdef long long INT64_MIN
cdef unsigned long long SIP_A, SIP_B, SIP_C, SIP_D
cdef Py_ssize_t GROUP
cdef long long _ALL
cdef long long BAD


@cython.final
cdef class Reader:
    cdef const unsigned char[::1] data
    cdef Py_ssize_t start, position, end, limit, index, count, key_at
    cdef bint failed
    cdef long long base_offset, base_timestamp
    cdef unsigned long long low, high
    cdef Py_ssize_t starts[16]
    cdef Py_ssize_t ends[16]
    cdef long long offsets[16]
    cdef long long timestamps[16]
    cdef bint tombstones[16]
    cdef unsigned long long lows[16]
    cdef unsigned long long highs[16]

    cdef inline void begin_records(
        self, Py_ssize_t start, Py_ssize_t limit, Py_ssize_t count, long long base_offset, long long base_timestamp
    ) noexcept nogil
    cdef inline void rewind(self) noexcept nogil
    @cython.locals(size=Py_ssize_t, key_size=cython.longlong)
    cdef Py_ssize_t more(self, OffsetMap found, long long start, long long stop) noexcept nogil
    @cython.locals(length=cython.longlong, key_size=cython.longlong, headers=cython.longlong, _=cython.longlong)
    cdef inline long long record(self, Py_ssize_t at) noexcept nogil
    @cython.locals(size=cython.longlong)
    cdef inline long long skip(self) noexcept nogil
    @cython.locals(raw=cython.ulonglong)
    cdef inline long long varint(self) noexcept nogil
    @cython.locals(raw=cython.ulonglong)
    cdef inline long long varlong(self) noexcept nogil
    @cython.locals(value=cython.ulonglong, byte=cython.ulonglong, shift=cython.int)
    cdef unsigned long long digits(self, int shift_max, int last_mask) noexcept nogil
    @cython.locals(
        a=cython.ulonglong,
        b=cython.ulonglong,
        c=cython.ulonglong,
        d=cython.ulonglong,
        block=cython.ulonglong,
        words=Py_ssize_t,
        step=Py_ssize_t,
        rounds=cython.int,
        _=cython.int,
    )
    cdef inline void digest(
        self, Py_ssize_t start, Py_ssize_t size, unsigned long long seed_low, unsigned long long seed_high
    ) noexcept nogil
    @cython.locals(value=cython.ulonglong, byte=cython.ulonglong, index=Py_ssize_t)
    cdef inline unsigned long long word(self, Py_ssize_t at, Py_ssize_t size) noexcept nogil


@cython.final
cdef class OffsetMap:
    cdef unsigned long long[::1] table
    cdef unsigned long long seed_low, seed_high
    cdef Py_ssize_t used
    cdef readonly Py_ssize_t slots
    cdef readonly long long latest

    cpdef clear(self, bytes seed=*)
    @cython.locals(at=Py_ssize_t)
    cdef void wipe(self) noexcept nogil
    @cython.locals(reader=Reader)
    cpdef put(self, key, long long offset)
    @cython.locals(reader=Reader)
    cpdef get(self, key)
    @cython.locals(reader=Reader, limit=Py_ssize_t, first=cython.longlong, stopped=cython.longlong)
    cpdef put_records(
        self, records, Py_ssize_t count, long long base_offset, long long start_offset, Py_ssize_t room
    )
    @cython.locals(size=Py_ssize_t, at=Py_ssize_t)
    cdef long long put_all(self, Reader reader, long long start, Py_ssize_t limit) noexcept nogil
    @cython.locals(at=Py_ssize_t)
    cdef inline bint put_key(
        self, unsigned long long low, unsigned long long high, long long offset, Py_ssize_t limit
    ) noexcept nogil
    @cython.locals(at=Py_ssize_t)
    cdef inline long long newest(self, unsigned long long low, unsigned long long high) noexcept nogil
    cdef inline Py_ssize_t home(self, unsigned long long low) noexcept nogil
    @cython.locals(at=Py_ssize_t, steps=Py_ssize_t, found=cython.ulonglong)
    cdef inline Py_ssize_t locate(self, unsigned long long low, unsigned long long high) noexcept nogil
    @cython.locals(steps=Py_ssize_t)
    cdef inline Py_ssize_t steps_from_home(self, unsigned long long low, Py_ssize_t at) noexcept nogil
    cdef inline void insert(
        self, Py_ssize_t at, unsigned long long low, unsigned long long high, unsigned long long offset
    ) noexcept nogil


@cython.final
cdef class Filter:
    cdef OffsetMap offsets
    cdef readonly Py_ssize_t kept, kept_bytes, dropped, dropped_bytes
    cdef readonly bint has_tombstones
    cdef readonly long long max_timestamp, max_timestamp_offset, last_offset
    cdef long long new_base
    cdef unsigned char[::1] stays
    cdef unsigned char[::1] target
    cdef Py_ssize_t at

    cdef void reset(self) noexcept nogil
    @cython.locals(reader=Reader, bad=Py_ssize_t, is_restamped=cython.bint)
    cpdef run(
        self,
        records,
        Py_ssize_t count,
        long long base_offset,
        long long base_timestamp,
        long long upto,
        bint keep_tombstones,
        new_base_timestamp=*,
        Py_ssize_t head=*,
    )
    @cython.locals(batch=bytearray)
    cdef bytearray written(self, Reader reader, Py_ssize_t head, bint is_restamped)
    @cython.locals(index=Py_ssize_t, size=Py_ssize_t, at=Py_ssize_t, stays=cython.bint)
    cdef Py_ssize_t decide_all(self, Reader reader, long long upto, bint keep_tombstones) noexcept nogil
    cdef inline void keep(self, Reader reader, Py_ssize_t at) noexcept nogil
    @cython.locals(index=Py_ssize_t, start=Py_ssize_t, length=cython.longlong, end=Py_ssize_t)
    cdef void write_all(self, Reader reader, bint is_restamped) noexcept nogil
    @cython.locals(attributes=cython.uchar, delta=cython.longlong, rest=Py_ssize_t)
    cdef void write_restamped(self, Reader reader, Py_ssize_t end) noexcept nogil
    @cython.locals(rest=cython.ulonglong)
    cdef inline void write_varint(self, long long value) noexcept nogil


@cython.locals(rest=cython.ulonglong, size=Py_ssize_t)
cdef Py_ssize_t varint_bytes(long long value) noexcept nogil


@cython.locals(reader=Reader)
cpdef digest(data, bytes seed)
