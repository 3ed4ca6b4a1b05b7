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


cdef inline unsigned long long low64(unsigned long long value) noexcept nogil:
    return value


cdef extern from *:
    """
    #if defined(__GNUC__)
        #define odradek_prefetch(pointer) __builtin_prefetch(pointer)
    #else
        #define odradek_prefetch(pointer)
    #endif
    """
    void odradek_prefetch(const void *pointer) noexcept nogil


cdef inline void prefetch(unsigned long long[::1] words, Py_ssize_t at) noexcept nogil:
    odradek_prefetch(&words[0] + at)
