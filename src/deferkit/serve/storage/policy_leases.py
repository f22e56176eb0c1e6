"""Ownership leases of policies: create, acquire, renew, release, retire, delete. Each change is one transaction."""

from collections.abc import Mapping
from typing import Any

import msgspec

from deferkit.serve.domain import hash_chain
from deferkit.serve.domain.policy import Policy
from deferkit.serve.domain.policy_learner import memory_of
from deferkit.serve.domain.problems import TooManyPolicies, TooMuchMemory
from deferkit.serve.domain.rows import LogRow, PolicyRow
from deferkit.serve.storage.database import Database
from deferkit.serve.storage.policy_memory import PolicyMemory
from deferkit.serve.storage.row_codec import to_json
from deferkit.serve.storage.store_connections import StoreConnections

# in the order in which their rows are deleted
POLICY_TABLES = (
    "declines",
    "claims",
    "seats",
    "snapshots",
    "requests",
    "parked",
    "decisions",
    "log",
    "budgets",
    "deliveries",
    "webhooks",
)
SLICE = 500  # rows that are deleted in one transaction: other callers wait for it


def advance_values(policy: Policy, number: int, epoch: int, owner: str, expires: int, parked: int) -> dict[str, Any]:
    """Return the parameters of the query `advance`: the new end of a policy's log, fenced by owner and epoch."""
    return {
        "policy": number,
        "owner": owner,
        "epoch": epoch,
        "seq": policy.seq,
        "head": policy.head,
        "expires": expires,
        "spec": to_json(policy.spec).decode(),
        "parked": parked,
    }


class PolicyLeases(StoreConnections):
    """Ownership leases: a process may change a policy while it owns it. Writes are for the writer thread only."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._memory = PolicyMemory()

    def add_policy(
        self,
        tenant: str,
        policy: Policy,
        first: LogRow,
        owner: str,
        address: str | None,
        expires: int,
        *,
        most: int | None = None,
        most_memory: int | None = None,
    ) -> int | None:
        """Write a new policy and acquire it; return its number, None if the name is taken.

        Raises `TooManyPolicies` if the tenant has `most` of them, `TooMuchMemory` if with this one they would take more
        than `most_memory` bytes.
        """
        writer = self.writer
        writer.begin()
        try:
            # concurrent creations must not use the same number or name, nor exceed the tenant's limit together
            writer.lock("policies")
            if writer.run("policy", tenant=tenant, name=policy.spec.name):
                return None
            if most is not None and writer.run("count_policies", tenant=tenant)[0][0] >= most:
                raise TooManyPolicies(most)
            if most_memory is not None:
                needed, taken = memory_of(policy.spec), self._memory.of_tenant(writer, tenant)
                if taken + needed > most_memory:
                    raise TooMuchMemory(needed, taken, most_memory)
            [(number,)] = writer.run(
                "add_policy",
                tenant=tenant,
                name=policy.spec.name,
                spec=to_json(policy.spec).decode(),
                head=hash_chain.START,
                at=first.at,
                owner=owner,
                address=address,
                expires=expires,
            )
            accounts = policy.accounts.items()
            writer.write_all(
                {
                    "add_budget": [(number, resource, *account) for resource, account in accounts],
                    "add_log": [first._replace(policy=number)],
                }
            )
            writer.run("advance", **advance_values(policy, number, 1, owner, expires, 0))
            writer.commit()
            return int(number)
        finally:
            writer.rollback()

    def memory_taken(self, tenant: str) -> int:
        """Return the bytes that the learners of a tenant take, in all processes together."""
        return self._memory.of_tenant(self.database.reader(), tenant)

    def forget_memory(self, tenant: str) -> None:
        """Sum up anew what the learners of a tenant take: a policy was upgraded."""
        self._memory.forget(tenant)

    def acquire(
        self, row: PolicyRow, owner: str, address: str | None, now: int, expires: int, *, dead: str | None
    ) -> int | None:
        """Acquire a policy that nobody owns; return the new epoch, or None. Renews the leases of reviewers."""
        writer = self.writer
        writer.begin()
        try:
            found = writer.run(
                "acquire",
                policy=row.id,
                owner=owner,
                address=address,
                epoch=row.epoch,
                now=now,
                expires=expires,
                owners=[owner] if dead is None else [owner, dead],
            )
            if not found:
                return None
            lease = int(msgspec.json.decode(row.spec)["lease_s"] * 1e6)
            writer.run("renew_leases", policy=row.id, lease_until=now + lease)
            writer.commit()
            return int(found[0][0])
        finally:
            writer.rollback()

    def renew(self, epochs: Mapping[int, int], owner: str, expires: int) -> set[int]:
        """Renew the leases of policies, given the epoch of each; return those that another process has acquired."""
        writer = self.writer
        writer.begin()
        try:
            values = {"owner": owner, "expires": expires}
            found = writer.run_all([("renew", {"policy": p, "epoch": e, **values}) for p, e in epochs.items()])
            writer.commit()
            return {policy for policy, rows in zip(epochs, found, strict=True) if not rows}
        finally:
            writer.rollback()

    def release_policy(self, policy: int, owner: str, epoch: int) -> None:
        """Release the lease of a policy, so that another process can acquire it before the lease expires."""
        writer = self.writer
        writer.begin()
        try:
            writer.run("release_policy", policy=policy, owner=owner, epoch=epoch)
            writer.commit()
        finally:
            writer.rollback()

    def retire_policy(self, policy: int, owner: str, epoch: int) -> bool:
        """Retire a policy, so that its tenant does not see it, before its rows are deleted; False if not the owner."""
        writer = self.writer
        writer.begin()
        try:
            writer.run("retire_webhooks", policy=policy)
            found = writer.run("retire_policy", policy=policy, owner=owner, epoch=epoch)
            if found:
                writer.commit()
            return bool(found)
        finally:
            writer.rollback()

    def retired_policies(self) -> list[int]:
        """Return the retired policies that still have rows."""
        return [number for (number,) in self.database.reader().run("retired_policies")]

    def delete_slice(self, policy: int) -> bool:
        """Delete up to `SLICE` rows of a retired policy in one transaction; False if none are left."""
        writer = self.writer
        writer.begin()
        try:
            for name in POLICY_TABLES:
                if writer.run(f"delete_{name}", policy=policy, **({} if name == "snapshots" else {"most": SLICE})):
                    writer.commit()
                    return True
            writer.run("delete_policy", policy=policy)
            writer.commit()
            return False
        finally:
            writer.rollback()
