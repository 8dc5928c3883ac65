"""Who is compared: heads and adapters behind the gate, merged adapters, and retraining.

A contender is a function with `contender(title)` before it, and its file's name in `MODULES`.
"""

from importlib import import_module

from ibcl.experiments.adapters.contenders.scene import (
    CONTENDERS,
    DEAR,
    Outcome,
    Scene,
    contender,
)

MODULES = ("routed", "merged", "retrained", "first_task")
for _name in MODULES:
    import_module(f"{__name__}.{_name}")

__all__ = ["CONTENDERS", "DEAR", "Outcome", "Scene", "contender"]
