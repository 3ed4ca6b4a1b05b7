cimport cython
from odradek.record.kernels._copy cimport copy_bytes, wrap64

cdef long long MILLIS_MAX
cdef long long MICROS_MAX
cdef long long INT64_MAX
cdef long long INT64_MIN
cdef long long NO_TIMESTAMP
cdef Py_ssize_t RELEASED_BYTES_MIN


@cython.final
cdef class Payload:
    cdef const unsigned char[::1] data
    cdef Py_ssize_t position
    cdef Py_ssize_t end
    cdef bint failed

    @cython.locals(raw=cython.ulonglong)
    cdef inline long long varint(self) noexcept nogil
    @cython.locals(raw=cython.ulonglong)
    cdef inline long long varlong(self) noexcept nogil
    @cython.locals(value=cython.ulonglong, byte=cython.ulonglong, shift=cython.int)
    cdef unsigned long long digits(self, int shift_max, int last_mask) noexcept nogil
    @cython.locals(size=cython.longlong)
    cdef inline long long sized(self) noexcept nogil
    @cython.locals(size=cython.longlong, count=cython.longlong, _=Py_ssize_t)
    cdef int skip(self) noexcept nogil
    @cython.locals(size=cython.longlong, _=Py_ssize_t)
    cdef int skip_headers(self, long long count) noexcept nogil


@cython.final
cdef class Column:
    cdef object allocate
    cdef Py_ssize_t row_capacity, byte_capacity, row_room, byte_room
    cdef readonly Py_ssize_t rows, nulls, size
    cdef object offsets_owner, validity_owner, data_owner
    cdef int[::1] offsets
    cdef unsigned char[::1] validity
    cdef unsigned char[::1] data

    cpdef reset(self)
    cdef reserve(self, Py_ssize_t rows, Py_ssize_t size)
    cdef inline void append(self, Payload source, Py_ssize_t size) noexcept nogil
    cdef inline void close_row(self, bint is_valid, Py_ssize_t size) noexcept nogil
    cdef void cut(self, Py_ssize_t rows) noexcept nogil


@cython.final
cdef class Decoder:
    cdef bint with_key, with_value, with_headers, is_log_append_time
    cdef object allocate
    cdef Py_ssize_t capacity, room
    cdef readonly Py_ssize_t rows
    cdef readonly unsigned char high_bits
    cdef readonly Column keys, values, headers, header_keys, header_values
    cdef readonly object offsets_owner, timestamps_owner
    cdef long long[::1] offsets
    cdef long long[::1] timestamps
    cdef long long base_offset, base_timestamp, log_append_time, start, stop

    cpdef window(self, long long start, long long stop)
    @cython.locals(source=Payload, rows=Py_ssize_t, headers=Py_ssize_t, bad=Py_ssize_t)
    cpdef Py_ssize_t decode(
        self, data, Py_ssize_t count, long long base_offset, long long base_timestamp, log_append_time
    ) except? -2
    cdef reserve(self, Py_ssize_t count, Py_ssize_t size)
    cdef void cut(self, Py_ssize_t rows, Py_ssize_t headers) noexcept nogil
    @cython.locals(end=Py_ssize_t, index=Py_ssize_t, length=cython.longlong, status=cython.int)
    cdef Py_ssize_t all_records(self, Payload source, Py_ssize_t count) except? -2
    @cython.locals(timestamp=cython.longlong, offset=cython.longlong)
    cdef inline int record(self, Payload source) except? -2
    @cython.locals(size=cython.longlong)
    cdef inline void nullable(self, Payload source, Column column, bint is_selected) noexcept nogil
    @cython.locals(count=cython.longlong, _=Py_ssize_t)
    cdef inline int some_headers(self, Payload source) except? -2
    @cython.locals(size=cython.longlong, position=Py_ssize_t)
    cdef int header(self, Payload source) noexcept nogil
    cdef int room_for_headers(self, Py_ssize_t count, Py_ssize_t size) except -1


cdef long long micros(long long timestamp) noexcept nogil


@cython.locals(source=Payload, length=cython.longlong, most=cython.longlong)
cpdef long long longest(data) except? -2


@cython.final
cdef class Check:
    cdef bint needs_keys
    cdef readonly long long oldest, latest, newest
    cdef readonly Py_ssize_t faults, untimely
    cdef Py_ssize_t room
    cdef long long[::1] places
    cdef long long[::1] times

    cpdef note(self, Py_ssize_t count)
    cpdef fault(self, Py_ssize_t number)
    @cython.locals(source=Payload, bad=Py_ssize_t)
    cpdef Py_ssize_t run(self, data, Py_ssize_t count, long long base_timestamp) except? -2
    @cython.locals(
        end=Py_ssize_t,
        index=Py_ssize_t,
        key_at=Py_ssize_t,
        has_key=cython.bint,
        length=cython.longlong,
        timestamp=cython.longlong,
    )
    cdef Py_ssize_t all_records(self, Payload source, Py_ssize_t count, long long base_timestamp) noexcept nogil
    cdef inline void add(self, long long place, long long timestamp) noexcept nogil


@cython.final
cdef class Survey:
    cdef readonly long long oldest, newest, found_offset, found_timestamp
    cdef readonly Py_ssize_t null_keys
    cdef readonly bint is_found
    cdef long long target_timestamp, start

    cpdef seek(self, long long timestamp, long long start)
    @cython.locals(source=Payload, bad=Py_ssize_t)
    cpdef Py_ssize_t run(
        self, data, Py_ssize_t count, long long base_offset, long long base_timestamp
    ) except? -2
    @cython.locals(
        end=Py_ssize_t,
        index=Py_ssize_t,
        key_at=Py_ssize_t,
        length=cython.longlong,
        timestamp=cython.longlong,
        offset=cython.longlong,
    )
    cdef Py_ssize_t all_records(
        self, Payload source, Py_ssize_t count, long long base_offset, long long base_timestamp
    ) noexcept nogil
