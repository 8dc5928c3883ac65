"""Prediction sets on real data: what they cover and how large they are, beside MAPIE's.

`data` reads five benchmarks and two regression tables, `contenders` makes sets, `comparison`
measures them for many preferences, `page` writes the results down. Public names of the library
only.
"""
