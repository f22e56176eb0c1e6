"""Deletion of policies and tenants, with all that belongs to them."""

import asyncio

from deferkit.serve.domain.problems import Problem, conflict, unavailable
from deferkit.serve.engine.engine import Elsewhere, Engine
from deferkit.serve.engine.ownership import Key

PAGE = 100


async def delete_policy(engine: Engine, key: Key) -> None:
    """Delete a policy with its log, decisions, reviews and snapshots; raise if there is none.

    It is retired first, so that its tenant does not see it any more. Its rows are deleted in slices, between which
    other commands are committed; after a crash `Maintenance.finish_deletions` deletes the rest.
    """
    owned = await engine.holding(key)
    ownership = engine.ownership
    async with ownership.busy:
        if ownership.owned.get(key) is not owned:
            raise unavailable("The policy has gone elsewhere.")
        if not await ownership.write(engine.store.retire_policy, owned.id, ownership.owner, owned.epoch):
            ownership.lose(owned.id)
            raise unavailable("The policy has gone elsewhere.")
        del ownership.owned[key]
    await ownership.purge(owned.id)


async def delete_tenant(engine: Engine, tenant: str) -> None:
    """Delete all policies and webhooks of a tenant, and revoke its keys."""
    while rows := await asyncio.to_thread(engine.store.policies_of, tenant, "", PAGE):
        for row in rows:
            try:
                await delete_policy(engine, (tenant, row.name))
            except Elsewhere:
                raise conflict(f"Another process owns policy {row.name!r}: delete it first, then the tenant.") from None
            except Problem as problem:
                if problem.status != 404:  # somebody else has just deleted it
                    raise
    # not in the writer thread: a transaction may be open there
    await engine.ownership.read(engine.webhooks.store.delete_of, tenant)
    await engine.ownership.read(engine.store.revoke_keys_of, tenant, engine.clock.now())
