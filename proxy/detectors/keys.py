"""Secrets that show what they are: private keys, API keys by their beginnings, and addresses that let one in."""

from __future__ import annotations

from typing import Final

from proxy.detectors.detector import NOT_REDACTED, Detector, is_no_placeholder, verbose

# With its end, whatever stands between (quoted, commented, in code); without, as far as it looks like one.
_PRIVATE_KEY: Final = verbose(
    r"""(?P<secret>-----BEGIN\ (?:[A-Z0-9]++\ ){0,4}PRIVATE\ KEY(?:\ BLOCK)?-----
        (?:(?:[^-]|-(?!----)){0,8000}+-----END\ [A-Z0-9\ ]{0,60}+-----
          |(?:[A-Za-z0-9+/=\s\\:,.()]|-(?!----))*+(?:-----END\ [A-Z0-9\ ]{0,60}+-----)?))"""
)
_ENCODED_PEM: Final = verbose(r"(?<![A-Za-z0-9+/])(?P<secret>LS0tLS1CRUdJTi[A-Za-z0-9+/=]{20,}+)")
_API_KEY: Final = verbose(
    r"""(?<![A-Za-z0-9_-])(?P<secret>
        sk-(?=[A-Za-z_-]*+[0-9])[A-Za-z0-9_-]{16,}+
      | gh[pousr]_[A-Za-z0-9]{20,}+ | github_pat_[A-Za-z0-9_]{20,}+ | glpat-[A-Za-z0-9_-]{16,}+
      | (?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9]) | AIza[A-Za-z0-9_-]{30,}+ | ya29\.[A-Za-z0-9_-]{20,}+
      | LTAI(?=[A-Za-z]*+[0-9])[A-Za-z0-9]{12,}+ | AKID(?=[A-Za-z]*+[0-9])[A-Za-z0-9]{28,}+
      | xox[abeoprs]-[A-Za-z0-9-]{10,}+ | (?:[srp]k_(?:live|test)|whsec)_[A-Za-z0-9]{16,}+
      | (?:hf|npm|gsk|r8|dop_v1|shpat|lin_api|glsa|figd|sbp|ntn|dckr_pat)_(?=[A-Za-z_-]*+[0-9])[A-Za-z0-9_-]{20,}+
      | (?:xai|pplx|tvly|pypi|nvapi|GOCSPX|tskey|xapp)-(?=[A-Za-z_-]*+[0-9])[A-Za-z0-9_-]{20,}+
      | hvs\.(?=[A-Za-z_-]*+[0-9])[A-Za-z0-9_-]{20,}+ | ATATT3[A-Za-z0-9_=-]{20,}+
      | SG\.[A-Za-z0-9_-]{16,}+\.[A-Za-z0-9_-]{16,}+ | [0-9]{8,10}:AA[A-Za-z0-9_-]{30,}+
      | eyJ[A-Za-z0-9_-]{6,}+\.[A-Za-z0-9_-]{6,}+(?:\.[A-Za-z0-9_-]*+){0,3}+)"""
)
_API_KEY_HINTS: Final = (
    *("_", "sk-", "glpat-", "akia", "asia", "aiza", "ya29.", "ltai", "akid", "xox", "xai-", "pplx-", "tvly-", "pypi-"),
    *("nvapi-", "gocspx-", "tskey-", "xapp-", "hvs.", "atatt3", "sg.", ":aa", "eyj"),
)
_URL_PASSWORD: Final = verbose(
    rf"""://[^\s:/@?\#"'<>]{{0,64}}+:{NOT_REDACTED}(?![0-9]{{1,5}}[,;?)|，。；）])
        (?P<secret>[^\s/"'<>，。；、（）]{{1,256}})@"""
)
_ADDRESS: Final = verbose(
    r"""(?:(?<=//)hooks\.slack\.com/(?:services|workflows)/|discord(?:app)?\.com/api/webhooks/[0-9]{1,24}/
          |open\.(?:feishu\.cn|larksuite\.com)/open-apis/bot/v2/hook/|[?&](?:key|sig|signature)=|(?<=\w)/bot(?=[0-9]{8,10}:))
        (?P<secret>(?=[A-Za-z/_-]*+[0-9:])[A-Za-z0-9/:_-]{20,}+)"""
)

KEYS: Final = (
    Detector("private_key", _PRIVATE_KEY),
    Detector("private_key", _ENCODED_PEM, hints=("ls0tls1crudjti",)),
    Detector("api_key", _API_KEY, hints=_API_KEY_HINTS),
)
ADDRESSES: Final = (
    Detector("password", _URL_PASSWORD, is_no_placeholder, hints=("://",)),
    Detector("token", _ADDRESS, hints=("hooks.slack", "/webhooks/", "/hook/", "key=", "sig=", "signature=", "/bot")),
)
