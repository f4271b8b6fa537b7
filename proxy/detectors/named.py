"""Values that stand beside a name: password: …, 密码是…, api_key=…, Your code is …"""

from __future__ import annotations

from typing import Final

import regex

from proxy.detectors.detector import (
    NOT_REDACTED,
    PLACEHOLDER,
    PLACEHOLDER_CHARS,
    Detector,
    Match,
    verbose,
)

_MEASURE: Final = verbose(
    r"v?[0-9]{1,3}+(?:\.[0-9]++)+.*|[0-9]{1,2}-[0-9]{1,2}|[0-9]++[+-]?(?:digit|char|bit|letter|word)\w*+|[0-9.]++[%x]"
    r"|(?:[0-9]++(?:ms|px|min|[smhdw]))++",
    regex.IGNORECASE,
)
_COUNTED: Final = verbose(r"[位个年月日号次天]|\s*+(?:characters|chars|digits|letters)\b", regex.IGNORECASE)
_NAME: Final = verbose(r"pass|pwd|secret|token", regex.IGNORECASE)
_CLAUSE_END: Final = verbose(r"""\s*+(?:$|[\n。，；！？、,.;!?)）】」”’"'`*&|])|\s++[\u4e00-\u9fff]|</""")
_OTHER_THING: Final = verbose(
    "算法|加密|哈希|散列|管理|邮箱|端口|接口|字段|列|表|文件|地址|正则|规则|组件|服务|时间|倒计时|登录|找回|学|长度|强度|策略|错误"
)
"""What may stand between 密码 and 是, and makes it another thing's name."""
_WEAK_SEPARATORS: Final = frozenset({"", "is", "was", "to", "now", "still", "be", "|"})
_PIN: Final = frozenset({"pin", "otp"})
_SHORT_VALUE: Final = 4
_HYPHENS_OF_A_PASSPHRASE: Final = 3
_LONG_WORD: Final = 12


def _is_password(match: Match) -> bool:
    """Tell ``password: hunter22`` from ``password: must be long``, ``密码是 8-16 位`` and ``password=read()``."""
    value: str = match["secret"]
    if len(value) > PLACEHOLDER_CHARS:
        return True
    following = match.string[match.end("secret") : match.end("secret") + 12]
    if PLACEHOLDER.fullmatch(value.strip("*_")) or not value.strip("*_") or _OTHER_THING.search(match["gap"] or ""):
        return False
    if match["short"] and not _is_short_named(match["short"].lower(), value):
        return False
    if match["quote"]:
        return True
    if _MEASURE.fullmatch(value) or _COUNTED.match(following):
        return False
    words_only = value.replace("_", "").replace("-", "").replace(".", "").isalpha()
    if words_only and (
        following.startswith(("(", "[")) or "\n" in match.string[match.end("name") : match.start("secret")]
    ):
        return match["separator"].endswith("value:")  # password = data.get("password"); an empty form
    return _is_said(match, value, following, words_only)


def _is_short_named(name: str, value: str) -> bool:
    """Names that mean other things as well: pass, pw, pin."""
    if name in _PIN:
        return value.isdigit() and _SHORT_VALUE <= len(value) <= 2 * _SHORT_VALUE
    return len(value) >= _SHORT_VALUE and not value.isdigit() and any(map(str.isdigit, value))


def _is_said(match: Match, value: str, following: str, words_only: bool) -> bool:
    """Whether what joins name and value makes it the value."""
    separator = (match["separator"] or "").strip().lower()
    joint = separator.rpartition(" ")[2]
    if (joint.rstrip(":：") or joint) in _WEAK_SEPARATORS:
        return any(map(str.isdigit, value)) or (words_only and value.count("-") >= _HYPHENS_OF_A_PASSPHRASE)
    if separator.startswith(("=", ":=")):
        return not (words_only and _NAME.search(value)) or _is_set(match["name"], value)
    return not words_only or _CLAUSE_END.match(following) is not None


def _is_set(name: str, value: str) -> bool:
    """``MYSQL_ROOT_PASSWORD=my-secret-pw``: in an environment, what stands behind ``=`` is no other variable."""
    return "-" in value or (name.isupper() and not value.isupper() and "_" not in value)


def _is_token(match: Match) -> bool:
    value: str = match["secret"]
    if len(value) > PLACEHOLDER_CHARS:
        return True
    following = match.string[match.end("secret") : match.end("secret") + 1]
    if PLACEHOLDER.fullmatch(value) or _MEASURE.fullmatch(value) or _NO_TOKEN.fullmatch(value):
        return False
    if following in ("(", "[") and "-" not in value:
        return False  # token = uuid.uuid4().hex
    if match["loose"]:
        return len(value) >= _LONG_WORD + _SHORT_VALUE and value.isalnum() and _is_mixed(value)
    return _is_mixed(value) or (
        match["name"].isupper() and value.isalpha() and value.islower() and len(value) >= _LONG_WORD
    )


def _is_mixed(value: str) -> bool:
    return any(map(str.isdigit, value)) and any(map(str.isalpha, value))


_EQUALS: Final = r":=|=>|={1,2}|[:：＝]"
_BECOMES: Final = r"就?是[:：]?|[设改换]?[为成]了?[:：]?"
# Printable ASCII but for quotes and backticks, up to a URL's next parameter; the last one is no punctuation of the
# sentence or of brackets around.
_VALUE: Final = (
    rf"{NOT_REDACTED}(?P<secret>(?:[!\#-%(-;=-Z\\-_a-{{}}~]|<(?!/)|\|(?!\s)|\[(?!redacted:)|&(?!\w{{1,30}}=)){{2,}}"
    r"[!\#-%*+\-/0-9=@-Z^_a-z~])"
)
_QUOTED: Final = (
    rf"""\\?(?P<quote>["'`]){NOT_REDACTED}(?P<secret>[^"'`\\\n]{{3,200}}+)\\?(?P=quote)"""
    rf"""|(?P<quote>[“「『【‘]){NOT_REDACTED}(?P<secret>[^”」』】’\n]{{3,200}}+)[”」』】’]"""
)
_BOLD: Final = r"(?:\*\*|__)?+"
_IN_BRACKETS: Final = r"(?:\ ?[(（][^()（）\n]{1,20}[)）])?+"

_PASSWORD: Final = verbose(
    rf"""(?:
        (?P<name>pass(?:word|wd|phrase|code)|(?<![A-Za-z])(?:pwd|psw|pswd)
          |(?<![A-Za-z])(?<!boarding\ )(?P<short>pass|pw|pin|otp)(?![A-Za-z])
          |(?:verification|confirmation|security|login|authentication|one-time|2FA)\ code)
        (?:\\?["'`])?+{_BOLD}{_IN_BRACKETS}(?:\ (?:for|of|on)\ (?:[^\n.!?:=]|\.(?=\w)){{1,40}}?)?
        (?P<separator>\s*+(?:{_EQUALS}|{_BECOMES})|\ (?:is|was|to)(?:\ (?:now|still))?[:：]?(?=\s)
          |\ (?:should|will)\ be(?=\s)|\ (?:changed|set|reset|updated)\ to[:：]?(?=\s)|\ ?\|(?=\s)
          |>(?=[^<\s]{{3,64}}</)|["']?[ \t]*+\n[ \t]*+value:|(?<=--[\w-]{{0,10}}\w{{3,8}})(?=\s))
      | (?P<name>密[码碼]|口令|[验驗][证證][码碼]|校[验驗][码碼]|提取码|动态码|授权码|PIN码)(?:\\?["'`])?+{_BOLD}
        (?:(?P<gap>[^。！？，,\n：:=是为成|]{{0,10}})(?P<separator>{_EQUALS}|{_BECOMES})
          |(?P<separator>\s*+(?:\||→|->))|(?P<separator>)(?![ \t]*+\n(?!\S{{6,64}}+[ \t]*+(?:\n|$))))
    )\s*+{_BOLD}\s*+(?:{_QUOTED}|["'`“「【‘]?{_VALUE})""",
    regex.IGNORECASE,
)
_NO_TOKEN: Final = verbose(
    r".*\.(?:jpe?g|png|pem|json|ya?ml|txt|pdf|crt|key)|gpt-.*|id_(?:rsa|dsa|ecdsa|ed25519)\w*", regex.IGNORECASE
)
_TOKEN: Final = verbose(
    rf"""(?:(?P<name>api[_\ -]?key|secret(?:[_\ -]?(?:access[_\ -]?)?key)?|client[_\ -]?secret|token|credential
          |(?:access|account|private|encryption|signing|preshared)[_\ -]?key(?:[_\ -]?id)?|dockerconfigjson
          |密钥|秘钥|私钥|令牌|凭证)
          |(?P<name>(?P<loose>(?<=[A-Za-z]_)key|(?<![A-Za-z_])(?:key|sk|ak))))
        (?:\\?["'`])?+{_BOLD}(?:\ \[[^\]\n]{{0,24}}+\])?+(?:\ (?:for|of|on)\ [^\n.!?:=]{{1,40}}?)?
        (?:\s*+(?:{_EQUALS}|{_BECOMES})|\ (?:is|was|to)(?=\s)|(?<=--[\w-]{{2,16}})(?=\s)|(?<=[密秘私]钥|令牌))
        \s*+{_BOLD}\s*+(?:\\?["'`“「【])?+{NOT_REDACTED}(?P<secret>[A-Za-z0-9_\-./+=~]{{8,}}+)""",
    regex.IGNORECASE,
)
_CODE: Final = verbose(
    r"""(?<![0-9A-Za-z])(?:[A-Z]-)?(?P<secret>[0-9]{4,8})
          (?=\s*+(?:是|为)[你您]的?\w{0,6}(?:验证|校验|动态|登录)码|\ is\ your\ [\w\ ]{0,30}\bcode\b)
      |\byour\ (?:(?:verification|login|security|access|sign-in|confirmation|one-time)\ )?code\ is[:：]?[ ]
        (?P<secret>[0-9]{4,8})\b
      |\b(?:CVV2?|CVC2?|安全码)\s*+(?:[:：=是为]|\bis\b)?\s*+(?P<secret>[0-9]{3,4})(?![0-9位])""",
    regex.IGNORECASE,
)

PASSWORDS: Final = (
    Detector(
        "password",
        _PASSWORD,
        _is_password,
        hints=(
            *("pass", "pwd", "psw", " code"),
            *(
                f"{name}{joint}"
                for name in ("pw", "pin", "otp")
                for joint in (":", "：", "=", "是", " is", " =", '"', "码")
            ),
            *("密码", "密碼", "口令", "验证码", "驗證碼", "校验码", "校驗碼", "提取码", "动态码", "授权码"),
        ),
    ),
)
TOKENS: Final = (
    Detector(
        "token",
        _TOKEN,
        _is_token,
        hints=(
            *("key", "secret", "token", "credential", "dockerconfig", "钥", "令牌", "凭证"),
            *(f"{name}{joint}" for name in ("sk", "ak") for joint in (":", "：", "=", "是", '"')),
        ),
    ),
)
CODES: Final = (Detector("password", _CODE, hints=("code", "cvv", "cvc", "码")),)
