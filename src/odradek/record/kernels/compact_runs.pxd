cimport cython
from odradek.record.kernels._checksum cimport checksum, prepare_checksums
from odradek.record.kernels._copy cimport copy_bytes, wrap64
from odradek.record.kernels.compact cimport Filter, OffsetMap, Reader

cdef long long INT32_MAX, UINT32_SPAN, _ALL
cdef Py_ssize_t LOG_OVERHEAD_BYTES, HEADER_BYTES, CHECKSUMMED_FROM, RECORD_BYTES_MIN
cdef unsigned char MAGIC
cdef int NOT_PLAIN, LOG_APPEND_TIME, DELETE_HORIZON


@cython.final
cdef class Header:
    cdef const unsigned char[::1] data
    cdef Py_ssize_t end, size, records_count
    cdef long long lowest, highest, base_offset, next_offset
    cdef int attributes

    @cython.locals(delta=cython.longlong)
    cdef inline bint read(self, Py_ssize_t at) noexcept nogil
    @cython.locals(value=cython.longlong, index=Py_ssize_t)
    cdef inline long long number(self, Py_ssize_t at, Py_ssize_t size) noexcept nogil
    @cython.locals(value=cython.longlong)
    cdef inline long long int32(self, Py_ssize_t at) noexcept nogil
    cdef inline long long int64(self, Py_ssize_t at) noexcept nogil


@cython.final
cdef class KeyRuns:
    cdef OffsetMap offsets
    cdef Header header
    cdef Reader reader
    cdef long long first, upper
    cdef readonly long long next_offset

    cpdef begin_chunk(self, chunk, long long highest)
    @cython.locals(limit=Py_ssize_t, end=Py_ssize_t)
    cpdef run(self, Py_ssize_t start, long long next_offset, Py_ssize_t room)
    @cython.locals(at=Py_ssize_t)
    cdef Py_ssize_t put_all(self, Header header, Reader reader, Py_ssize_t start, Py_ssize_t limit) noexcept nogil


@cython.final
cdef class FilterRuns:
    cdef Filter filter
    cdef Header header
    cdef Reader reader
    cdef bytearray target
    cdef long long end
    cdef const long long[::1] special
    cdef Py_ssize_t special_count, kept_from
    cdef readonly long long next_offset, base_offset, last_offset, dropped

    cpdef begin_chunk(self, chunk, long long highest)
    cdef inline void reset(self, long long next_offset) noexcept nogil
    @cython.locals(room=Py_ssize_t, end=Py_ssize_t)
    cpdef run(
        self,
        Py_ssize_t start,
        long long next_offset,
        long long now,
        bint keeps_last,
        Py_ssize_t bytes_max,
        long long offset_max,
    )
    cpdef kept(self)
    @cython.locals(at=Py_ssize_t)
    cdef Py_ssize_t take_all(
        self, Header header, Py_ssize_t start, long long now, bint keeps_last, Py_ssize_t room, long long offset_max
    ) noexcept nogil
    @cython.locals(base_timestamp=cython.longlong, has_horizon=cython.bint, end=Py_ssize_t)
    cdef inline bint filter_batch(self, Header header, Filter found, Py_ssize_t at, long long now, bint keeps_last) noexcept nogil
    @cython.locals(low=Py_ssize_t, high=Py_ssize_t, middle=Py_ssize_t)
    cdef bint is_special(self) noexcept nogil
    cdef inline void keep(self, Py_ssize_t at) noexcept nogil
    cdef inline void cover(self) noexcept nogil
    @cython.locals(start=Py_ssize_t, size=Py_ssize_t)
    cdef void remake(self, Header header, Filter found, Py_ssize_t at) noexcept nogil
    @cython.locals(index=Py_ssize_t)
    cdef void write(self, Py_ssize_t at, Py_ssize_t size, long long value) noexcept nogil
