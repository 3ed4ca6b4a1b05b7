cimport cython
from odradek.record.kernels._copy cimport copy_bytes, wrap64

cdef Py_ssize_t RECORD_BYTES_MAX
cdef Py_ssize_t UNBOUNDED
cdef Py_ssize_t NULL
cdef Py_ssize_t BAD


@cython.final
cdef class Cells:
    cdef const int[::1] offsets
    cdef const unsigned char[::1] data
    cdef const unsigned char[::1] validity
    cdef bint has_nulls
    cdef readonly Py_ssize_t rows
    cdef Py_ssize_t shift, limit

    @cython.locals(at=Py_ssize_t, start=Py_ssize_t, stop=Py_ssize_t)
    cdef inline Py_ssize_t size(self, Py_ssize_t row) noexcept nogil
    cdef inline Py_ssize_t start(self, Py_ssize_t row) noexcept nogil


@cython.final
cdef class Encoder:
    cdef Cells keys, values, headers, header_keys, header_values
    cdef bint has_headers, has_timestamps
    cdef const long long[::1] timestamps
    cdef unsigned char[::1] target
    cdef readonly Py_ssize_t rows
    cdef Py_ssize_t at

    @cython.locals(total=Py_ssize_t, size=Py_ssize_t, row=Py_ssize_t)
    cpdef fit(self, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t bytes_max)
    cdef inline long long timestamp_delta(self, Py_ssize_t row, Py_ssize_t start) noexcept nogil
    @cython.locals(key=Py_ssize_t, value=Py_ssize_t, count=Py_ssize_t, size=Py_ssize_t, headers=Py_ssize_t)
    cdef Py_ssize_t body_bytes(self, Py_ssize_t row, Py_ssize_t offset_delta, long long timestamp_delta) noexcept nogil
    @cython.locals(size=Py_ssize_t, first=Py_ssize_t, header=Py_ssize_t, name=Py_ssize_t, value=Py_ssize_t)
    cdef Py_ssize_t headers_bytes(self, Py_ssize_t row, Py_ssize_t count) noexcept nogil
    @cython.locals(latest=cython.longlong, row=Py_ssize_t)
    cpdef long long timestamp_max(self, Py_ssize_t start, Py_ssize_t stop)
    @cython.locals(row=Py_ssize_t)
    cpdef encode(self, Py_ssize_t head, Py_ssize_t start, Py_ssize_t stop)
    @cython.locals(count=Py_ssize_t)
    cdef inline void record(self, Py_ssize_t row, long long offset_delta, long long timestamp_delta) noexcept nogil
    @cython.locals(first=Py_ssize_t, header=Py_ssize_t)
    cdef void put_headers(self, Py_ssize_t row, Py_ssize_t count) noexcept nogil
    cdef inline void field(self, Cells cells, Py_ssize_t row, Py_ssize_t size) noexcept nogil
    @cython.locals(rest=cython.ulonglong)
    cdef inline void varint(self, long long value) noexcept nogil


@cython.locals(rest=cython.ulonglong, size=Py_ssize_t)
cdef Py_ssize_t varint_bytes(long long value) noexcept nogil


cdef Py_ssize_t field_bytes(Py_ssize_t size) noexcept nogil
