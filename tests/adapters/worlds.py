"""A tiny random text model, and tasks of token ids for it."""

import functools

import numpy as np
import torch
import transformers
from torch import nn

import ibcl

WORDS, LENGTH = 60, 6
NAMES = ("low", "high")


def config(**settings: object) -> transformers.BertConfig:
    return transformers.BertConfig(
        vocab_size=WORDS,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=32,
        **settings,
    )


def seeded(make: type[nn.Module], **settings: object) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return make(config(**settings)).eval()


@functools.cache
def base() -> nn.Module:
    return seeded(transformers.BertModel)


def texts(number: int, rows: int = 60, seed: int = 0, padded: int = 2) -> dict[str, torch.Tensor]:
    """Texts of one of the tasks: words of one half of the vocabulary, and some padding."""
    generator = torch.Generator().manual_seed(10 * seed + number)
    ids = torch.randint(1, WORDS // 2, (rows, LENGTH), generator=generator) + number * WORDS // 2
    mask = torch.ones(rows, LENGTH + padded, dtype=torch.long)
    mask[:, LENGTH:] = 0
    ids = torch.cat([ids, torch.zeros(rows, padded, dtype=torch.long)], 1)
    return {"input_ids": ids * mask, "attention_mask": mask}


def labels(tokens: dict[str, torch.Tensor]) -> np.ndarray:
    """Whether the words are mostly from the upper part of their half."""
    words = tokens["input_ids"][:, :LENGTH] % (WORDS // 2)
    return (words.float().mean(1) > WORDS / 4).long().numpy()


def task(number: int, rows: int = 60, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    tokens = texts(number, rows, seed)
    return ibcl.networks.token_ids(tokens), labels(tokens)


def taught(network: nn.Module | None = None, **settings: object) -> ibcl.IBCL:
    expert = ibcl.adapters.LoRA(rank=2, epochs=2, learning_rate=1e-2, share=1.0)
    settings = {"expert": expert, **settings}
    learner = ibcl.IBCL(base() if network is None else network, **settings)
    for number, name in enumerate(NAMES):
        learner.learn(*task(number), task=name)
    return learner
