"""Named tuples created without their class's own constructor, at half its cost.

This is for tuples created for each partition or request. The values are given as one tuple, including all defaults.
"""

new_tuple = tuple.__new__
