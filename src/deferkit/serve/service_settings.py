"""Settings of a service, read once from the environment and the command line."""

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any

from deferkit.errors import InvalidArgument

PREFIX = "DEFERKIT_"
IMAGE_HOST = re.compile(r"(\*\.)?[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*(:[0-9]{1,5})?")
TRUTH = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}


def setting(default: Any, what: str, *, least: float | None = None, most: float | None = None) -> Any:
    """Return a field with its description and bounds."""
    return field(default=default, metadata={"what": what, "least": least, "most": most})


def default_text(setting: Field[Any]) -> str:
    """Return the default of a setting, as help and documentation show it.

    >>> [default_text(each) for each in fields(ServiceSettings) if each.name in ("port", "max_body", "body_timeout_s")]
    ['8080', '1,000,000', '10']
    """
    default = setting.default
    if isinstance(default, bool):
        return "on" if default else "off"
    if isinstance(default, str) or setting.name == "port":
        return str(default)
    return f"{default:,g}" if isinstance(default, float) else f"{default:,}"


def wrong(name: str, what: str, value: Any) -> InvalidArgument:
    """Return the error of an invalid setting."""
    return InvalidArgument(f"The setting '{name}' must be {what}. Got {value!r} instead.")


@dataclass(frozen=True, kw_only=True)
class ServiceSettings:
    """Settings of a service. Each is an option of `deferkit serve` and a variable `DEFERKIT_…`.

    >>> ServiceSettings.from_environment({"DEFERKIT_PORT": "9000"}).port
    9000
    """

    store: str = setting("deferkit.db", "the database: a file (SQLite) or a postgresql:// URL")
    host: str = setting("127.0.0.1", "the address to listen on; any but a loopback address needs API keys")
    port: int = setting(8080, "the port to listen on; 0 selects a free one", least=0, most=65535)
    address: str = setting(
        "", "the URL (http://…, https://…) at which other processes on a shared database reach this one"
    )
    tls_cert: str = setting("", "the certificate file (PEM) for HTTPS")
    tls_key: str = setting("", "the private key file (PEM); by default the key is in the certificate file")
    queue_limit: int = setting(1024, "maximum number of waiting calls; more get 503", least=1, most=1_000_000)
    tenant_share: float = setting(0.5, "maximum share of the queue per tenant", least=0.001, most=1)
    group_limit: int = setting(256, "maximum number of tasks per commit", least=1, most=100_000)
    rate: float = setting(1000.0, "maximum calls per second and tenant; 0 disables the limit", least=0, most=1_000_000)
    max_policies: int = setting(100, "maximum number of policies per tenant; more get 409", least=1, most=100_000)
    tenant_memory: int = setting(
        4_500,
        "maximum memory of a tenant's policies in MB, estimated from their settings; a policy beyond that gets 409",
        least=1,
        most=100_000_000,
    )
    tenant_disk: int = setting(
        0,
        "maximum size of a tenant's policies in the store in MB; new tasks beyond that get 409; 0 disables the limit",
        least=0,
        most=1_000_000_000,
    )
    max_claims: int = setting(
        1000,
        "maximum number of claims per reviewer and policy; more get 409",
        least=1,
        most=1_000_000,
    )
    max_body: int = setting(1_000_000, "maximum size of a request in bytes; more get 413", least=1000, most=100_000_000)
    body_timeout_s: float = setting(
        10.0, "maximum seconds for a request to arrive; slower ones get 408", least=0.01, most=3600
    )
    max_connections: int = setting(
        1000,
        "maximum number of connections; one more takes the place of one that waits, or gets 503",
        least=1,
        most=1_000_000,
    )
    max_connections_per_address: int = setting(
        0,
        "maximum number of connections per client address (IPv6: per /64 network); more get 503; 0 disables the limit",
        least=0,
        most=1_000_000,
    )
    owner_lease_s: float = setting(
        15.0, "seconds after which a silent process loses its policies", least=0.1, most=86_400
    )
    max_clock_jump_s: float = setting(
        300.0,
        "maximum jump of the clock between two starts, in seconds, that the service follows; 0 follows any jump",
        least=0,
        most=1e12,
    )
    snapshot_every: int = setting(20_000, "log records between two snapshots", least=1, most=1_000_000_000)
    stop_s: float = setting(20.0, "seconds to drain calls in flight when the service stops", least=0, most=3600)
    session_s: float = setting(43_200.0, "seconds after which a browser must log in again", least=1, most=31_536_000)
    image_hosts: str = setting("", "hosts whose images the review page may show, separated by commas")
    webhook_private: bool = setting(False, "allow webhooks to private, loopback and link-local addresses")
    webhook_backlog: int = setting(
        10_000,
        "maximum number of undelivered events per webhook; of more, the oldest are given up and counted",
        least=1,
        most=10_000_000,
    )
    log_level: str = setting("info", "the log level: debug, info, warning or error")
    access_log: bool = setting(False, "log each request: method, route, status, milliseconds, tenant and key")
    otel: bool = setting(False, "export OpenTelemetry spans and metrics by OTLP, configured by the variables OTEL_…")

    def __post_init__(self) -> None:
        for each in fields(self):
            value, least, most = getattr(self, each.name), each.metadata["least"], each.metadata["most"]
            if least is not None and not least <= value <= most:
                raise wrong(each.name, f"from {least:,} to {most:,}", value)
        if not self.store:
            raise wrong("store", "a file or a postgresql:// URL", self.store)
        scheme = "https://" if self.tls_cert else "http://"
        if self.address and not self.address.startswith(scheme):
            raise wrong("address", f"a URL that begins with {scheme}", self.address)
        for host in filter(None, self.image_hosts.split(",")):
            if not IMAGE_HOST.fullmatch(host.strip()):
                raise wrong("image_hosts", "hosts like img.example or *.img.example:8443", host)
        if self.log_level not in ("debug", "info", "warning", "error"):
            raise wrong("log_level", "debug, info, warning or error", self.log_level)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str], **given: Any) -> "ServiceSettings":
        """Return the settings of an environment; arguments that are not None override it."""
        values = {name: value for name, value in given.items() if value is not None}
        for each in fields(cls):
            text = environment.get(PREFIX + each.name.upper())
            if each.name not in values and text is not None:
                kind: Any = type(each.default)
                try:
                    values[each.name] = TRUTH[text.lower()] if kind is bool else kind(text)
                except (ValueError, KeyError) as error:
                    wanted = "true or false" if kind is bool else "a number"
                    raise InvalidArgument(
                        f"{PREFIX}{each.name.upper()} must be {wanted}. Got {text!r} instead."
                    ) from error
        return cls(**values)

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach the service."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"
