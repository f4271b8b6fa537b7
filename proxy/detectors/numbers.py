"""Personal numbers: bank cards, resident numbers, phones, e-mail addresses.

They are matched in a text whose full-width digits and odd spaces were made plain (`guard` sees to that).
"""

from __future__ import annotations

from typing import Final

from proxy.detectors.detector import Detector, Match, verbose


def _is_id_number(match: Match) -> bool:
    """The check digit of a Chinese resident number (GB 11643: ISO 7064, mod 11-2)."""
    digits: str = match["secret"].replace(" ", "").replace("-", "")
    weighted = sum(int(digit) * (2 ** (17 - place) % 11) for place, digit in enumerate(digits[:17]))
    return "10X98765432"[weighted % 11] == digits[17].upper()


def _is_card(match: Match) -> bool:
    """Luhn's check digit, and a beginning that issuers use with so many digits (ISO/IEC 7812; times, barcodes and
    IMEIs have others)."""
    written: str = match["secret"]
    text = "".join(filter(str.isdigit, written))
    if _ISSUED.fullmatch(text) is None or len(set(text)) == 1:
        return False
    if written.isdigit() and _OTHER_NUMBER.search(
        match.string[max(match.start("secret") - 24, 0) : match.start("secret")]
    ):
        return False
    digits = [*map(int, text)]
    doubled = (sum(divmod(2 * digit, 10)) for digit in digits[-2::-2])
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


def _is_international_number(match: Match) -> bool:
    return sum(map(str.isdigit, match["secret"])) >= 10


_ISSUED: Final = verbose(
    r"3[0689][0-9]{12} | 3[47][0-9]{13} | 35[0-9]{14} | (?:[4-6]|2[2-7]|9)[0-9]{15} | [4-6][0-9]{16,18}"
)
_OTHER_NUMBER: Final = verbose(
    r"(?i)(?:订单|流水|运单|单号|条码|order|transaction|tracking|invoice|imei|isbn)[^0-9\n]{0,10}$"
)
_ID_NUMBER: Final = verbose(
    r"""(?<![0-9A-Za-z_])(?P<secret>[1-9][0-9]{5}[\ -]?(?:18|19|20)[0-9]{2}[\ -]?(?:0[1-9]|1[0-2])
        (?:0[1-9]|[12][0-9]|3[01])[\ -]?[0-9]{3}[0-9Xx])(?![0-9A-Za-z_])"""
)
_SOCIAL_SECURITY: Final = verbose(
    r"(?i)\b(?:SSN|social\ security)[^0-9\n]{0,16}(?P<secret>[0-9]{3}-?[0-9]{2}-?[0-9]{4})(?![0-9-])"
)
# What follows in the same spacing may be the card's last digits, or its expiry date, security code, anything.
_CARD_OF_FIVE_GROUPS: Final = verbose(
    r"""(?<![0-9A-Za-z_.])(?P<secret>[2-69][0-9]{3}(?P<gap>[\ -])[0-9]{4}(?:(?P=gap)[0-9]{4}){2}(?P=gap)[0-9]{1,3})
        (?![0-9A-Za-z_])(?!\.[0-9])"""
)
_CARD: Final = verbose(
    r"""(?<![0-9A-Za-z_.])(?P<secret>[2-69][0-9]{12,18}+
      | [2-69][0-9]{3}(?P<gap>\ {1,2}|-)[0-9]{4}(?P=gap)[0-9]{4}(?P=gap)[0-9]{1,7}
      | 3[47][0-9]{2}(?P<gap>[\ -])[0-9]{6}(?P=gap)[0-9]{5})(?![0-9A-Za-z_])(?!\.[0-9])"""
)
# Before it may stand what chats write there; not a path, an amount or a longer number. 16 GiB are no phone.
_AREA: Final = r"0(?:10|2[0-9]|[3-9][0-9]{2})"
_CHINESE_PHONE: Final = verbose(
    rf"""(?=[01(+8])(?:(?<![0-9A-Za-z_.$￥¥])|(?<=(?<![A-Za-z])(?i:[vw]x?|tel)\.?)|(?<=\p{{Han}}_))
        (?<![0-9A-Za-z]-)(?<!(?:runs|questions?|jobs?|pull|issues|items?|posts?|videos?|status)/)(?<![?&]id=)
        (?P<secret>(?!17179869184(?![0-9])|1[3-9][0-9]0{{8}}(?![0-9]))
        (?:(?:(?:\+|00)?86[\ -]?)?1[3-9][0-9](?:(?:[\ -]?[0-9]{{4}}){{2}}|(?:\.[0-9]{{4}}){{2}})
          | 0[1-9][0-9]{{1,2}}-[2-9][0-9]{{6,7}} | (?:\({_AREA}\)\ ?|{_AREA}[\ -])[2-9][0-9]{{2,3}}[\ -]?[0-9]{{4}})
        (?:-[0-9]{{1,4}})?)
        (?:(?![0-9A-Za-z_])|(?=(?i:[vw]x)(?![A-Za-z0-9]))|(?=_\p{{Han}}))(?!-[0-9]|\.(?!0(?![0-9]))[0-9])
        (?!\ ?(?:[元次行条]|bytes|字节|tokens|param|参数|美元))"""
)
_INTERNATIONAL_PHONE: Final = verbose(
    r"""(?<![0-9A-Za-z+])(?P<secret>\+(?![0-9]{4}-[0-9]{2}-[0-9]{2}|[0-9]{1,3}(?:\.[0-9]{1,3}){3}(?![0-9.])
          |[0-9]{1,2}\.[0-9]{5,})[1-9](?:[\ .()-]{0,2}[0-9]){8,14})(?![0-9])"""
)
_AMERICAN_PHONE: Final = verbose(
    r"(?<![0-9A-Za-z_.-])(?P<secret>(?:\([2-9][0-9]{2}\)\ ?|[2-9][0-9]{2}-)[2-9][0-9]{2}-[0-9]{4})(?![0-9A-Za-z_-])"
)
_EMAIL: Final = verbose(
    r"""(?<![A-Za-z0-9._%+-])(?P<secret>[A-Za-z0-9._%+-]{1,64}+@[A-Za-z0-9-]{1,63}+(?:\.[A-Za-z0-9-]{1,63}+){1,8}+)"""
)

_DIGITS: Final = tuple("1234567890")

# The longest numbers first.
NUMBERS: Final = (
    Detector("id_number", _ID_NUMBER, _is_id_number, _DIGITS),
    Detector("id_number", _SOCIAL_SECURITY, hints=("ssn", "social security")),
    Detector("card", _CARD_OF_FIVE_GROUPS, _is_card, _DIGITS),
    Detector("card", _CARD, _is_card, _DIGITS),
    Detector("phone", _INTERNATIONAL_PHONE, _is_international_number, hints=("+",)),
    Detector("phone", _CHINESE_PHONE, hints=_DIGITS),
    Detector("phone", _AMERICAN_PHONE, hints=_DIGITS),
    Detector("email", _EMAIL, hints=("@",)),
)
