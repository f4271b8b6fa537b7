"""What secrets and personal numbers look like, as a list of detectors that guard.py applies in order.

Pure, a leaf. Every pattern is linear in the text (possessive, or bounded); a check in Python tells real values from
placeholders, counts and code, and verifies check digits.
"""

from __future__ import annotations

from typing import Final

from proxy.detectors.commands import COMMANDS
from proxy.detectors.detector import Detector
from proxy.detectors.keys import ADDRESSES, KEYS
from proxy.detectors.named import CODES, PASSWORDS, TOKENS
from proxy.detectors.numbers import NUMBERS

__all__ = ["DETECTORS", "SECRET_KINDS", "Detector"]

SECRET_KINDS: Final = frozenset({"private_key", "api_key", "password", "token"})
# Secrets first: a number inside a password is the password's.
DETECTORS: Final = (*KEYS, *COMMANDS, *ADDRESSES, *PASSWORDS, *TOKENS, *CODES, *NUMBERS)
