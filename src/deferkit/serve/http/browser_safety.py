"""What a browser is told of the console's pages: run no script but ours, fetch from nowhere else, show in no frame."""


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
