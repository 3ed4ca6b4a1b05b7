"""Every limit of the system in one place, with relations asserted at import.

Values that Kafka makes configurable are defaults here; the others protect a process from its peers.
"""

from __future__ import annotations

from odradek.base.units import GIB, INT32_MAX, KIB, MIB

# Requests.
REQUEST_BYTES_MAX = 100 * MIB  # socket.request.max.bytes
REQUEST_BYTES_BEFORE_AUTHENTICATION_MAX = 512 * KIB
# One byte on the wire (an empty tagged struct) can become a few hundred bytes in Python. Apache Kafka 4.4 has the same
# limit for each array (CVE-2026-111108); here array elements and tagged fields of the whole message count together.
DECODED_ELEMENTS_MAX = 1_000_000
# Decoding a request must not delay other requests: this many elements take a tenth of a second.
REQUEST_ELEMENTS_MAX = 100_000
# A thread reads a body with more elements than the first value. Its handler works in slices of the second value, each
# of which takes a millisecond or two.
REQUEST_ELEMENTS_INLINE_MAX = 1_000
SLICE_ELEMENTS = 100
# Number of these requests in memory at the same time (core/broker/large_requests.py): one larger than
# LARGE_REQUEST_BYTES, and several smaller ones. A request without progress for TURN_STUCK_MS does not delay others.
LARGE_REQUEST_BYTES = 128 * KIB
LARGE_REQUESTS_AT_ONCE = 1
MIDDLING_REQUESTS_AT_ONCE = 8
TURN_STUCK_MS = 1_000
TAGGED_FIELDS_MAX = 10_000  # In one section, as in Apache Kafka 4.4 (CVE-2026-111115); none is kept.
# A connection's receive buffer starts with the first size and grows to the second while reads fill it with few
# requests. It may keep the third size for a peer whose requests are that large. Larger buffers are used for one
# request. A read never takes more than the second size beyond the request it completes: a request of 14 bytes uses 340
# in memory.
RECEIVE_BUFFER_BYTES_MIN = 4 * KIB
# A smaller buffer costs a producer a quarter of its rate: 64 KiB contain three of the Java producer's five requests of
# 16 KiB and most of a fourth, which is then copied to the front of the buffer each time.
RECEIVE_BUFFER_BYTES = 128 * KIB  # More than five batches, the number that the Java producer has in flight.
RECEIVE_BUFFER_KEPT_BYTES_MAX = 2 * MIB
REQUESTS_PER_READ_TO_GROW_MAX = 128
# The limit for all receive buffers together, above their first 4 KiB, unless queued.max.request.bytes is set. One more
# request may be pending (wire/budget.py).
RECEIVE_BUDGET_BYTES = 256 * MIB
# While a connection waits for room in the budget, each connection that holds memory must receive this many bytes
# between two checks.
RECEIVE_CHECK_SECONDS = 3
RECEIVE_BYTES_PER_CHECK_MIN = 256 * KIB
# Request templates of one connection, counted in partitions; each partition takes about half a kilobyte.
PRODUCE_TEMPLATES_MAX = 256
PRODUCE_TEMPLATES_IN_COMMON_MAX = 4_096  # Shared by all connections with the same rights.
FETCH_TEMPLATES_MAX = 256
COMMIT_TEMPLATES_MAX = 512
REQUESTS_IN_FLIGHT_PER_CONNECTION_MAX = 1_000

# Records.
BATCH_BYTES_MAX = 1 * MIB + 12  # message.max.bytes
STAGED_BYTES_MAX = 1 * MIB  # Batches that are written together in one turn; a larger batch is written alone.
BATCH_DECOMPRESSED_BYTES_MAX = 256 * MIB
# Maximum that a broker unpacks of one batch, to read its records or to recompress them. Producers do not fill a batch
# beyond some megabytes, and a decoder's window takes up to the same amount again.
UNPACKED_BYTES_MAX = 64 * MIB
DECOMPRESSION_RATIO_MAX = 2_000
# Below this size any ratio passes: identical records do compress ten-thousandfold.
DECOMPRESSION_UNCHECKED_BYTES = 16 * MIB
RECORDS_PER_BATCH_MAX = 10_000_000
RECORD_ERRORS_MAX = 1_000  # Maximum number of records named in the answer to one produce request; each is a sentence.

# Logs.
SEGMENT_BYTES_DEFAULT = 1 * GIB  # log.segment.bytes
SEGMENT_INDEX_BYTES_DEFAULT = 10 * MIB  # log.index.size.max.bytes
INDEX_INTERVAL_BYTES_DEFAULT = 4 * KIB  # log.index.interval.bytes
# Producers of one log that tried to start a transaction but have not written to it yet.
AWAITED_PRODUCERS_MAX = 1_000
# For a partition that is moved to a different data directory: bytes that a thread copies at once, and bytes copied at
# the end on the event loop, which take some milliseconds with very small batches.
MOVED_AT_ONCE_BYTES = 256 * KIB
MOVED_AT_LAST_BYTES = 64 * KIB
SHORT_LIVED_FILES = 8  # Descriptors for files that are open briefly: indexes, checkpoints, directories being synced.

# Lookups by timestamp. Lookups that need a batch beyond these limits run one at a time, so that memory is bounded.
SEARCHED_BATCH_BYTES_MAX = 1 * MIB + 12
SEARCHED_PACKED_BYTES_MAX = 64 * KIB
SEARCHED_UNPACKED_BYTES_MAX = 4 * MIB
LOOKUPS_AT_ONCE = 2
SEARCHES_PER_LOOKUP_MAX = 64  # A thread costs ten times as much as searching a small batch.

# Names.
TOPIC_NAME_CHARACTERS_MAX = 249
# A cluster of Apache Kafka under ZooKeeper has at most about as many partitions in all.  A controller that names a
# greater number is not believed: the view of the cluster has room for all partitions below it.
PARTITIONS_PER_TOPIC_MAX = 200_000

# Answers.
# A group leader's JoinGroup answer; a thread encodes a larger one, which takes 2 ms per MiB.
ANSWER_BYTES_INLINE_MAX = 1 * MIB
SEND_CHUNK_BYTES = 1 * MIB  # Size of one read from a disk that requires waiting.
SEND_BUFFER_HIGH_BYTES = 1 * MIB  # Answers of one connection in memory, without file contents.
SEND_BYTES_PER_TURN = 4 * MIB  # After this, the other connections get their turn.
SEND_BUFFERS_MAX = 256
FETCH_SESSIONS_MAX = 1_000  # max.incremental.fetch.session.cache.slots
PARTITIONS_PER_FETCH_SESSION_MAX = 50_000  # Freeing them takes 5 ms.
FETCH_SESSION_PARTITIONS_MAX = 500_000  # In all sessions together; each takes about 300 bytes.

assert REQUEST_ELEMENTS_INLINE_MAX < REQUEST_ELEMENTS_MAX <= DECODED_ELEMENTS_MAX
assert TAGGED_FIELDS_MAX <= REQUEST_ELEMENTS_MAX, "one section must fit into one message"
assert SEARCHED_UNPACKED_BYTES_MAX < UNPACKED_BYTES_MAX <= BATCH_DECOMPRESSED_BYTES_MAX
assert BATCH_BYTES_MAX < REQUEST_BYTES_MAX, "one batch must fit into one request"
assert REQUEST_BYTES_BEFORE_AUTHENTICATION_MAX < REQUEST_BYTES_MAX
assert SEGMENT_BYTES_DEFAULT <= INT32_MAX, "index positions are 32-bit"
assert REQUEST_BYTES_MAX <= SEGMENT_BYTES_DEFAULT, "one request must fit into one segment"
assert RECEIVE_BUFFER_BYTES_MIN < RECEIVE_BUFFER_BYTES < RECEIVE_BUFFER_KEPT_BYTES_MAX
assert RECEIVE_BUFFER_KEPT_BYTES_MAX < REQUEST_BYTES_MAX, "larger requests use a separate buffer"
assert BATCH_BYTES_MAX < RECEIVE_BUFFER_KEPT_BYTES_MAX, "full batches reuse their buffer"
