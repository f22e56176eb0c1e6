"""The signature of webhooks, against an HMAC that is computed by hand."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deferkit.client import verify_webhook
from deferkit.webhook_signature import signature_of
from tests.serve.harness.webhook_receiver import hmac_sha256

SECRET = "whsec_of-a-test"


def signed(body: bytes, at: float, secret: str = SECRET) -> str:
    """Return the header that RFC 2104 gives."""
    return f"t={int(at)},v1={hmac_sha256(secret.encode(), f'{int(at)}.'.encode() + body)}"


def test_the_hmac_by_hand_is_that_of_the_standard() -> None:
    """RFC 4231, test cases 1 and 6: a short key, and one that is longer than a block."""
    assert hmac_sha256(b"\x0b" * 20, b"Hi There") == "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"
    long = hmac_sha256(b"\xaa" * 131, b"Test Using Larger Than Block-Size Key - Hash Key First")
    assert long == "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"


@given(body=st.binary(max_size=300), secret=st.text(min_size=1, max_size=100), at=st.integers(0, 10**11))
def test_the_service_signs_as_the_standard_says(body: bytes, secret: str, at: int) -> None:
    try:
        secret.encode()
    except UnicodeEncodeError:
        return
    assert signature_of(body, secret, at) == signed(body, at, secret)


def test_a_good_signature_is_good_for_its_body_and_secret_and_for_a_while() -> None:
    body, now = b'{"event":"decided"}', time.time()
    assert verify_webhook(body, signed(body, now), SECRET)
    assert verify_webhook(body, signed(body, now - 290), SECRET)
    assert verify_webhook(body, signed(body, now + 290), SECRET)
    assert not verify_webhook(body, signed(body, now - 310), SECRET)
    assert not verify_webhook(body, signed(body, now + 310), SECRET)
    assert verify_webhook(body, signed(body, now - 310), SECRET, tolerance_s=1000)
    assert not verify_webhook(body, signed(body, now - 10), SECRET, tolerance_s=5)
    assert not verify_webhook(body + b" ", signed(body, now), SECRET)
    assert not verify_webhook(body, signed(body, now), SECRET + "x")
    moved = signed(body, now).replace(f"t={int(now)}", f"t={int(now) + 1}")
    assert not verify_webhook(body, moved, SECRET)


def test_one_of_several_signatures_is_enough_and_unknown_parts_are_passed_over() -> None:
    body, now = b"{}", time.time()
    good = signed(body, now)
    assert verify_webhook(body, f"{good},v1={'0' * 64}", SECRET)
    assert verify_webhook(body, good.replace(",v1=", f",v1={'0' * 64},v2=x, v1="), SECRET)


@pytest.mark.parametrize(
    "header",
    ["", "t=", "v1=", "t=1", "t=x,v1=y", "t=1e9,v1=y", "t=-1,v1=y", "t=" + "9" * 5000, "t=NaN,v1=", "é", "t=²,v1=a"],
)
def test_what_is_no_signature_is_refused(header: str) -> None:
    assert not verify_webhook(b"{}", header, SECRET)
    now = int(time.time())
    assert not verify_webhook(b"{}", f"t={now},{header}", SECRET)
    assert not verify_webhook(b"{}", f"t={now},t={now}," + signed(b"{}", now).partition(",")[2], SECRET)


def test_tolerance_that_is_no_number_lets_nothing_through() -> None:
    assert not verify_webhook(b"{}", signed(b"{}", time.time()), SECRET, tolerance_s=float("nan"))
