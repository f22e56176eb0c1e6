"""A project of Label Studio in memory, with the calls of `LabelStudio`; `make test-label-studio` has a real one."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from deferkit.connectors.label_studio_api import POLICY, TASK, LabelStudio
from deferkit.errors import ServiceError, ServiceUnavailable


class StudioProject(LabelStudio):
    """Keeps tasks in memory, and fails when it is told to."""

    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:1", token="none", project=1)
        self.tasks: dict[int, dict[str, Any]] = {}
        self.fail_after_create = False
        self.refused: set[str] = set()

    def read_project(self) -> dict[str, Any]:
        return {"id": 1}

    def find(self, policy: str, task: str) -> list[dict[str, Any]]:
        return [each for each in self.tasks.values() if (each["data"][POLICY], each["data"][TASK]) == (policy, task)]

    def of_policy(self, policy: str) -> Iterator[dict[str, Any]]:
        yield from [each for each in self.tasks.values() if each["data"][POLICY] == policy and not each["annotations"]]

    def read_tasks(self, ids: Sequence[int]) -> dict[int, dict[str, Any]]:
        return {number: self.tasks[number] for number in ids if number in self.tasks}

    def create(self, data: Mapping[str, Any], meta: Mapping[str, Any]) -> dict[str, Any]:
        if data[TASK] in self.refused:
            raise ServiceError("Label Studio refuses it with 400: no text", status=400)
        number = max(self.tasks, default=0) + 1
        self.tasks[number] = {"id": number, "data": dict(data), "meta": dict(meta), "annotations": [], "drafts": []}
        if self.fail_after_create:  # it is there, and the bridge does not know it
            raise ServiceUnavailable("Label Studio does not answer.")
        return self.tasks[number]

    def delete(self, number: int) -> None:
        self.tasks.pop(number, None)

    def annotate(self, task: str, choice: str, *, lead_time: float | None = 30.0, skipped: bool = False) -> None:
        """Annotate the oldest task for a task of the service."""
        number = next(number for number, each in self.tasks.items() if each["data"][TASK] == task)
        region = {"from_name": "label", "to_name": "text", "type": "choices", "value": {"choices": [choice]}}
        annotation = {"id": 1, "result": [region], "lead_time": lead_time, "was_cancelled": skipped}
        self.tasks[number]["annotations"].append(annotation)

    @property
    def names(self) -> list[str]:
        """The tasks of the service that there are tasks for."""
        return [each["data"][TASK] for each in self.tasks.values()]
