from libc.string cimport memcpy


cdef inline void copy_bytes(
    unsigned char[::1] target, Py_ssize_t position, const unsigned char[::1] source, Py_ssize_t start, Py_ssize_t size
) noexcept nogil:
    if size > 0:
        memcpy(&target[0] + position, &source[0] + start, size)


cdef inline long long wrap64(long long value) noexcept nogil:
    return value


cdef inline unsigned int low32(unsigned long long value) noexcept nogil:
    return <unsigned int> value
