"""IBCRL (Algorithm 4): policies for any preference between objectives.

>>> from ibcl.rl import IBCRL, BayesianPolicyGradient, make
>>> ibcrl = IBCRL("mo-halfcheetah", inference=BayesianPolicyGradient(iterations=1), copies=2)
>>> _ = ibcrl.learn("energy")
>>> _ = ibcrl.learn("speed")
>>> policy = ibcrl.policy({"speed": 0.3, "energy": 0.7})
>>> policy.act(make("mo-halfcheetah", copies=1).reset()[0]).shape
(6,)
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ibcl.rl.bayesian_policy_gradient import BayesianPolicyGradient, PolicyProgress
    from ibcl.rl.bayesian_quadrature import BayesianQuadrature
    from ibcl.rl.clipped_surrogate import ClippedSurrogate
    from ibcl.rl.conditioned import PreferenceConditioned
    from ibcl.rl.environments import Environment, Step, make
    from ibcl.rl.family import Anchor
    from ibcl.rl.ibcrl import IBCRL, PreferredPolicy
    from ibcl.rl.joint_surrogate import JointSurrogate
    from ibcl.rl.policies import Normaliser, Policy
    from ibcl.rl.symmetry import Reflection, Rotation, SignedPermutation
    from ibcl.rl.twin_delayed import TwinDelayed
else:
    # The package itself is a name of the library, also where the extra is not installed.
    _HOMES = {
        "BayesianPolicyGradient": "bayesian_policy_gradient",
        "PolicyProgress": "bayesian_policy_gradient",
        "BayesianQuadrature": "bayesian_quadrature",
        "ClippedSurrogate": "clipped_surrogate",
        "PreferenceConditioned": "conditioned",
        "Environment": "environments",
        "Step": "environments",
        "make": "environments",
        "Anchor": "family",
        "IBCRL": "ibcrl",
        "PreferredPolicy": "ibcrl",
        "JointSurrogate": "joint_surrogate",
        "Normaliser": "policies",
        "Policy": "policies",
        "Reflection": "symmetry",
        "Rotation": "symmetry",
        "SignedPermutation": "symmetry",
        "TwinDelayed": "twin_delayed",
    }

    def __getattr__(name: str) -> object:
        if name in _HOMES:
            return getattr(import_module(f"ibcl.rl.{_HOMES[name]}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "IBCRL",
    "Anchor",
    "BayesianPolicyGradient",
    "BayesianQuadrature",
    "ClippedSurrogate",
    "Environment",
    "JointSurrogate",
    "Normaliser",
    "Policy",
    "PolicyProgress",
    "PreferenceConditioned",
    "PreferredPolicy",
    "Reflection",
    "Rotation",
    "SignedPermutation",
    "Step",
    "TwinDelayed",
    "make",
]
