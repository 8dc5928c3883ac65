"""Twelve tables: the estimators as they come, against what one would use without them.

Tasks are the values of a column. `catalogue` lists the tables, `contenders` who is compared,
`comparison` trains and scores, `page` writes the results down. Public names of the library only.
"""
