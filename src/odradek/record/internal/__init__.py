"""What brokers write down for themselves: the records of __consumer_offsets and __transaction_state.

One class for a key and one for its value, with the schema machinery of wire/; `codec` turns them into bytes and back.
"""
