"""Text to vectors: the static model in the package, any model2vec model, or an API (`api_embedder`).

In comes text, out come unit vectors, or None where a text holds nothing that the model knows. The builtin
model is mapped from its file and tokenised here, which costs a tenth of the memory that model2vec itself takes.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import struct
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import sentencepiece

from proxy.api_embedder import ApiEmbedder, space
from proxy.config import Config
from proxy.errors import EmbedderError
from proxy.plugs import Embedder
from proxy.store.data_dir import DATABASE
from proxy.store.dimension import remembered
from proxy.types import Vector

BUILTIN_MODEL: Final = Path(__file__).parent / "models" / "static-zhen-256"

_WORDS_S: Final = 0.05
"""What an API leaves of recall's deadline to the rest of it; of a short one, a share."""
_QUERY_SHARE: Final = 0.6
_MAX_TOKENS: Final = 512
# model2vec cuts a text at 512 × its vocabulary's median token length (4) before it tokenises; the same cut keeps our
# vectors equal to its own, and bounds the work for a text of any length.
_MAX_CHARS: Final = 2048
_UNKNOWN: Final = 0
_HEADER_LIMIT: Final = 1 << 20
_SAMPLES: Final = 64
_SAMPLE_BYTES: Final = 4096


class StaticEmbedder:
    """The builtin static model: a vector is the weighted sum of its tokens' rows, at unit length.

    Questions and stored text are weighted differently. Loading maps the rows without reading them, so memory grows
    with the vocabulary in use only. Safe to call from any thread.

    Args:
        folder: Holds ``model.safetensors`` (int8 ``embeddings``, float ``weights`` and ``query_weights``) and
            ``sentencepiece.model``.

    Raises:
        EmbedderError: A file is missing, or is not of that form.
    """

    def __init__(self, folder: Path) -> None:
        path = folder / "model.safetensors"
        header, data_start = _read_header(path)
        self._rows = _tensor(path, header, data_start, "embeddings", np.dtype(np.int8), 2)
        self._weights = _tensor(path, header, data_start, "weights", np.dtype("<f4"), 1)
        self._query_weights = _tensor(path, header, data_start, "query_weights", np.dtype("<f4"), 1)
        self._tokenizer = _read_tokenizer(folder / "sentencepiece.model")
        sizes = {len(self._rows), len(self._weights), len(self._query_weights), self._tokenizer.vocab_size()}
        if len(sizes) != 1:
            raise EmbedderError(f"{folder}: model and tokenizer differ in vocabulary size; install the package anew")
        self._fingerprint = f"{folder.name}-{_sampled_hash(path, data_start)}-{self.dimension}"

    @property
    def fingerprint(self) -> str:
        """Folder name, sampled hash of the model file, dimension."""
        return self._fingerprint

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        return int(self._rows.shape[1])

    def documents(self, texts: Sequence[str]) -> list[Vector | None]:
        """Vectors of stored text, in order.

        Args:
            texts: Any texts; what lies past 512 tokens is not looked at.

        Returns:
            Unit vectors of shape (dimension,); None where the text has no letter or digit in a script that the model
            knows, or where most of its letters are in others: those all collapse to one token, and texts that say
            different things would look equal.
        """
        return [self._vector(text, self._weights) for text in texts]

    def query(self, text: str) -> Vector | None:
        """Vector of a question, to be compared with those of `documents`; None as there."""
        return self._vector(text, self._query_weights)

    def _vector(self, text: str, weights: npt.NDArray[np.float32]) -> Vector | None:
        # A lone surrogate (JSON may carry one) has no UTF-8 form, which the tokenizer wants.
        known = text[:_MAX_CHARS].encode("utf-8", "replace").decode("utf-8")
        ids: list[int] = self._tokenizer.encode(known)[:_MAX_TOKENS]
        if _UNKNOWN in ids:
            if not self._mostly_known(known, ids):
                return None
            ids = [token for token in ids if token != _UNKNOWN]
        elif not _has_content(known):
            return None
        picked = np.array(ids, dtype=np.intp)
        return _unit(weights[picked] @ self._rows[picked].astype(np.float32))

    def _mostly_known(self, text: str, ids: Sequence[int]) -> bool:
        pieces = self._tokenizer.encode(text, out_type=str)
        kept = lost = 0
        for piece, token in zip(pieces, ids, strict=False):
            letters = sum(map(str.isalnum, piece))
            if token == _UNKNOWN:
                lost += letters
            else:
                kept += letters
        return kept > 0 and kept >= lost


class Model2VecEmbedder:
    """Any model2vec model, by its folder or hub id, through model2vec's own loader.

    It has no question-side weights: questions are embedded as stored text is. Safe to call from any thread; calls wait
    for each other, since model2vec changes its tokenizer while it encodes.

    Args:
        name_or_path: A folder (anything that exists, or starts with ``.``, ``~`` or ``/``), or a hub id
            such as ``minishlab/potion-base-8M``, which is fetched on first use.

    Raises:
        EmbedderError: model2vec is not installed, the folder does not exist, or the model cannot be loaded.
    """

    def __init__(self, name_or_path: str) -> None:
        path = Path(name_or_path).expanduser()
        local = path.exists()
        if not local and (path.is_absolute() or name_or_path.startswith((".", "~"))):
            raise EmbedderError(f"embedding.model: the folder {name_or_path} does not exist; check the path")
        # model2vec asks the hub when it misses a file, which must not happen for a folder.
        with _environment("HF_HUB_OFFLINE", "1" if local else None):
            self._model = _load_model2vec(str(path) if local else name_or_path)
        self._lock = threading.Lock()
        name = path.name if local else name_or_path
        self._fingerprint = f"{name}-{_content_hash(self._model)}-{self.dimension}"

    @property
    def fingerprint(self) -> str:
        """Name, hash of rows, weights and tokenizer, dimension."""
        return self._fingerprint

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        return int(self._model.dim)

    def documents(self, texts: Sequence[str]) -> list[Vector | None]:
        """Vectors of stored text, in order; None where a text has no letter or digit that the model knows."""
        with_content = [text for text in texts if _has_content(text)]
        if not with_content:
            return [None] * len(texts)
        clean = [text.encode("utf-8", "replace").decode("utf-8") for text in with_content]
        with self._lock:
            encoded = self._model.encode(clean, use_multiprocessing=False)
        vectors = iter(np.asarray(encoded, dtype=np.float32))
        return [_unit(next(vectors)) if _has_content(text) else None for text in texts]

    def query(self, text: str) -> Vector | None:
        """Vector of a question: that of the same text when stored."""
        return self.documents([text])[0]


def open_embedder(config: Config) -> Embedder:
    """The embedder that `embedding:` in config.yaml names.

    Args:
        config: Settings. An API's dimension is looked up in the database, where an earlier start has left it.

    Raises:
        EmbedderError: The model cannot be loaded; or an API's dimension is not known yet, and it does not answer.
    """
    settings = config.embedding
    if settings.provider == "litellm":
        deadline_s = config.recall.deadline_ms / 1000
        query_s = max(deadline_s - _WORDS_S, _QUERY_SHARE * deadline_s)
        known = remembered(config.data_dir / DATABASE, space(settings))
        return ApiEmbedder(settings, query_s=query_s, dimension=known)
    return StaticEmbedder(BUILTIN_MODEL) if settings.model == "builtin" else Model2VecEmbedder(settings.model)


@contextmanager
def opened(config: Config) -> Iterator[Embedder]:
    """As `open_embedder`, closed at the end."""
    embedder = open_embedder(config)
    try:
        yield embedder
    finally:
        if isinstance(embedder, ApiEmbedder):
            embedder.close()


def _has_content(text: str) -> bool:
    return any(map(str.isalnum, text))


def _unit(vector: npt.NDArray[np.float32]) -> Vector | None:
    length = float(np.sqrt(vector @ vector))
    if not 0.0 < length < float("inf"):
        return None
    unit: Vector = vector / np.float32(length)
    return unit


def _read_header(path: Path) -> tuple[Mapping[str, Any], int]:
    """The safetensors header (a little-endian length of 8 bytes, then JSON), and where the tensors start."""
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > _HEADER_LIMIT:
                raise EmbedderError(f"{path} is not a safetensors file (its header claims {length} bytes)")
            header = json.loads(file.read(length))
    except (OSError, struct.error, ValueError) as error:
        raise EmbedderError(f"{path} cannot be read as a model ({error}); install the package anew") from error
    if not isinstance(header, dict):
        raise EmbedderError(f"{path} is not a safetensors file (its header is no JSON object)")
    return header, 8 + length


def _tensor(
    path: Path, header: Mapping[str, Any], data_start: int, name: str, dtype: np.dtype[Any], dimensions: int
) -> npt.NDArray[Any]:
    wanted = {"int8": "I8", "float32": "F32"}[dtype.name]
    try:
        entry = header[name]
        shape, (start, end) = tuple(entry["shape"]), entry["data_offsets"]
        if entry["dtype"] != wanted or len(shape) != dimensions:
            raise EmbedderError(f"{path}: {name} is {entry['dtype']} {shape}, not {wanted} with {dimensions} axes")
        if end - start != int(np.prod(shape)) * dtype.itemsize:
            raise EmbedderError(f"{path}: {name} has another size than its shape says; install the package anew")
        return np.memmap(path, dtype=dtype, mode="r", offset=data_start + start, shape=shape).view(np.ndarray)
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise EmbedderError(f"{path}: {name} cannot be read ({error}); install the package anew") from error


def _read_tokenizer(path: Path) -> Any:
    try:
        return sentencepiece.SentencePieceProcessor(model_file=str(path))
    except (OSError, RuntimeError) as error:
        raise EmbedderError(f"{path} cannot be read as a tokenizer ({error}); install the package anew") from error


def _sampled_hash(path: Path, data_start: int) -> str:
    """Hash of header, size and 64 blocks spread over the file: tells models apart in a millisecond, not in fifty.

    It is no check against damage: a changed byte between two blocks goes unseen.
    """
    size = path.stat().st_size
    digest = hashlib.sha256(str(size).encode())
    with path.open("rb", buffering=0) as file:
        digest.update(file.read(data_start))
        for block in range(_SAMPLES):
            file.seek(data_start + (size - data_start) * block // _SAMPLES)
            digest.update(file.read(_SAMPLE_BYTES))
    return digest.hexdigest()[:12]


def _load_model2vec(name: str) -> Any:
    # Imported here and by name: it is optional, and with its dependencies costs 100 MB that the builtin model spares.
    try:
        model2vec = importlib.import_module("model2vec")
    except ImportError as error:
        raise EmbedderError(
            "embedding.model: only 'builtin' works without model2vec; run: pip install 'sidemirror[model2vec]'"
        ) from error
    try:
        return model2vec.StaticModel.from_pretrained(name, force_download=False)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise EmbedderError(f"embedding.model: {name} cannot be loaded by model2vec: {error}") from error


def _content_hash(model: Any) -> str:
    digest = hashlib.sha256(model.tokenizer.to_str().encode())
    for array in (model.embedding, model.weights, model.token_mapping):
        digest.update(b"-" if array is None else np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:12]


@contextmanager
def _environment(name: str, value: str | None) -> Iterator[None]:
    """Set an environment variable for a while; None leaves it alone."""
    before = os.environ.get(name)
    if value is not None:
        os.environ[name] = value
    try:
        yield
    finally:
        if value is not None:
            os.environ.pop(name, None)
            if before is not None:
                os.environ[name] = before
