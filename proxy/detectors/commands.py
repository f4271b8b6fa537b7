"""Passwords in command lines, in SQL and in the headers of HTTP requests."""

from __future__ import annotations

from typing import Final

import regex

from proxy.detectors.detector import NOT_REDACTED, Detector, is_no_placeholder, verbose

_COMMAND_PASSWORD: Final = verbose(
    rf"""(?:\bcurl\s(?:(?!curl\s)[^\n\\]|\\.){{0,400}}?(?<=\s)(?:-u\s*+|--user[=\s]\s*+)["']?[^\s:"'$]{{1,64}}+:
          |\bsshpass\s++-p\s*+["']?
          |\b(?:mysql|mysqldump|mysqladmin|mariadb)\s(?:(?!mysql)[^\n|;]){{0,200}}?(?<=\s)-p(?=[^\s-])["']?
          |\bredis-cli\s(?:(?!redis-cli)[^\n|;]){{0,200}}?(?<=\s)(?:-a|--pass)\s++["']?
          |\bdocker\s++login\s(?:(?!docker)[^\n|;]){{0,200}}?(?<=\s)(?:-p|--password)\s++["']?
          |\brequirepass\s++["']?
          |\bIDENTIFIED\s++BY\s++["']
          |\bWITH\s++(?:ENCRYPTED\s++)?PASSWORD\s++['])
        {NOT_REDACTED}(?P<secret>[^\s"']++)""",
    regex.IGNORECASE | regex.DOTALL,
)
_HEADER: Final = verbose(
    r"""(?:\bBearer\s++(?=[A-Za-z._~+/=-]*+[0-9])|\bAuthorization\\?["']?\s*+[:=]\s*+\\?["']?(?:Basic|token)\s++)
        (?P<secret>[A-Za-z0-9._~+/=-]{12,}+)""",
    regex.IGNORECASE,
)
_COOKIE: Final = verbose(
    rf"""\b(?:Set-)?Cookie:\s++{NOT_REDACTED}
        (?P<secret>[\w.-]{{1,64}}+=[^\s"']{{8,}}+(?:;\ [\w.-]{{1,64}}+=[^\s"']++)*+)""",
    regex.IGNORECASE,
)

COMMANDS: Final = (
    Detector(
        "password",
        _COMMAND_PASSWORD,
        is_no_placeholder,
        hints=("curl", "sshpass", "mysql", "mariadb", "redis-cli", "docker", "requirepass", "identified", "password"),
    ),
    Detector("token", _HEADER, hints=("bearer", "authorization")),
    Detector("token", _COOKIE, hints=("cookie:",)),
)
