"""How much memory the policies of a tenant take, whichever process owns them: an estimate from their settings."""

import msgspec

from deferkit.serve.domain.policy_learner import memory_of
from deferkit.serve.domain.policy_spec import PolicySpec
from deferkit.serve.storage.database import Connection

AT_ONCE = 500  # settings that one query reads


class PolicyMemory:
    """Sums up what the learners of a tenant take.

    Settings may be long, and the sum is needed where others wait: those of a policy are read once. No change of a
    policy but an upgrade changes its size. A number may be used again after a deletion, but not with the same time of
    creation.
    """

    def __init__(self) -> None:
        self._known: dict[str, dict[tuple[int, int], int]] = {}  # by tenant: number, time of creation: bytes

    def forget(self, tenant: str) -> None:
        """Read the settings of a tenant's policies anew: one was upgraded."""
        self._known.pop(tenant, None)

    def of_tenant(self, connection: Connection, tenant: str) -> int:
        """Return the bytes that the policies of a tenant take together, as a connection sees them.

        Parameters
        ----------
        connection
            Where they are read: any reader, or the writer in its transaction.
        tenant
            Whose policies.
        """
        before = self._known.get(tenant, {})
        there: list[tuple[int, int]] = [(number, created) for number, created in connection.run("ages", tenant=tenant)]
        new = [number for number, created in there if (number, created) not in before]
        specs: dict[int, str] = {}
        for i in range(0, len(new), AT_ONCE):
            specs |= dict(connection.run("specs", keys=new[i : i + AT_ONCE]))
        known = {}
        for number, created in there:
            if number in specs:
                known[number, created] = memory_of(msgspec.json.decode(specs[number], type=PolicySpec))
            elif (number, created) in before:  # else it was deleted between the two queries
                known[number, created] = before[number, created]
        self._known[tenant] = known
        return sum(known.values())
