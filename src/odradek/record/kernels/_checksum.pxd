from libc.stdint cimport uint32_t


cdef extern from "crc32c.h" nogil:
    void crc32c_prepare()
    uint32_t crc32c_of(const unsigned char *data, size_t size)


cdef inline void prepare_checksums() noexcept nogil:
    crc32c_prepare()


cdef inline uint32_t checksum(const unsigned char[::1] data, Py_ssize_t start, Py_ssize_t size) noexcept nogil:
    return crc32c_of(&data[0] + start, size)
