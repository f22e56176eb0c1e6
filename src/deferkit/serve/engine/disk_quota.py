"""The quota of a tenant on the disk of the store: a short module, because only this reads sizes."""

import asyncio
import time

from deferkit.serve.domain.problems import TooMuchData
from deferkit.serve.engine.ownership import Ownership
from deferkit.serve.storage.connections import PolicyBytes

MEASURE_S = 10.0  # seconds between two measurements: a tenant may pass its quota by what it writes in that time


class DiskQuota:
    """Measures what tenants keep in the store, and marks the policies of those that have reached their quota.

    Args:
        ownership: The policies of this process.
        most: Bytes that the policies of a tenant may take, whichever processes own them; 0 for no limit.
    """

    def __init__(self, ownership: Ownership, most: int) -> None:
        self.ownership = ownership
        self.most = most
        self.taken: dict[str, int] = {}  # bytes at the last measurement, by tenant
        self._bytes = PolicyBytes()
        self._measured_at = 0.0

    async def measure(self) -> None:
        """Measure the tenants whose policies this process owns, every `MEASURE_S` seconds."""
        if time.monotonic() - self._measured_at < MEASURE_S:
            return
        tenants = {tenant for tenant, _ in self.ownership.owned}
        self.taken = {tenant: await asyncio.to_thread(self._bytes_of, tenant) for tenant in tenants}
        for (tenant, _), owned in self.ownership.owned.items():
            owned.over_quota = self._problem(tenant)
        self._measured_at = time.monotonic()

    def check(self, tenant: str) -> None:
        """Raise if a tenant has reached its quota."""
        if (problem := self._problem(tenant)) is not None:
            raise problem

    def _bytes_of(self, tenant: str) -> int:
        return self._bytes.of_tenant(self.ownership.store.database.reader(), tenant)

    def _problem(self, tenant: str) -> TooMuchData | None:
        taken = self.taken.get(tenant, 0)
        return TooMuchData(taken, self.most) if self.most and taken >= self.most else None
