"""Named tuples made without their class's own constructor, at half its cost: where one is made for each partition, or
each request.  The values come as one tuple, with all that have defaults.
"""

new_tuple = tuple.__new__
