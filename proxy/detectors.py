"""What secrets and personal numbers look like, as a list of detectors that guard.py applies in order.

Pure, a leaf. Every pattern is linear in the text (possessive, or bounded); a check in Python tells real values from
placeholders, counts and code, and verifies check digits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import regex

from proxy.shelf import compiled

_Match = regex.Match[str]


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
    check: Callable[[_Match], bool] | None = None
    hints: tuple[str, ...] = ()


def _compile(source: str, flags: int = 0) -> regex.Pattern[str]:
    return compiled(source, regex.VERBOSE | flags)


# --- values that stand beside a name: password: …, 密码是…, api_key=… ---

_PLACEHOLDER: Final = _compile(
    r"""(?:null|none|nil|true|false|undefined|empty|required|optional|string|str|text|hidden|example|password|secret|token
        |\$\{.*|\$\(.*|\$[A-Z_]++|<[^>]*+>?|\{+[\w. -]*+\}*+|%[sd(].*|x{3,}+|\.{3,}+|•++|\[.*
        |(?:os|process|env|self|config|settings|this|req|request|args)\.[\w.\[\]()"']++|your[_ -].*
        |[A-Za-z_][\w.]*+\(.*|https?://.*|[~.]{0,2}/[\w./-]*+)""",
    regex.IGNORECASE | regex.DOTALL,
)
_MEASURE: Final = _compile(
    r"v?\d++(?:\.\d++)+.*|\d++-\d++|\d++[+-]?(?:digit|char|bit|letter|word)\w*+", regex.IGNORECASE
)
_COUNTED: Final = _compile(r"[位个年月日号次天]|\s*+(?:characters|chars|digits|letters)\b", regex.IGNORECASE)
_NAME: Final = _compile(r"pass|pwd|secret|token", regex.IGNORECASE)
_CLAUSE_END: Final = _compile(r"""\s*+(?:$|[\n。，；！？、,.;!?)）」”"'&])""")
_WEAK_SEPARATORS: Final = frozenset({"", "is", "was", "to"})
# No placeholder is longer; and a value that was refused is looked into again, which must stay cheap.
_PLACEHOLDER_CHARS: Final = 64


def _is_password(match: _Match) -> bool:
    """Tell ``password: hunter22`` from ``password: must be long``, ``密码是 8-16 位`` and ``password=read()``."""
    value: str = match["secret"]
    if len(value) > _PLACEHOLDER_CHARS:
        return True
    following = match.string[match.end("secret") : match.end("secret") + 12]
    if _PLACEHOLDER.fullmatch(value.strip("*_")) or not value.strip("*_"):
        return False
    if match["quote"]:
        return True
    if _MEASURE.fullmatch(value) or _COUNTED.match(following):
        return False
    separator = (match["separator"] or "").strip().lower()
    words_only = value.replace("_", "").replace("-", "").replace(".", "").isalpha()
    if words_only and following.startswith(("(", "[")):
        return False  # password = data.get("password")
    if separator in _WEAK_SEPARATORS:
        return any(map(str.isdigit, value))
    if separator.startswith(("=", ":=")):
        return not (words_only and _NAME.search(value))
    return not words_only or _CLAUSE_END.match(following) is not None


def _is_token(match: _Match) -> bool:
    value: str = match["secret"]
    if len(value) > _PLACEHOLDER_CHARS:
        return True
    if _PLACEHOLDER.fullmatch(value) or _MEASURE.fullmatch(value):
        return False
    return any(map(str.isdigit, value)) and any(map(str.isalpha, value))


_EQUALS: Final = r":=|=>|={1,2}|[:：＝]"
_BECOMES: Final = r"就?是[:：]?|[设改换]?[为成]了?[:：]?"
_NOT_REDACTED: Final = r"(?!\[redacted:)"
# Printable ASCII but for quotes and backticks, up to a URL's next parameter; the last one is no punctuation of the
# sentence or of brackets around.
_VALUE: Final = (
    rf"{_NOT_REDACTED}(?P<secret>(?:[!\#-%(-Z\\-_a-~]|\[(?!redacted:)|&(?!\w{{1,30}}=)){{2,}}"
    r"[!\#-%*+\-/0-9<=@-Z^_a-z|~])"
)
_QUOTED: Final = (
    rf"""\\?(?P<quote>["'`]){_NOT_REDACTED}(?P<secret>[^"'`\\\n]{{3,200}}+)\\?(?P=quote)"""
    rf"""|(?P<quote>[“「『]){_NOT_REDACTED}(?P<secret>[^”」』\n]{{3,200}}+)[”」』]"""
)

_PASSWORD: Final = _compile(
    rf"""(?:
        (?:pass(?:word|wd|phrase|code)|(?<![A-Za-z])pwd|verification\ code)(?:\\?["'`])?+
        (?:\ (?:for|of|on)\ [^\n.!?:=]{{1,40}}?)?
        (?P<separator>\s*+(?:{_EQUALS})|\ (?:is|was|to)(?=\s)|(?<=--[\w-]{{0,10}}\w{{3,8}})(?=\s))
      | (?:密码|口令|验证码|校验码)(?:\\?["'`])?+
        (?:[^。！？，,\n：:=是为成]{{0,10}}(?P<separator>{_EQUALS}|{_BECOMES})|(?P<separator>))
    )\s*+(?:{_QUOTED}|["'`“「]?{_VALUE})""",
    regex.IGNORECASE,
)
_TOKEN: Final = _compile(
    rf"""(?:api[_\ -]?key|secret(?:[_\ -]?(?:access[_\ -]?)?key)?|client[_\ -]?secret|token|credential
          |(?:access|account|private|encryption|signing)[_\ -]?key(?:[_\ -]?id)?|密钥|秘钥|私钥|令牌|凭证)
        (?:\\?["'`])?+
        (?:\s*+(?:{_EQUALS}|{_BECOMES})|\ (?:is|was|to)(?=\s)|(?<=--[\w-]{{2,16}})(?=\s)|(?<=[密秘私]钥|令牌|凭证))
        \s*+(?:\\?["'`“「])?+{_NOT_REDACTED}(?P<secret>[A-Za-z0-9_\-./+=~]{{8,}}+)""",
    regex.IGNORECASE,
)
_URL_PASSWORD: Final = _compile(rf"""://[^\s:/@?\#"'<>]{{0,64}}+:{_NOT_REDACTED}(?P<secret>[^\s/"'<>]{{1,256}})@""")
_COMMAND_PASSWORD: Final = _compile(
    rf"""(?:\bcurl\s[^\n]{{0,100}}?(?<=\s)(?:-u|--user)\s++["']?[^\s:"']{{1,64}}+:|\bsshpass\s++-p\s*+["']?)
        {_NOT_REDACTED}(?P<secret>[^\s"']++)"""
)
_AUTHORIZATION: Final = _compile(
    r"""(?:\bBearer\s++(?=[A-Za-z._~+/=-]*+[0-9])|\bAuthorization\\?["']?\s*+[:=]\s*+\\?["']?(?:Basic|token)\s++)
        (?P<secret>[A-Za-z0-9._~+/=-]{12,}+)""",
    regex.IGNORECASE,
)

# --- secrets that show what they are ---

_PRIVATE_KEY: Final = _compile(
    r"""(?P<secret>-----BEGIN\ (?:[A-Z0-9]++\ ){0,4}PRIVATE\ KEY(?:\ BLOCK)?-----
        (?:[A-Za-z0-9+/=\s\\:,.()]|-(?!----))*+(?:-----END\ [A-Z0-9\ ]{0,60}+-----)?)"""
)
_API_KEY: Final = _compile(
    r"""(?<![A-Za-z0-9_-])(?P<secret>
        sk-(?=[A-Za-z_-]*+[0-9])[A-Za-z0-9_-]{16,}+
      | gh[pousr]_[A-Za-z0-9]{20,}+ | github_pat_[A-Za-z0-9_]{20,}+ | glpat-[A-Za-z0-9_-]{16,}+
      | (?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9]) | AIza[A-Za-z0-9_-]{30,}+ | ya29\.[A-Za-z0-9_-]{20,}+
      | LTAI(?=[A-Za-z]*+[0-9])[A-Za-z0-9]{12,}+ | AKID(?=[A-Za-z]*+[0-9])[A-Za-z0-9]{28,}+
      | xox[abeoprs]-[A-Za-z0-9-]{10,}+ | (?:[srp]k_(?:live|test)|whsec)_[A-Za-z0-9]{16,}+
      | (?:hf|npm|gsk|r8|dop_v1|shpat|lin_api)_(?=[A-Za-z]*+[0-9])[A-Za-z0-9]{20,}+
      | (?:xai|pplx|tvly|pypi)-(?=[A-Za-z_-]*+[0-9])[A-Za-z0-9_-]{20,}+
      | SG\.[A-Za-z0-9_-]{16,}+\.[A-Za-z0-9_-]{16,}+ | [0-9]{8,10}:AA[A-Za-z0-9_-]{30,}+
      | eyJ[A-Za-z0-9_-]{6,}+\.[A-Za-z0-9_-]{6,}+(?:\.[A-Za-z0-9_-]*+){0,3}+)"""
)

_API_KEY_HINTS: Final = (
    *("sk-", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "akia", "asia", "aiza", "ya29.", "ltai"),
    *("akid", "xox", "k_live_", "k_test_", "whsec_", "hf_", "npm_", "gsk_", "r8_", "dop_v1_", "shpat_", "lin_api_"),
    *("xai-", "pplx-", "tvly-", "pypi-", "sg.", ":aa", "eyj"),
)

# --- personal numbers ---


def _is_id_number(match: _Match) -> bool:
    """The check digit of a Chinese resident number (GB 11643: ISO 7064, mod 11-2)."""
    digits: str = match["secret"].replace(" ", "").replace("-", "")
    weighted = sum(int(digit) * (2 ** (17 - place) % 11) for place, digit in enumerate(digits[:17]))
    return "10X98765432"[weighted % 11] == digits[17].upper()


def _is_card(match: _Match) -> bool:
    """Luhn's check digit, 13 to 19 digits, and a beginning that issuers use (dates and clock counts have others)."""
    digits = [int(digit) for digit in match["secret"] if digit.isdigit()]
    if not 13 <= len(digits) <= 19 or len(set(digits)) == 1 or (digits[0] == 2 and not 2 <= digits[1] <= 7):
        return False
    doubled = (sum(divmod(2 * digit, 10)) for digit in digits[-2::-2])
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


def _is_international_number(match: _Match) -> bool:
    return sum(map(str.isdigit, match["secret"])) >= 10


_ID_NUMBER: Final = _compile(
    r"""(?<![0-9A-Za-z_])(?P<secret>[1-9][0-9]{5}[\ -]?(?:18|19|20)[0-9]{2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12][0-9]|3[01])
        [\ -]?[0-9]{3}[0-9Xx])(?![0-9A-Za-z_])"""
)
# What follows in the same spacing may be the card's last digits, or its expiry date, security code, anything.
_CARD_OF_FIVE_GROUPS: Final = _compile(
    r"""(?<![0-9A-Za-z_.])(?P<secret>[2-69][0-9]{3}(?P<gap>[\ -])[0-9]{4}(?:(?P=gap)[0-9]{4}){2}(?P=gap)[0-9]{1,3})
        (?![0-9A-Za-z_])(?!\.[0-9])"""
)
_CARD: Final = _compile(
    r"""(?<![0-9A-Za-z_.])(?P<secret>[2-69][0-9]{12,18}+
      | [2-69][0-9]{3}(?P<gap>[\ -])[0-9]{4}(?P=gap)[0-9]{4}(?P=gap)[0-9]{1,4}
      | 3[47][0-9]{2}(?P<gap>[\ -])[0-9]{6}(?P=gap)[0-9]{5})(?![0-9A-Za-z_])(?!\.[0-9])"""
)
_CHINESE_PHONE: Final = _compile(
    r"""(?<![0-9A-Za-z_.])(?<![0-9A-Za-z]-)(?P<secret>
        (?:(?:\+?86[\ -]?)?1[3-9][0-9](?:[\ -]?[0-9]{4}){2} | 0[1-9][0-9]{1,2}-[2-9][0-9]{6,7})(?:-[0-9]{1,4})?)
        (?![0-9A-Za-z_])(?![.-][0-9])"""
)
_INTERNATIONAL_PHONE: Final = _compile(r"(?<![0-9A-Za-z+])(?P<secret>\+[1-9](?:[\ .()-]{0,2}[0-9]){8,14})(?![0-9])")
_EMAIL: Final = _compile(
    r"""(?<![A-Za-z0-9._%+-])(?P<secret>[A-Za-z0-9._%+-]{1,64}+@[A-Za-z0-9-]{1,63}+(?:\.[A-Za-z0-9-]{1,63}+){1,8}+)"""
)

SECRET_KINDS: Final = frozenset({"private_key", "api_key", "password", "token"})
# Secrets first: a number inside a password is the password's. Then the longest numbers first.
DETECTORS: Final = (
    Detector("private_key", _PRIVATE_KEY),
    Detector("api_key", _API_KEY, hints=_API_KEY_HINTS),
    Detector("password", _URL_PASSWORD),
    Detector("password", _COMMAND_PASSWORD, hints=("curl", "sshpass")),
    Detector("token", _AUTHORIZATION, hints=("bearer", "authorization")),
    Detector(
        "password", _PASSWORD, _is_password, hints=("pass", "pwd", "verification", "密码", "口令", "验证码", "校验码")
    ),
    Detector("token", _TOKEN, _is_token, hints=("key", "secret", "token", "credential", "钥", "令牌", "凭证")),
    Detector("id_number", _ID_NUMBER, _is_id_number),
    Detector("card", _CARD_OF_FIVE_GROUPS, _is_card),
    Detector("card", _CARD, _is_card),
    Detector("phone", _INTERNATIONAL_PHONE, _is_international_number),
    Detector("phone", _CHINESE_PHONE),
    Detector("email", _EMAIL),
)
