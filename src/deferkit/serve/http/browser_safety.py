"""What a browser may do: run no script but ours, show no page in a frame, and send nothing on behalf of another site.

Browsers say where a request comes from in headers that no page can set (Sec-Fetch-Site, Origin).
"""

from collections.abc import Mapping
from typing import Any

from deferkit.serve.domain.problems import Problem
from deferkit.serve.http.headers import header

READS = ("GET", "HEAD", "OPTIONS")
OURS = (b"same-origin", b"none")  # none: a person typed the address


def check_same_origin(scope: Mapping[str, Any], *, reads: bool = False) -> None:
    """Raise if a page of another origin makes this request with rights that are not in the request itself.

    Args:
        scope: The request.
        reads: Refuse GET and HEAD as well.
    """
    if not reads and scope["method"] in READS:
        return
    site, origin = header(scope, b"sec-fetch-site"), header(scope, b"origin")
    refused = site not in OURS if site else origin and origin.partition(b"://")[2] != header(scope, b"host")
    if refused:
        raise Problem(403, "cross_site", "A page of another site may not call the service.")


def page_headers(image_hosts: str) -> dict[str, str]:
    """Return the headers of every page and file of the console.

    Args:
        image_hosts: Hosts whose images a page may show, separated by commas; as secure as the page, or more.

    >>> page_headers("")["content-security-policy"].split("; ")[3]
    "img-src 'self' data:"
    >>> page_headers("img.example, cdn.example:8443")["content-security-policy"].split("; ")[3]
    "img-src 'self' data: img.example cdn.example:8443"
    """
    images = "".join(f" {host.strip()}" for host in image_hosts.split(",") if host.strip())
    policy = [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        f"img-src 'self' data:{images}",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ]
    return {
        "content-security-policy": "; ".join(policy),
        "x-frame-options": "DENY",
        "referrer-policy": "no-referrer",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
    }
