"""The part of Label Studio's REST API that the bridge needs, over httpx.

Needs httpx: `pip install 'deferkit[label-studio]'`.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self
from urllib.parse import quote

from deferkit.errors import InvalidArgument, ServiceError, ServiceUnavailable
from deferkit.extras import needs

needs("label_studio")

import httpx  # noqa: E402  after the check

TIMEOUT_S = 30.0
PAGE = 100  # tasks of one reply
UNAUTHORIZED, NOT_FOUND = 401, 404
RETRIED = frozenset({408, 425, 429, 500, 502, 503, 504})
TASK, POLICY = "deferkit_task", "deferkit_policy"  # columns of a task's data
ACTIONS = ("ANNOTATION_CREATED", "ANNOTATION_UPDATED")
MAX_REASON = 300


class LabelStudio:
    """One project of a Label Studio server.

    Both kinds of tokens work: a legacy token is sent as it is, a personal access token (a JWT) is exchanged for access
    tokens, which last for some minutes.

    Args:
        url: Where the server is, such as "http://127.0.0.1:8081".
        token: A legacy token or a personal access token.
        project: The number of the project.
        timeout_s: For each request.

    Raises:
        InvalidArgument: If the URL or the token cannot be one.
    """

    def __init__(self, url: str, *, token: str, project: int, timeout_s: float = TIMEOUT_S) -> None:
        if not url.startswith(("http://", "https://")):
            raise InvalidArgument(f"The URL of Label Studio begins with http:// or https://. Got {url!r}.")
        if not (token.isascii() and token.isprintable() and token):
            raise InvalidArgument("The token of Label Studio is one that its page Account & Settings shows.")
        self.url, self.project = url.rstrip("/"), project
        self._token = token
        self._refreshes = token.count(".") == 2  # a JWT
        self._http = httpx.Client(base_url=self.url, timeout=timeout_s)
        if not self._refreshes:
            self._http.headers["authorization"] = f"Token {token}"

    def read_project(self) -> dict[str, Any]:
        """Return the settings of the project."""
        found: dict[str, Any] = self._call("GET", f"/api/projects/{self.project}/")
        return found

    def find(self, policy: str, task: str) -> list[dict[str, Any]]:
        """Return the tasks of the project that were made for a task of a policy, the oldest first."""
        wanted = [column_is(TASK, task), column_is(POLICY, policy)]
        found = self._tasks({"filters": {"conjunction": "and", "items": wanted}})
        same = [each for each in found if (each["data"].get(POLICY), each["data"].get(TASK)) == (policy, task)]
        return sorted(same, key=lambda each: int(each["id"]))

    def of_policy(self, policy: str) -> Iterator[dict[str, Any]]:
        """Yield the tasks of the project that were made for a policy and have no annotation."""
        empty = {"filter": "filter:tasks:total_annotations", "operator": "equal", "type": "Number", "value": 0}
        yield from self._tasks({"filters": {"conjunction": "and", "items": [column_is(POLICY, policy), empty]}})

    def read_tasks(self, ids: Sequence[int]) -> dict[int, dict[str, Any]]:
        """Return those of the tasks that exist, with their annotations and drafts, by id."""
        found: dict[int, dict[str, Any]] = {}
        for start in range(0, len(ids), PAGE):
            part = list(ids[start : start + PAGE])
            for each in self._tasks({"selectedItems": {"all": False, "included": part}}):
                found[int(each["id"])] = each
        return found

    def create(self, data: Mapping[str, Any], meta: Mapping[str, Any]) -> dict[str, Any]:
        """Create a task; return it."""
        body = {"project": self.project, "data": dict(data), "meta": dict(meta)}
        made: dict[str, Any] = self._call("POST", "/api/tasks/", json=body)
        return made

    def delete(self, number: int) -> None:
        """Delete a task, if it exists."""
        try:
            self._call("DELETE", f"/api/tasks/{number}/")
        except ServiceError as error:
            if error.status != NOT_FOUND:
                raise

    def call_on_annotations(self, url: str) -> None:
        """Have the project call a URL when a task is annotated, unless it does."""
        known = self._call("GET", "/api/webhooks/", params={"project": self.project})
        if not any(each["url"] == url and each["is_active"] for each in known):
            body = {
                "project": self.project,
                "url": url,
                "send_payload": False,  # only a hint to look: nothing in it is trusted
                "send_for_all_actions": False,
                "actions": list(ACTIONS),
            }
            self._call("POST", "/api/webhooks/", json=body)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _tasks(self, query: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        page = 1
        while True:
            # Label Studio decodes the parameter twice
            asked = {"project": self.project, "fields": "all", "query": quote(json.dumps(query))}
            reply = self._call("GET", "/api/tasks/", params=asked | {"page": page, "page_size": PAGE})
            yield from reply["tasks"]
            if page * PAGE >= int(reply["total"]):
                return
            page += 1

    def _call(self, method: str, path: str, **given: Any) -> Any:
        if self._refreshes and "authorization" not in self._http.headers:
            self._refresh()
        response = self._send(method, path, **given)
        if response.status_code == UNAUTHORIZED and self._refreshes:  # the access token has expired
            self._refresh()
            response = self._send(method, path, **given)
        if not response.is_success:
            raise problem_of(response)
        return response.json() if response.content else None

    def _refresh(self) -> None:
        self._http.headers.pop("authorization", None)
        response = self._send("POST", "/api/token/refresh/", json={"refresh": self._token})
        if not response.is_success:
            raise problem_of(response)
        self._http.headers["authorization"] = f"Bearer {response.json()['access']}"

    def _send(self, method: str, path: str, **given: Any) -> httpx.Response:
        try:
            return self._http.request(method, path, **given)
        except httpx.HTTPError as error:
            raise ServiceUnavailable(f"Label Studio at {self.url} does not answer ({type(error).__name__}).") from error


def column_is(name: str, value: str) -> dict[str, Any]:
    """Return a filter of Label Studio's data manager: a column of the tasks' data has this value."""
    return {"filter": f"filter:tasks:data.{name}", "operator": "equal", "type": "String", "value": value}


def problem_of(response: httpx.Response) -> ServiceError:
    """Return the error of a reply: `ServiceUnavailable` if the same request may work later."""
    request = response.request
    said = " ".join(response.text.split())[:MAX_REASON]
    text = f"Label Studio refuses {request.method} {request.url.path} with {response.status_code}: {said}"
    kind = ServiceUnavailable if response.status_code in RETRIED else ServiceError
    return kind(text, status=response.status_code)
