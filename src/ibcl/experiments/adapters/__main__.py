"""``python -m ibcl.experiments.adapters``: the comparison of adapters."""

from ibcl.experiments.adapters.study import main

main()
