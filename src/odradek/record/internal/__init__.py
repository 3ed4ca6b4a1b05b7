"""Records of the brokers' internal topics, __consumer_offsets and __transaction_state.

Each key and each value has one class, built on the schema machinery of wire/. `codec` converts them to and from bytes.
"""
