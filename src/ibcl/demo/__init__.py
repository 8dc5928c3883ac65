"""The demo: five tasks on handwritten digits, learnt in seconds, explained on one page.

`tasks` holds the data, `experiment` and `uncertainty` and `growth` what is measured, `summary` the
tables on the terminal, and `figures`, `explorer` and `page` the page.
"""
