cimport cython
from odradek.record.kernels._copy cimport wrap64

cdef long long INT32_MAX
cdef long long UINT32_SPAN
cdef Py_ssize_t LOG_OVERHEAD_BYTES
cdef Py_ssize_t HEADER_BYTES
cdef unsigned char MAGIC


@cython.final
cdef class Runs:
    cdef long long base_offset, index_interval_bytes, since_index, walked, latest_epoch
    cdef readonly long long next_offset, max_timestamp, max_timestamp_offset
    cdef readonly long long first_offset, first_epoch, run_max_timestamp

    @cython.locals(
        data="const unsigned char[::1]",
        end=Py_ssize_t,
        at=Py_ssize_t,
        size=cython.longlong,
        offset=cython.longlong,
        delta=cython.longlong,
        epoch=cython.longlong,
        timestamp=cython.longlong,
        checksum=cython.longlong,
        is_due=cython.bint,
    )
    cpdef Py_ssize_t run(self, chunk, Py_ssize_t start) except? -2
    cpdef take(self, long long size, long long last_offset, long long max_timestamp, long long epoch)


@cython.locals(value=cython.longlong, index=Py_ssize_t)
cdef long long number(const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t size) noexcept nogil
@cython.locals(value=cython.longlong)
cdef long long int32(const unsigned char[::1] data, Py_ssize_t at) noexcept nogil
cdef long long int64(const unsigned char[::1] data, Py_ssize_t at) noexcept nogil
