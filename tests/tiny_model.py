"""Tiny model2vec models, made on the spot: a word's vector is drawn at random, another one in each model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

WORDS = ("[UNK]", "[PAD]", "note", "tea", "coffee", "cat", "berlin", "lisbon", "likes", "flies", "called", "tux")
DIMENSION = 8


def tiny_model(folder: Path, seed: int, words: Sequence[str] = WORDS) -> Path:
    """Write a model2vec model that knows these words, and numbers from 0 to 999.

    Returns:
        The folder.
    """
    from model2vec import StaticModel  # noqa: PLC0415 - of the test environment only, and slow to import
    from tokenizers import Tokenizer, models, pre_tokenizers  # noqa: PLC0415

    known = [*words, *map(str, range(1000))]
    tokenizer = Tokenizer(models.WordLevel({word: place for place, word in enumerate(known)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    vectors: Any = np.random.default_rng(seed).normal(size=(len(known), DIMENSION)).astype(np.float32)
    StaticModel(vectors, tokenizer, normalize=True).save_pretrained(folder)
    return folder
