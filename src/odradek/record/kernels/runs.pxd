cimport cython
from odradek.record.kernels._checksum cimport checksum, prepare_checksums
from odradek.record.kernels._copy cimport wrap64

cdef long long INT32_MAX
cdef long long UINT32_SPAN
cdef Py_ssize_t LOG_OVERHEAD_BYTES
cdef Py_ssize_t HEADER_BYTES
cdef unsigned char MAGIC
cdef int TRANSACTIONAL, CONTROL
cdef long long KEPT


@cython.final
cdef class Tally:
    cdef readonly long long producer_id, epoch, first_transactional, timestamp
    cdef readonly bint has_new_epoch
    cdef long long count
    cdef long long sent[20]

    @cython.locals(at=cython.longlong)
    cdef void add(
        self,
        long long epoch,
        long long sequence,
        long long base_offset,
        long long delta,
        long long timestamp,
        bint is_transactional,
    ) noexcept
    @cython.locals(number=cython.longlong, at=cython.longlong)
    cpdef tuple batches(self)


@cython.final
cdef class Runs:
    cdef long long base_offset, index_interval_bytes, since_index, walked, latest_epoch
    cdef readonly long long next_offset, max_timestamp, max_timestamp_offset
    cdef readonly long long first_offset, first_epoch, run_max_timestamp
    cdef readonly dict tallies
    cdef readonly bytes control

    @cython.locals(
        data="const unsigned char[::1]",
        end=Py_ssize_t,
        at=Py_ssize_t,
        size=cython.longlong,
        offset=cython.longlong,
        delta=cython.longlong,
        epoch=cython.longlong,
        timestamp=cython.longlong,
        is_due=cython.bint,
        producer_id=cython.longlong,
        attributes=cython.int,
    )
    cpdef Py_ssize_t run(self, chunk, Py_ssize_t start) except? -2
    @cython.locals(tally=Tally)
    cpdef tally(
        self,
        long long producer_id,
        long long epoch,
        long long sequence,
        long long base_offset,
        long long delta,
        long long timestamp,
        bint is_transactional,
    )
    cpdef add_batch(self, long long size, long long last_offset, long long max_timestamp, long long epoch)


@cython.locals(value=cython.longlong, index=Py_ssize_t)
cdef long long number(const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t size) noexcept nogil
@cython.locals(value=cython.longlong)
cdef long long int16(const unsigned char[::1] data, Py_ssize_t at) noexcept nogil
@cython.locals(value=cython.longlong)
cdef long long int32(const unsigned char[::1] data, Py_ssize_t at) noexcept nogil
cdef long long int64(const unsigned char[::1] data, Py_ssize_t at) noexcept nogil
