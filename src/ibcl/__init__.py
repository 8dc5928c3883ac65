"""Imprecise Bayesian Continual Learning."""

from ibcl.gaussians import DenseGaussian, DiagonalGaussian, Mixture

__all__ = ["DenseGaussian", "DiagonalGaussian", "Mixture"]
