"""A bridge between a policy's review queue and a project of Label Studio.

Tasks for experts become tasks of Label Studio, and annotations complete them, with the lead time as cost. The bridge
keeps nothing of its own: what it has claimed is in the service, and which task of Label Studio belongs to which claim
is in that task's data. So it can be killed at any moment and started again.
"""

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from deferkit.client.client import Client
from deferkit.client.reviews import Review
from deferkit.connectors.label_studio_api import POLICY, TASK, LabelStudio
from deferkit.errors import ConflictingObservation, InvalidArgument, ServiceError, ServiceUnavailable
from deferkit.http_connections import pause_after

logger = logging.getLogger("deferkit.bridge")
REVIEWER = "label-studio"
MINUTE_S = 60.0
TOO_MANY_CLAIMS = 409  # the status of a claim beyond what the service lets a reviewer hold
MIN_PAUSE_S, MAX_PAUSE_S = 0.5, 60.0  # between two steps that webhooks request; between two that fail


class BridgeCounts(NamedTuple):
    """What a step of the bridge, or all of them, have done.

    Attributes:
        created: Tasks created in Label Studio.
        completed: Reviews completed with an annotation.
        skipped: Tasks that an annotator skipped: the bridge has declined them.
        withdrawn: Tasks deleted in Label Studio because nobody waits for them any more.
    """

    created: int = 0
    completed: int = 0
    skipped: int = 0
    withdrawn: int = 0


@dataclass
class BridgedClaim:
    """A claim of the bridge and the task of Label Studio that stands for it."""

    review: Review
    renew_at: float  # monotonic
    number: int | None = None  # of the task in Label Studio
    found: bool = False  # there, and not created
    refused: str = ""  # why the service did not take its annotation


class LabelStudioBridge:
    """Carries tasks to Label Studio and annotations back.

    Args:
        client: A client of the policy. Its key needs the scope `review` and must be made for the reviewer (`deferkit
            keys create --scopes review --reviewer label-studio`): only so can the bridge go on with its claims after
            a restart.
        studio: The project of Label Studio.
        reviewer: Who answers, as the service knows it.
        experts: The experts that the project's annotators stand for; all of the policy by default.
        at_most: How many tasks are in Label Studio at a time without an annotation. The rest stays in the service's
            queue, in the order of their worth, where other reviewers can take it.
        lease_s: Seconds after which other reviewers may take the tasks of a bridge that has stopped.
        unit_s: Seconds of lead time that are one unit of the budget; None (default): as the timer of the policy's
            review document says, else 60.

    Raises:
        InvalidArgument: If the policy has several resources: a lead time is the cost of one.
        ServiceError: If the key is not made for the reviewer, or the project cannot be read.
    """

    def __init__(
        self,
        client: Client,
        studio: LabelStudio,
        *,
        reviewer: str = REVIEWER,
        experts: Sequence[str] | None = None,
        at_most: int = 100,
        lease_s: float = 3600.0,
        unit_s: float | None = None,
    ) -> None:
        self.client, self.studio, self.reviewer = client, studio, reviewer
        self.experts, self.at_most, self.lease_s = experts, at_most, lease_s
        caller = client.session()
        if not caller["open"] and caller["reviewer"] != reviewer:
            raise ServiceError(
                f"The key is not made for the reviewer {reviewer!r}:"
                f" deferkit keys create --tenant {caller['tenant']} --scopes review --reviewer {reviewer}"
            )
        settings = client.settings()
        resources, review = settings["budget"], settings.get("review")
        if len(resources) > 1:
            raise InvalidArgument(
                f"A lead time is the cost in one resource; the policy {client.policy!r} has {', '.join(resources)}."
            )
        self.form = None if review is None else review["form"]
        timer = None if review is None else review["timer"]
        self.unit_s = unit_s or (MINUTE_S if timer is None else timer["unit_s"])
        if review is None or review["reward_rule"] is None:
            logger.warning(
                "the policy %s has no reward rule: annotations bring no rewards until you report outcomes",
                client.policy,
            )
        studio.read_project()
        self._claims: dict[str, BridgedClaim] = {}  # by task
        self._accepted = False  # the project has taken a task
        self._swept = False
        self.totals = BridgeCounts()

    def step(self) -> BridgeCounts:
        """Carry over what there is now; return what was done.

        Raises:
            ServiceUnavailable: If one of the two does not answer. What was done so far stands: call it again.
            ServiceError: If one of the two refuses what the bridge wants.
        """
        before = self.totals
        self._read_held()
        self._renew()
        self._collect([each for each in self._claims.values() if each.number is not None])
        self._claim()
        unplaced = [each for each in self._claims.values() if each.number is None]
        self._place(unplaced)
        self._collect([each for each in unplaced if each.found])
        if not self._swept:
            self._sweep()
            self._swept = True
        return BridgeCounts(*(now - then for now, then in zip(self.totals, before, strict=True)))

    def run(self, *, poll_s: float = 10.0, wake: threading.Event | None = None) -> None:
        """Carry over for ever: every so many seconds, and when `wake` is set.

        Args:
            poll_s: Seconds between two looks. Label Studio does not repeat a webhook that was lost, so there are looks
                without one.
            wake: Set when there is something to do, as by a webhook; None (default): nobody does.
        """
        wake = wake or threading.Event()
        failures = 0
        while True:
            try:
                done = self.step()
            except ServiceUnavailable as error:
                pause = pause_after(failures, first_s=1.0, longest_s=MAX_PAUSE_S)
                logger.warning("%s Again in %.0f s.", error, pause)
                failures += 1
                time.sleep(pause)
                continue
            failures = 0
            if any(done):
                logger.info("created %d, completed %d, skipped %d, withdrawn %d", *done)
            wake.wait(poll_s)
            wake.clear()
            time.sleep(MIN_PAUSE_S)

    def _count(self, **more: int) -> None:
        self.totals = self.totals._replace(**{name: getattr(self.totals, name) + n for name, n in more.items()})

    def _read_held(self) -> None:
        """Take up claims of an earlier run, or whose reply was lost; let go of those that are over."""
        held = {each.task: each for each in self.client.reviews.held(self.reviewer)}
        for task in [task for task in self._claims if task not in held]:
            self._withdraw(self._claims.pop(task))
        for task, review in held.items():
            if task not in self._claims or self._claims[task].review.epoch != review.epoch:
                try:
                    resumed = self.client.reviews.resume(self.reviewer, review)
                except ConflictingObservation:
                    continue  # over by now
                number = self._claims[task].number if task in self._claims else None
                self._claims[task] = BridgedClaim(resumed, renew_at=0.0, number=number)

    def _renew(self) -> None:
        for claim in self._claims.values():
            if time.monotonic() >= claim.renew_at:
                try:
                    claim.review = self.client.reviews.extend(claim.review, lease_s=self.lease_s)
                    claim.renew_at = self._next_renewal()
                except ConflictingObservation:
                    pass  # the next look finds that it is over

    def _next_renewal(self) -> float:
        return time.monotonic() + self.lease_s / 3

    def _claim(self) -> None:
        while len(self._claims) < self.at_most:
            try:
                review = self.client.reviews.claim(self.reviewer, experts=self.experts, lease_s=self.lease_s)
            except ServiceError as error:
                if error.status != TOO_MANY_CLAIMS:
                    raise
                logger.warning("no more tasks are claimed for now: %s", error)
                break
            if review is None:
                break
            self._claims[review.task] = BridgedClaim(review, self._next_renewal())

    def _place(self, claims: Sequence[BridgedClaim]) -> None:
        """Find the tasks of claims in Label Studio, or create them; decline those that the project does not take."""
        refused: list[tuple[BridgedClaim, ServiceError]] = []
        for claim in claims:
            try:
                claim.number = self._find(claim.review.task)
                claim.found = claim.number is not None
                if claim.number is None:
                    claim.number = self._create(claim.review)
                self._accepted = True
            except ServiceUnavailable:
                raise
            except ServiceError as error:
                refused.append((claim, error))
        if refused and not self._accepted:
            raise refused[0][1]  # not this task: the project, or the token, is wrong
        for claim, reason in refused:
            logger.error("task %s is declined: %s", claim.review.task, reason)
            self._decline(claim, str(reason))

    def _find(self, task: str) -> int | None:
        """Return the task of Label Studio that stands for a task, and delete copies of it that nobody has annotated.

        There are copies if the bridge was killed while a request to create the task was on its way.
        """
        found = self.studio.find(self.client.policy, task)
        found.sort(key=lambda each: (not is_annotated(each), each["id"]))
        for copy in found[1:]:
            if not is_touched(copy):
                self.studio.delete(int(copy["id"]))
        return int(found[0]["id"]) if found else None

    def _create(self, review: Review) -> int:
        data = data_of(review.payload) | {TASK: review.task, POLICY: self.client.policy}
        if review.model_answer is not None:
            data.setdefault("model_answer", review.model_answer)
        meta = {"deferkit": {"reviewer": self.reviewer, "expert": review.expert, "priority": review.priority}}
        number = int(self.studio.create(data, meta)["id"])
        self._count(created=1)
        return number

    def _collect(self, claims: Sequence[BridgedClaim]) -> None:
        """Complete those of the claims whose tasks are annotated."""
        numbers = {claim.number: claim for claim in claims if claim.number is not None}
        found = self.studio.read_tasks(list(numbers))
        for number, claim in numbers.items():
            if number not in found:
                claim.number = None  # deleted in Label Studio: it is created anew, so that it does not get lost
            elif (annotation := find_submitted(found[number]["annotations"])) is not None:
                self._finish(claim, annotation)

    def _finish(self, claim: BridgedClaim, annotation: Mapping[str, Any]) -> None:
        review, cost = claim.review, cost_of(annotation, self.unit_s)
        if annotation.get("was_cancelled"):
            self._decline(claim, "skipped in Label Studio")
            self._book_effort(claim, cost)
            self._count(skipped=1)
            return
        if cost is None:
            logger.warning("task %s was annotated without a lead time: its cost is not known", review.task)
        try:
            self.client.reviews.complete(review, answer_of(annotation["result"], self.form), cost=cost)
        except InvalidArgument as error:  # it waits for another annotation, or for another review form
            if claim.refused != str(error):
                claim.refused = str(error)
                logger.error("the annotation of task %s is refused: %s", review.task, error)
            return
        except ConflictingObservation as error:
            logger.warning("the annotation of task %s came too late: %s", review.task, error)
            self._book_effort(claim, cost)
        else:
            self._count(completed=1)
        del self._claims[review.task]

    def _decline(self, claim: BridgedClaim, reason: str) -> None:
        with suppress(ConflictingObservation):  # it is over anyway
            self.client.reviews.decline(claim.review, reason[:1000])
        del self._claims[claim.review.task]

    def _withdraw(self, claim: BridgedClaim) -> None:
        """Delete the task of a claim that is over in Label Studio; book the cost if it was annotated all the same."""
        if claim.number is None:
            return
        found = self.studio.read_tasks([claim.number]).get(claim.number)
        if found is None:
            return
        annotation = find_submitted(found["annotations"])
        if annotation is not None:
            logger.warning("the annotation of task %s came too late", claim.review.task)
            self._book_effort(claim, cost_of(annotation, self.unit_s))
        elif not is_touched(found):
            self.studio.delete(claim.number)
            self._count(withdrawn=1)

    def _book_effort(self, claim: BridgedClaim, cost: float | None) -> None:
        if not cost:
            return
        try:
            self.client.reviews.effort(claim.review, cost)
        except (ConflictingObservation, InvalidArgument) as error:
            logger.warning("the lead time of task %s is not booked: %s", claim.review.task, error)

    def _sweep(self) -> None:
        """Delete tasks of an earlier run that nobody has annotated and nobody waits for any more."""
        known = {claim.number for claim in self._claims.values()}
        for each in list(self.studio.of_policy(self.client.policy)):
            mine = (each.get("meta") or {}).get("deferkit", {}).get("reviewer") == self.reviewer
            if mine and int(each["id"]) not in known and not is_touched(each):
                self.studio.delete(int(each["id"]))
                self._count(withdrawn=1)


def data_of(payload: Any) -> dict[str, Any]:
    """Return the data of a task in Label Studio: the fields of the payload, or the payload as `text`.

    >>> data_of({"text": "…", "country": "it"}), data_of("Broken window")
    ({'text': '…', 'country': 'it'}, {'text': 'Broken window'})
    """
    return dict(payload) if isinstance(payload, Mapping) else {"text": payload}


def is_annotated(task: Mapping[str, Any]) -> bool:
    """Whether a task of Label Studio has an annotation, or was skipped."""
    return bool(task["annotations"])


def is_touched(task: Mapping[str, Any]) -> bool:
    """Whether an annotator has begun a task of Label Studio."""
    return is_annotated(task) or bool(task.get("drafts"))


YES, NO = frozenset({"true", "yes", "1"}), frozenset({"false", "no", "0"})
LISTS = ("choices", "text", "taxonomy")
VALUES = ("rating", "number", "datetime")


def find_submitted(annotations: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the annotation that counts: the first that was not skipped, else the first; None if there is none.

    Args:
        annotations: The annotations of a task.

    >>> find_submitted([{"id": 2, "was_cancelled": False}, {"id": 1, "was_cancelled": True}])["id"]
    2
    """
    return min(annotations, key=lambda each: (bool(each.get("was_cancelled")), each["id"]), default=None)


def cost_of(annotation: Mapping[str, Any], unit_s: float) -> float | None:
    """Return the cost of an annotation: its lead time, in units of `unit_s` seconds; None if it is not known.

    >>> cost_of({"lead_time": 90.0}, 60.0), cost_of({"lead_time": None}, 60.0)
    (1.5, None)
    """
    seconds = annotation.get("lead_time")
    return None if seconds is None else max(0.0, float(seconds)) / unit_s


def answer_of(result: Sequence[Mapping[str, Any]], form: Sequence[Mapping[str, Any]] | None) -> Any:
    """Return the answer of an annotation.

    Args:
        result: The regions of the annotation.
        form: The fields of the policy's review form; a control tag of the labelling interface with the name of a field
            fills it. None without a form: the values by control tag, or the regions themselves where there are others
            than choices, texts, ratings, numbers, dates and taxonomies.

    >>> spam = {"from_name": "label", "type": "choices", "value": {"choices": ["spam"]}}
    >>> answer_of([spam], [{"name": "label", "kind": "choice"}])
    {'label': 'spam'}
    >>> answer_of([spam | {"from_name": "spam", "value": {"choices": ["yes"]}}], [{"name": "spam", "kind": "boolean"}])
    {'spam': True}
    """
    values: dict[str, Any] = {}
    for region in result:
        found = value_of(region)
        if found is None and form is None:
            return list(result)
        if found is not None:
            values[region["from_name"]] = found
    if form is None:
        return {name: value[0] if is_single(value) else value for name, value in values.items()}
    kinds = {field["name"]: field["kind"] for field in form}
    return {name: as_kind(value, kinds[name]) for name, value in values.items() if name in kinds}


def value_of(region: Mapping[str, Any]) -> Any:
    """Return the value of a region; None if it is one of an image, say, that is more than a value."""
    value = region.get("value", {})
    if set(value) & {"start", "end", "x", "y", "points"}:  # it marks a part of the text, image or sound
        return None
    return next((value[name] for name in (*LISTS, *VALUES) if name in value), None)


def as_kind(value: Any, kind: str) -> Any:
    """Return a value as a field of a kind wants it; as it is where it does not fit, so that the service says why."""
    if kind == "choices":
        return value
    single = value[0] if is_single(value) else value
    if kind == "text" and isinstance(value, list):
        return "\n".join(map(str, value))
    if kind == "boolean" and isinstance(single, str):
        return True if single.lower() in YES else False if single.lower() in NO else single
    if kind == "number" and isinstance(single, str):
        try:
            return float(single)
        except ValueError:
            return single
    return single


def is_single(value: Any) -> bool:
    """Whether a value is a list of one."""
    return isinstance(value, list) and len(value) == 1


MAX_READ = 1_000_000  # bytes of a request
SLOW_S = 10.0


class WakeUpServer(AbstractContextManager["WakeUpServer"]):
    """Sets `wake` when anything is posted to it. Nothing that is posted is trusted, or even read.

    Args:
        host: The address to listen on.
        port: The port; 0 takes a free one.

    Raises:
        OSError: If it cannot be listened on.

    >>> import urllib.request
    >>> with WakeUpServer("127.0.0.1", 0) as server:
    ...     with urllib.request.urlopen(server.url, data=b"{}") as response:
    ...         print(response.status, server.wake.is_set())
    204 True
    """

    def __init__(self, host: str, port: int) -> None:
        self.wake = threading.Event()
        wake = self.wake

        class Hint(BaseHTTPRequestHandler):
            """One call of a webhook."""

            timeout = SLOW_S

            def do_POST(self) -> None:
                """Set the event."""
                length = self.headers.get("content-length", "0")
                self.rfile.read(min(int(length) if length.isdigit() else 0, MAX_READ))
                wake.set()
                self.send_response(204)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer((host, port), Hint)
        self._server.daemon_threads = True
        self.url = f"http://{host}:{self._server.server_address[1]}/"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
