"""The signature of a webhook: HMAC-SHA256 over the time and the body. The service signs, receivers verify.

Of the standard library alone, because a client needs nothing else.
"""

import hashlib
import hmac
import time

MAX_HEADER = 1000  # characters; ours has less than 100
MAX_TIME_DIGITS = 12  # digits


def signature_of(body: bytes, secret: str, at: int) -> str:
    """Return the header `deferkit-signature` of a body.

    Args:
        body: The bytes that are sent.
        secret: The secret of the webhook.
        at: When they are sent, in seconds since 1970.

    >>> signature_of(b"{}", "whsec_a", 1_700_000_000)[:30]
    't=1700000000,v1=04339dc4f01d65'
    """
    digest = hmac.new(secret.encode(), b"%d." % at + body, hashlib.sha256).hexdigest()
    return f"t={at},v1={digest}"


def verify_webhook(body: bytes, header: str, secret: str, tolerance_s: float = 300) -> bool:
    """Return whether a call of a webhook was signed with the secret, and not too long ago.

    Args:
        body: The body as it was received, byte for byte: JSON that was read and written again is another body.
        header: The header `deferkit-signature`; '' if there is none.
        secret: The secret of the webhook, as `client.webhooks.create` returned it.
        tolerance_s: By how many seconds the time of the signature may differ from this machine's clock. A call that was
            recorded and is sent again later is refused.

    Signatures are compared in constant time. A call that is good may come more than once: the header `deferkit-event`
    has the id to know it by.

    >>> header = signature_of(b"{}", "whsec_a", int(time.time()))
    >>> verify_webhook(b"{}", header, "whsec_a"), verify_webhook(b"[]", header, "whsec_a")
    (True, False)
    """
    if not isinstance(header, str) or not header.isascii() or len(header) > MAX_HEADER:
        return False
    parts = [part.strip().partition("=") for part in header.split(",")]
    times = [value for name, _, value in parts if name == "t"]
    if len(times) != 1 or not times[0].isdigit() or len(times[0]) > MAX_TIME_DIGITS:
        return False
    at = int(times[0])
    if not abs(time.time() - at) <= tolerance_s:
        return False
    wanted = signature_of(body, secret, at).partition("v1=")[2]
    return any(hmac.compare_digest(value, wanted) for name, _, value in parts if name == "v1")
