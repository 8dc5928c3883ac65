"""IBCL's own variants, as they take part in comparisons."""

from __future__ import annotations

from ibcl.experiments.methods.common_settings import BAYES, LINEAR, MLP, PRIOR, VARIATIONAL
from ibcl.experiments.methods.ibcl_methods import (
    FirstRoutedEvidence,
    IBCLEvidence,
    IBCLMixture,
    IBCLWasserstein,
    RoutedClasses,
    RoutedEvidence,
    RoutedMeanField,
)
from ibcl.experiments.methods.registration import OURS, Range, Registration, Space, register

_PAPER = {**VARIATIONAL, "d": 0.012, "alpha": 0.01}
_GATED: Space = {"support": Range(0.4, 0.95), "temperature": Range(0.7, 4.0)}
_ROUTED: Space = {**PRIOR, **_GATED}
_FROM_MOMENTS = {"prior_std": 3.0, "support": 0.7, "temperature": 2.0}
_FROM_EVIDENCE = {**_FROM_MOMENTS, "temperature": 1.5, "gate": "evidence"}

register(Registration("routed", "routed evidence", RoutedEvidence, OURS, LINEAR, 1.0))

register(
    Registration(
        "routed_exact",
        "routed evidence, nothing compressed",
        RoutedEvidence,
        OURS,
        LINEAR,
        1.0,
        {"kept": "exact"},
    )
)

register(
    Registration(
        "routed_shared",
        "routed evidence, shared covariance",
        RoutedEvidence,
        OURS,
        LINEAR,
        1.0,
        {"kept": "shared"},
    )
)

register(
    Registration(
        "routed1",
        "routed evidence 1",
        FirstRoutedEvidence,
        OURS,
        LINEAR,
        1.0,
        _FROM_MOMENTS,
        _ROUTED,
    )
)

register(
    Registration(
        "routed1_covariances",
        "routed evidence 1, classes' covariances",
        FirstRoutedEvidence,
        OURS,
        LINEAR,
        1.0,
        {**_FROM_MOMENTS, "temperature": 2.5, "gate": "classes"},
        _ROUTED,
    )
)

register(
    Registration(
        "routed1_per_preference",
        "routed evidence 1, heads per preference",
        FirstRoutedEvidence,
        OURS,
        LINEAR,
        1.0,
        {**_FROM_MOMENTS, "heads": "preference"},
        _ROUTED,
    )
)

register(
    Registration(
        "routed1_free",
        "routed evidence 1, free gate",
        FirstRoutedEvidence,
        OURS,
        LINEAR,
        1.0,
        _FROM_EVIDENCE,
        _ROUTED,
    )
)

register(
    Registration(
        "routed1_random",
        "routed evidence 1, random features",
        FirstRoutedEvidence,
        OURS,
        "random:512",
        10.0,
        {**_FROM_MOMENTS, "prior_std": 10.0},
        _ROUTED,
    )
)

register(
    Registration(
        "routed1_classes",
        "routed evidence 1, classes",
        RoutedClasses,
        OURS,
        LINEAR,
        1.0,
        {**_FROM_MOMENTS, "temperature": 2.5},
        _ROUTED,
    )
)

register(
    Registration(
        "routed_mean_field",
        "routed networks (mean field, independent)",
        RoutedMeanField,
        OURS,
        MLP,
        10.0,
        {**VARIATIONAL, "prior_std": 1.0, "support": 1.0, "temperature": 2.0, "independent": True},
        {**BAYES, "temperature": Range(0.7, 4.0)},
    )
)

register(
    Registration(
        "routed_barycentre",
        "routed barycentre (mean field, chain)",
        RoutedMeanField,
        OURS,
        MLP,
        10.0,
        {**VARIATIONAL, "support": 0.8, "temperature": 2.0},
        {**BAYES, **_GATED},
    )
)

register(Registration("ibcl", "IBCL (paper)", IBCLWasserstein, OURS, MLP, 10.0, _PAPER, BAYES))

register(
    Registration(
        "ibcl_norms",
        "IBCL (paper), d on its authors' scale",
        IBCLWasserstein,
        OURS,
        MLP,
        10.0,
        {**_PAPER, "distance": "norms"},
        BAYES,
    )
)

register(Registration("ibcl_mixture", "IBCL, mixture", IBCLMixture, OURS, MLP, 10.0, _PAPER, BAYES))

register(
    Registration(
        "ibcl_evidence", "evidence", IBCLEvidence, OURS, LINEAR, 1.0, {"prior_std": 3.0}, PRIOR
    )
)

register(
    Registration(
        "ibcl_evidence_apart",
        "evidence, independent tasks",
        IBCLEvidence,
        OURS,
        LINEAR,
        1.0,
        {"prior_std": 3.0, "independent": True},
        PRIOR,
    )
)

register(
    Registration(
        "ibcl_evidence_random",
        "evidence, random features",
        IBCLEvidence,
        OURS,
        "linear+random:256",
        3.0,
        {"prior_std": 1.0},
        PRIOR,
    )
)
