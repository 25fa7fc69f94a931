#!/usr/bin/env python3
"""Verifies a webhook (Standard Webhooks): that it was sent by whoever knows the
secret, just now, and as it is.

    verify.py SECRET_FILE ID TIMESTAMP SIGNATURE < BODY

ID, TIMESTAMP and SIGNATURE are the fields webhook-id, webhook-timestamp and
webhook-signature.  Exit status 0: it is good; 1: it is not; 2: wrong use.
"""

import base64
import hashlib
import hmac
import sys
import time

TOLERANCE = 300     # seconds that clocks may differ


def is_good(secret, webhook_id, timestamp, signatures, body, now=None):
    """secret: "whsec_..."; body: the bytes as they came, before any parsing."""
    now = time.time() if now is None else now

    if not timestamp.isdigit() or abs(now - int(timestamp)) > TOLERANCE:
        return False

    key = base64.b64decode(secret[len("whsec_"):], validate=True)
    signed = f"{webhook_id}.{timestamp}.".encode() + body
    mac = hmac.new(key, signed, hashlib.sha256).digest()
    expected = b"v1," + base64.b64encode(mac)

    # the field may hold several: one of them is enough

    return any(hmac.compare_digest(one.encode(), expected)
               for one in signatures.split(" "))


def main(arguments):
    if len(arguments) != 5:
        print(__doc__, file=sys.stderr)
        return 2

    with open(arguments[1], encoding="ascii") as file:
        secret = file.read().strip()

    if not secret.startswith("whsec_"):
        print(f"no secret in {arguments[1]}", file=sys.stderr)
        return 2

    good = is_good(secret, *arguments[2:5], sys.stdin.buffer.read())

    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv))
