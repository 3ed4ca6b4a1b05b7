/* CRC-32C by the processor's own instruction, for threads that have no interpreter to ask.
 *
 * The instruction has a latency of three cycles and can begin in each, so three neighbouring blocks are summed at once
 * and put together: the state after a block of zeros is a linear function of the state before it, kept as four tables.
 * Where there is no such instruction crc32c_of goes by tables, eight octets at a time.
 */
#ifndef ODRADEK_CRC32C_H
#define ODRADEK_CRC32C_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define CRC32C_TARGET __attribute__((target("sse4.2")))
#define crc32c_word(state, word) ((uint32_t)_mm_crc32_u64((state), (word)))
#define crc32c_octet(state, octet) _mm_crc32_u8((state), (octet))
#define crc32c_is_here() __builtin_cpu_supports("sse4.2")
#elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#define CRC32C_TARGET
#define crc32c_word(state, word) __crc32cd((state), (word))
#define crc32c_octet(state, octet) __crc32cb((state), (octet))
#define crc32c_is_here() 1
#else
#define CRC32C_TARGET
#define crc32c_word(state, word) ((void)(word), (state))
#define crc32c_octet(state, octet) ((void)(octet), (state))
#define crc32c_is_here() 0
#endif

#define CRC32C_BLOCK 2048

static uint32_t crc32c_zeros[4][256];
static uint32_t crc32c_table[8][256]; /* The state after an octet, and up to seven octets of zeros. */

static CRC32C_TARGET uint32_t crc32c_block(uint32_t state, const unsigned char *data, size_t size) {
    uint64_t word;
    for (; size >= sizeof word; size -= sizeof word, data += sizeof word) {
        memcpy(&word, data, sizeof word);
        state = crc32c_word(state, word);
    }
    while (size--)
        state = crc32c_octet(state, *data++);
    return state;
}

static CRC32C_TARGET void crc32c_prepare_zeros(void) {
    static const unsigned char zeros[CRC32C_BLOCK];
    for (int octet = 0; octet < 4; octet++) {
        crc32c_zeros[octet][0] = 0;
        for (int bit = 0; bit < 8; bit++) {
            uint32_t after = crc32c_block((uint32_t)1 << (8 * octet + bit), zeros, CRC32C_BLOCK);
            for (int below = 0; below < 1 << bit; below++)
                crc32c_zeros[octet][(1 << bit) + below] = crc32c_zeros[octet][below] ^ after;
        }
    }
}

static void crc32c_prepare_table(void) {
    for (uint32_t octet = 0; octet < 256; octet++) {
        uint32_t state = octet;
        for (int bit = 0; bit < 8; bit++)
            state = state >> 1 ^ (state & 1 ? 0x82F63B78u : 0);
        crc32c_table[0][octet] = state;
    }
    for (int zeros = 1; zeros < 8; zeros++)
        for (int octet = 0; octet < 256; octet++) {
            uint32_t before = crc32c_table[zeros - 1][octet];
            crc32c_table[zeros][octet] = before >> 8 ^ crc32c_table[0][before & 255];
        }
}

/* Call once, before any other thread does anything here. */
static void crc32c_prepare(void) {
    if (crc32c_is_here())
        crc32c_prepare_zeros();
    else
        crc32c_prepare_table();
}

static uint32_t crc32c_after_zeros(uint32_t state) {
    return crc32c_zeros[0][state & 255] ^ crc32c_zeros[1][state >> 8 & 255] ^ crc32c_zeros[2][state >> 16 & 255] ^
           crc32c_zeros[3][state >> 24];
}

/* The checksum of what `crc` is the checksum of, and data after it; 0 for nothing. */
static CRC32C_TARGET uint32_t crc32c_extend(uint32_t crc, const unsigned char *data, size_t size) {
    uint32_t state = ~crc;
    while (size >= 3 * CRC32C_BLOCK) {
        uint32_t second = 0, third = 0;
        uint64_t word;
        for (size_t at = 0; at < CRC32C_BLOCK; at += sizeof word) {
            memcpy(&word, data + at, sizeof word);
            state = crc32c_word(state, word);
            memcpy(&word, data + CRC32C_BLOCK + at, sizeof word);
            second = crc32c_word(second, word);
            memcpy(&word, data + 2 * CRC32C_BLOCK + at, sizeof word);
            third = crc32c_word(third, word);
        }
        state = crc32c_after_zeros(crc32c_after_zeros(state) ^ second) ^ third;
        data += 3 * CRC32C_BLOCK;
        size -= 3 * CRC32C_BLOCK;
    }
    return ~crc32c_block(state, data, size);
}

static inline uint32_t crc32c_by_table(const unsigned char *data, size_t size) {
    const uint32_t (*table)[256] = crc32c_table;
    uint32_t state = ~(uint32_t)0;
    for (; size >= 8; size -= 8, data += 8) {
        state ^= data[0] | data[1] << 8 | data[2] << 16 | (uint32_t)data[3] << 24;
        state = table[7][state & 255] ^ table[6][state >> 8 & 255] ^ table[5][state >> 16 & 255] ^
                table[4][state >> 24] ^ table[3][data[4]] ^ table[2][data[5]] ^ table[1][data[6]] ^ table[0][data[7]];
    }
    while (size--)
        state = state >> 8 ^ table[0][(state ^ *data++) & 255];
    return ~state;
}

/* The checksum of data, whatever the processor can do. */
static inline uint32_t crc32c_of(const unsigned char *data, size_t size) {
    return crc32c_is_here() ? crc32c_extend(0, data, size) : crc32c_by_table(data, size);
}

#endif
