cimport cython
from odradek.record.kernels._copy cimport low32

cdef unsigned int SEED
cdef unsigned int MULTIPLIER
cdef unsigned int POSITIVE


cpdef unsigned int murmur2(data)
@cython.locals(value=cython.uint, block=cython.uint, at=Py_ssize_t, stop=Py_ssize_t, rest=Py_ssize_t)
cdef unsigned int hash_of(const unsigned char[::1] data, Py_ssize_t start, Py_ssize_t size) noexcept nogil
cdef unsigned int word(const unsigned char[::1] data, Py_ssize_t at) noexcept nogil
@cython.locals(row=Py_ssize_t, start=Py_ssize_t, stop=Py_ssize_t)
cdef Py_ssize_t choose(
    const int[::1] offsets, const unsigned char[::1] data, Py_ssize_t limit, unsigned int partitions, int[::1] chosen
) noexcept nogil
