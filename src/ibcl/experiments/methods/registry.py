"""The methods by name. A new one is a file of its own and one registration here."""

from __future__ import annotations

from ibcl.experiments.methods.agem import AGEM
from ibcl.experiments.methods.class_gaussians import ClassGaussians
from ibcl.experiments.methods.class_rehearsal import ClassRehearsal
from ibcl.experiments.methods.convex_combination import (
    ConvexCombination,
    ConvexCombinationSharedStart,
)
from ibcl.experiments.methods.der import DER
from ibcl.experiments.methods.derpp import DERPlusPlus
from ibcl.experiments.methods.fine_tuning import FineTuning
from ibcl.experiments.methods.fisher_merging import FisherMerging
from ibcl.experiments.methods.gem import GEM
from ibcl.experiments.methods.ibcl_methods import (
    IBCLEvidence,
    IBCLMixture,
    IBCLWasserstein,
    RoutedClasses,
    RoutedEvidence,
    RoutedMeanField,
)
from ibcl.experiments.methods.l2p import L2P
from ibcl.experiments.methods.map_oracle import MAPOracle
from ibcl.experiments.methods.mats import MaTS
from ibcl.experiments.methods.nearest_class_mean import NearestClassMean
from ibcl.experiments.methods.online_ewc import OnlineEWC
from ibcl.experiments.methods.online_laplace import OnlineLaplace
from ibcl.experiments.methods.oracle import Oracle
from ibcl.experiments.methods.pooled_ridge import PooledRidge
from ibcl.experiments.methods.ranpac import RanPAC
from ibcl.experiments.methods.registration import (
    ALL_DATA,
    CLOSED_FORM,
    MERGING,
    ONE_MODEL,
    OURS,
    REHEARSAL,
    Range,
    Registration,
    Space,
    register,
)
from ibcl.experiments.methods.regmean import RegMean
from ibcl.experiments.methods.routed_oracle import RoutedOracle
from ibcl.experiments.methods.streaming_lda import StreamingLDA
from ibcl.experiments.methods.ties import TIES
from ibcl.experiments.methods.vcl import VCL

MLP, LINEAR = "mlp:64", "linear"

_TRAINING = {"epochs": 10, "batch_size": 64}
_GRADIENT = {**_TRAINING, "learning_rate": 3e-3}
_VARIATIONAL = {**_TRAINING, "learning_rate": 2e-2, "prior_std": 2.5}
_PAPER = {**_VARIATIONAL, "d": 0.012, "alpha": 0.01}

_NORM: Space = {"feature_norm": (1.0, 3.0, 10.0)}
_RATE: Space = {**_NORM, "learning_rate": Range(3e-4, 1e-1)}
_DECAYED: Space = {**_RATE, "weight_decay": Range(1e-6, 1e-2)}
_PRIOR: Space = {**_NORM, "prior_std": Range(0.05, 10.0)}
_BAYES: Space = {**_RATE, "prior_std": Range(0.05, 10.0)}
_SCORES: Space = {"temperature": Range(0.5, 10.0)}

_GATED: Space = {"support": Range(0.4, 0.95), "temperature": Range(0.7, 4.0)}
_ROUTED: Space = {**_PRIOR, **_GATED}
_FROM_MOMENTS = {"prior_std": 3.0, "support": 0.7, "temperature": 2.0}
_FROM_EVIDENCE = {**_FROM_MOMENTS, "temperature": 1.5, "gate": "evidence"}

for _entry in (
    Registration(
        "routed", "routed evidence", RoutedEvidence, OURS, LINEAR, 1.0, _FROM_MOMENTS, _ROUTED
    ),
    Registration(
        "routed_covariances",
        "routed evidence, classes' covariances",
        RoutedEvidence,
        OURS,
        LINEAR,
        1.0,
        {**_FROM_MOMENTS, "temperature": 2.5, "gate": "classes"},
        _ROUTED,
    ),
    Registration(
        "routed_per_preference",
        "routed evidence, heads per preference",
        RoutedEvidence,
        OURS,
        LINEAR,
        1.0,
        {**_FROM_MOMENTS, "heads": "preference"},
        _ROUTED,
    ),
    Registration(
        "routed_free",
        "routed evidence, free gate",
        RoutedEvidence,
        OURS,
        LINEAR,
        1.0,
        _FROM_EVIDENCE,
        _ROUTED,
    ),
    Registration(
        "routed_free_per_preference",
        "routed evidence, free gate, heads per preference",
        RoutedEvidence,
        OURS,
        LINEAR,
        1.0,
        {**_FROM_EVIDENCE, "heads": "preference"},
        _ROUTED,
    ),
    Registration(
        "routed_random",
        "routed evidence, random features",
        RoutedEvidence,
        OURS,
        "random:512",
        10.0,
        {**_FROM_MOMENTS, "prior_std": 10.0},
        _ROUTED,
    ),
    Registration(
        "routed_classes",
        "routed evidence, classes",
        RoutedClasses,
        OURS,
        LINEAR,
        1.0,
        {**_FROM_MOMENTS, "temperature": 2.5},
        _ROUTED,
    ),
    Registration(
        "routed_mean_field",
        "routed networks (mean field, apart)",
        RoutedMeanField,
        OURS,
        MLP,
        10.0,
        {**_VARIATIONAL, "prior_std": 1.0, "support": 1.0, "temperature": 2.0, "continual": False},
        {**_BAYES, "temperature": Range(0.7, 4.0)},
    ),
    Registration(
        "routed_barycentre",
        "routed barycentre (mean field, chain)",
        RoutedMeanField,
        OURS,
        MLP,
        10.0,
        {**_VARIATIONAL, "support": 0.8, "temperature": 2.0},
        {**_BAYES, **_GATED},
    ),
    Registration("ibcl", "IBCL (paper)", IBCLWasserstein, OURS, MLP, 10.0, _PAPER, _BAYES),
    Registration("ibcl_mixture", "IBCL, mixture", IBCLMixture, OURS, MLP, 10.0, _PAPER, _BAYES),
    Registration(
        "ibcl_evidence", "evidence", IBCLEvidence, OURS, LINEAR, 1.0, {"prior_std": 3.0}, _PRIOR
    ),
    Registration(
        "ibcl_evidence_apart",
        "evidence, tasks apart",
        IBCLEvidence,
        OURS,
        LINEAR,
        1.0,
        {"prior_std": 3.0, "continual": False},
        _PRIOR,
    ),
    Registration(
        "ibcl_evidence_random",
        "evidence, random features",
        IBCLEvidence,
        OURS,
        "linear+random:256",
        3.0,
        {"prior_std": 1.0},
        _PRIOR,
    ),
    Registration("oracle", "oracle", Oracle, ALL_DATA, MLP, 10.0, _GRADIENT, _DECAYED),
    Registration(
        "map_oracle",
        "oracle, linear head",
        MAPOracle,
        ALL_DATA,
        LINEAR,
        10.0,
        {"weight_decay": 1e-4},
        {**_NORM, "weight_decay": Range(1e-7, 1e-1)},
    ),
    Registration(
        "routed_oracle", "routed oracle", RoutedOracle, ALL_DATA, MLP, 10.0, _GRADIENT, _DECAYED
    ),
    Registration("gem", "GEM", GEM, REHEARSAL, MLP, 10.0, _GRADIENT, _DECAYED),
    Registration("agem", "A-GEM", AGEM, REHEARSAL, MLP, 10.0, _GRADIENT, _DECAYED),
    Registration(
        "der",
        "DER",
        DER,
        REHEARSAL,
        MLP,
        10.0,
        {**_GRADIENT, "alpha": 0.5},
        {**_DECAYED, "alpha": Range(0.01, 3.0)},
    ),
    Registration(
        "derpp",
        "DER++",
        DERPlusPlus,
        REHEARSAL,
        MLP,
        10.0,
        {**_GRADIENT, "alpha": 0.1, "beta": 1.0},
        {**_DECAYED, "alpha": Range(0.01, 3.0), "beta": Range(0.3, 3.0)},
    ),
    Registration("vcl", "VCL + rehearsal", VCL, REHEARSAL, MLP, 10.0, _VARIATIONAL, _BAYES),
    Registration(
        "class_rehearsal",
        "rehearsal of classes + Bayes",
        ClassRehearsal,
        REHEARSAL,
        MLP,
        10.0,
        _GRADIENT,
        _DECAYED,
    ),
    Registration(
        "nearest_class_mean",
        "nearest class mean",
        NearestClassMean,
        CLOSED_FORM,
        LINEAR,
        settings={"temperature": 3.0},
        space=_SCORES,
    ),
    Registration(
        "streaming_lda",
        "streaming LDA",
        StreamingLDA,
        CLOSED_FORM,
        LINEAR,
        settings={"temperature": 2.0, "shrinkage": 0.1},
        space={**_SCORES, "shrinkage": Range(1e-4, 0.5)},
    ),
    Registration(
        "class_gaussians",
        "class Gaussians",
        ClassGaussians,
        CLOSED_FORM,
        LINEAR,
        settings={"temperature": 3.0, "shrinkage": 0.05, "pooled": 0.95},
        space={**_SCORES, "shrinkage": Range(0.01, 0.3), "pooled": Range(0.5, 1.0)},
    ),
    Registration(
        "pooled_ridge",
        "pooled ridge",
        PooledRidge,
        CLOSED_FORM,
        "random:1500",
        10.0,
        {"ridge": 3e-4, "temperature": 0.2},
        {
            "feature_norm": (3.0, 10.0, 30.0),
            "ridge": Range(1e-6, 1e-1),
            "temperature": Range(0.02, 1.0),
        },
    ),
    Registration(
        "ranpac",
        "RanPAC",
        RanPAC,
        CLOSED_FORM,
        LINEAR,
        1.0,
        {"temperature": 0.1, "width": 2000},
        {**_NORM, "temperature": Range(0.02, 1.0)},
    ),
    Registration(
        "convex_combination",
        "convex combination",
        ConvexCombination,
        MERGING,
        MLP,
        10.0,
        _GRADIENT,
        _DECAYED,
    ),
    Registration(
        "convex_combination_shared_start",
        "convex combination, shared start",
        ConvexCombinationSharedStart,
        MERGING,
        MLP,
        10.0,
        _GRADIENT,
        _DECAYED,
    ),
    Registration(
        "fisher_merging",
        "Fisher merging",
        FisherMerging,
        MERGING,
        MLP,
        10.0,
        {**_GRADIENT, "floor": 1e-3},
        {**_DECAYED, "floor": Range(1e-6, 1.0)},
    ),
    Registration(
        "regmean",
        "RegMean",
        RegMean,
        MERGING,
        MLP,
        10.0,
        {**_GRADIENT, "kept": 0.9},
        {**_DECAYED, "kept": (0.7, 0.9, 1.0)},
    ),
    Registration(
        "mats",
        "MaTS, full Fisher, linear head",
        MaTS,
        MERGING,
        LINEAR,
        10.0,
        {**_GRADIENT, "learning_rate": 1e-2, "steps": 30},
        {**_DECAYED, "steps": Range(3, 300)},
    ),
    Registration(
        "ties",
        "TIES",
        TIES,
        MERGING,
        MLP,
        10.0,
        {**_GRADIENT, "kept": 0.5, "scale": 1.0},
        {**_DECAYED, "kept": (0.1, 0.2, 0.5, 1.0), "scale": Range(0.3, 3.0)},
    ),
    Registration("l2p", "L2P (adapted)", L2P, ONE_MODEL, MLP, 10.0, _GRADIENT, _DECAYED),
    Registration(
        "fine_tuning", "fine-tuning", FineTuning, ONE_MODEL, MLP, 10.0, _GRADIENT, _DECAYED
    ),
    Registration(
        "online_ewc",
        "online EWC",
        OnlineEWC,
        ONE_MODEL,
        MLP,
        10.0,
        {**_GRADIENT, "strength": 100.0},
        {**_DECAYED, "strength": Range(0.1, 1e4)},
    ),
    Registration(
        "online_laplace",
        "online Laplace, linear head",
        OnlineLaplace,
        ONE_MODEL,
        LINEAR,
        3.0,
        {"prior_std": 1.0, "strength": 1.0},
        {**_PRIOR, "strength": Range(0.1, 10.0)},
    ),
):
    register(_entry)
