"""One detector, and what all of them are written with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import regex

from proxy.shelf import compiled

Match = regex.Match[str]


@dataclass(frozen=True, slots=True)
class Detector:
    """One shape.

    Args:
        kind: What it is called in ``[redacted:<kind>]``.
        pattern: Its group ``secret`` is what must go.
        check: Whether a match is real; None takes every match.
        hints: In lower case; a text that has none of them is spared the search. Empty where the search is fast.
    """

    kind: str
    pattern: regex.Pattern[str]
    check: Callable[[Match], bool] | None = None
    hints: tuple[str, ...] = ()


def verbose(source: str, flags: int = 0) -> regex.Pattern[str]:
    """Compile a pattern that is written over several lines."""
    return compiled(source, regex.VERBOSE | flags)


NOT_REDACTED: Final = r"(?!\[redacted:)"
PLACEHOLDER: Final = verbose(
    r"""(?:null|none|nil|true|false|undefined|empty|required|optional|string|str|text|hidden|example|password|secret|token
        |yes|no|n/?a|tbd|todo|invalid|incorrect|wrong|expired|mismatch|redacted|filtered|changeme|forgotten|unknown
        |unchanged|same|below|above|bool(?:ean)?|bytes|varchar|char|int|hash(?:ed)?|plain(?:text)?|encrypted
        |bcrypt|argon2\w*|scrypt|md5|(?:sha|aes|rsa|hs|rs|es|pkcs|ed)-?[0-9]+[\w-]*
        |\$\{.*|\$\(.*|\$[A-Za-z_]\w*+|<[^>]*+>?|\{+[\w. -]*+\}*+|%[sd(].*|x{3,}+|\.{3,}+|•++|\*++|\[.*|\([^0-9]*|:\w++
        |(?:os|process|env|self|config|settings|this|req|request|args|var|local|data|module)\.[\w.\[\]()"']++
        |your[_ -].*|(?:\w++\.)++(?:password|passwd|pwd|secret|token)[0-9]?|&\w++|&?\w++[<\[][^0-9]*|\w++::.*
        |(?-i:[A-Z]\w*(?:Str|String|Field|Password|Input)[!;]?)|!(?:vault|secret|env)\b.*
        |[A-Za-z_][\w.]*+\(.*|(?:https?|op|vault|ssm|file|env)://?.*|[~.]{0,2}/[\w./-]*+)""",
    regex.IGNORECASE | regex.DOTALL,
)
"""What stands where a secret would, and is none: words for its state or type, code, references to where it is kept."""
PLACEHOLDER_CHARS: Final = 64
"""No placeholder is longer; and a value that was refused is looked into again, which must stay cheap."""


def is_no_placeholder(match: Match) -> bool:
    """Whether what was found may be the thing itself."""
    value: str = match["secret"]
    return len(value) > PLACEHOLDER_CHARS or PLACEHOLDER.fullmatch(value) is None
