"""The paper's evaluation: a protocol, the metrics on its table, figures and a report.

How a number comes about: `protocol` runs one method on one benchmark with one seed and returns a
tidy table; `runs` does so for many, in parallel, and keeps each table as a file of its own;
`metrics` are pure functions of those tables; `charts` and `report` show them.
"""
