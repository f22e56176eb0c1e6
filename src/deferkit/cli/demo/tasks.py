"""Tasks of the demo: comments that a simulated model and simulated people judge."""

import math
import random
from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np

from deferkit.study.allowance import Allowance
from deferkit.types import MODEL, Budget
from deferkit.worlds.base import Floats

FINE, SPAM, ABUSE = "fine", "spam", "abusive"
LABELS = (FINE, SPAM, ABUSE)

TEXTS: dict[tuple[str, bool], tuple[str, ...]] = {
    (FINE, False): (
        "Thanks for this, I did not know that about {thing}.",
        "We were in {place} last summer and it was just like that.",
        "Good article. The part on {thing} could have been longer.",
        "My sister has worked with {thing} for years and says the same.",
        "Does anybody know whether this also holds for {place}?",
        "I disagree, but it is well argued. {name} made a similar point last week.",
        "The second picture shows {place}, not the old town, as the caption says.",
        "Could you write more about {thing}? My class would love it.",
    ),
    (FINE, True): (
        "This recipe is killing me, I cannot stop eating it. {name}, you monster!",
        "Free of charge for everybody in {place}: the library lends {thing} now. No catch.",
        "What an idiot I was to sell my {thing} before reading this.",
        "For those who asked: the study is at www.uni-{place}.example, page 12.",
        "I would kill for a week in {place} right now, it has rained here since May.",
        "Stupid question, sorry: do the {thing} stay outside in winter?",
    ),
    (SPAM, False): (
        "EARN 5000 A WEEK FROM HOME!!! Visit www.cash-{place}.example now!!!",
        "Cheap {thing} here, best prices!!! www.buy-now.example",
        "Congratulations, you were chosen! Claim your two {thing} at www.win.example",
        "Hot singles in {place} want to meet you!!! www.meet.example",
        "Lose 10 kilos in a week with this one trick!!! www.slim.example/{name}",
    ),
    (SPAM, True): (
        "I was sceptical too, {name}, but the people at {place}-direct.example were so helpful. Just saying.",
        "After years of looking I found somebody in {place} who repairs {thing} well. Write to me for the address.",
        "Great points! I wrote about the same on my page, thirty reasons why everybody needs {thing}.",
        "Since my course on {thing} I work two hours a day. Ask me how, there are three places left.",
    ),
    (ABUSE, False): (
        "Shut up {name}, you are a complete idiot!",
        "What a stupid article by a stupid person. Get lost!",
        "People from {place} are trash, all of them!",
        "You disgusting liar, {name}. Nobody wants you here!",
    ),
    (ABUSE, True): (
        "Oh how sweet, {name} has an opinion again. Does your carer know that you are online?",
        "Some people in {place} should really think about whether anybody would miss them.",
        "{name}, I know which school your children go to. Think about what you write about {thing}.",
        "Typical for somebody with that surname. Go back to wherever your {thing} come from.",
    ),
}
NAMES = ("Ana", "Bo", "Carla", "Dmitri", "Elif", "Femi", "Greta", "Hugo", "Ines", "Jonas", "Kim", "Lea")
PLACES = ("Lyon", "Porto", "Graz", "Leeds", "Gdansk", "Turin", "Bergen", "Malaga", "Aarhus", "Tartu")
THINGS = ("heat pumps", "bicycles", "telescopes", "solar panels", "violins", "tomatoes", "beehives", "cameras")

GUIDELINES = """Fine: somebody could want to read it. Harsh words about a thing, or about oneself, are fine.

Spam: it wants to sell something, or to lead readers elsewhere, however friendly it sounds.

Abusive: it attacks or threatens a person or a group. No swear word is needed for that.

In doubt: fine."""


TOPICS = ("sport", "politics", "travel", "science")
SHARES = {FINE: 0.7, SPAM: 0.18, ABUSE: 0.12}
TRICKY = {FINE: 0.25, SPAM: 0.4, ABUSE: 0.45}  # the share of each label
MODEL_IS_RIGHT = {False: 0.97, True: 0.4}  # of plain and of tricky comments
PERSON_IS_RIGHT = 0.95
CONFIDENCE = {False: (0.9, 0.06), True: (0.7, 0.12)}  # of the model: mean and standard deviation
MINUTES = (0.15, 0.45)  # to read and judge one
UNIT, HUMAN = "minutes", "human"
NUMBERS = ("length", "links", "exclamation_marks", "account_days", "reports", "confidence")
DEADLINE_S = 900.0  # a task that waits for nobody goes to the model then, so that the queue stays fresh


class Comment(NamedTuple):
    """One comment, and what the demonstration knows of it."""

    text: str
    label: str
    tricky: bool
    context: dict[str, float | str]
    model_answer: str
    topic: str


class DemoTasks(ABC):
    """Simulated tasks under a budget: what is known of each when it comes, and what comes of it.

    Tasks are told apart by their place in the stream, which counts from 0.
    """

    kind: str
    """The word that ids of tasks begin with."""
    n_tasks: int
    budget: Budget
    costs: Floats
    """The cost of a person's answer, by place."""
    rewards_by_rule: bool
    """Whether the policy makes rewards of answers, so that nobody reports any for a task that a person answers."""

    def name_of(self, place: int) -> str:
        """Return the id of a task."""
        return f"{self.kind}-{place:05d}"

    def place_of(self, name: str) -> int:
        """Return the place of the task with an id."""
        return int(name.removeprefix(f"{self.kind}-"))

    def cost(self, place: int) -> float:
        """Return the cost of asking about a task."""
        return float(self.costs[place])

    def record_review(self, place: int) -> None:  # noqa: B027 - few have something to record
        """Record that a person has answered; by default that is no part of a context."""

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """Return the settings of the policy."""

    @abstractmethod
    def context(self, place: int) -> Any:
        """Return the context of a task on its arrival."""

    @abstractmethod
    def payload(self, place: int) -> Any:
        """Return the payload of a task for reviewers."""

    @abstractmethod
    def model_answer(self, place: int) -> Any:
        """Return the answer of the model."""

    @abstractmethod
    def answer(self, place: int, reviewer: str) -> Any:
        """Return the answer of a reviewer."""

    @abstractmethod
    def reward(self, place: int, decider: str) -> float:
        """Return the reward of a decider on a task."""

    @abstractmethod
    def gain(self, place: int) -> float:
        """Return the expected gain over the model from asking about a task."""


class Comments(DemoTasks):
    """Comments to be moderated, under a budget of minutes.

    Args:
        tasks: How many there are.
        budget: In minutes (75), in tasks (0.1T), or in what asking about all of them costs (10%); or inf.
        seed: Of the comments.

    >>> comments = Comments(tasks=50, budget="10%", seed=0)
    >>> comments.n_tasks, comments.model_answer(0) in LABELS
    (50, True)
    """

    kind = "comment"
    rewards_by_rule = True

    def __init__(self, *, tasks: int, budget: str, seed: int) -> None:
        allowance = Allowance.from_text(budget)
        self.n_tasks = tasks
        self._seed = seed
        self.costs = np.random.default_rng(seed).uniform(*MINUTES, tasks).round(2)
        units = {"": 1.0, "T": float(tasks), "%": float(self.costs.sum()) / 100}
        total = allowance.number * units[allowance.unit]
        self.budget = Budget.unlimited() if math.isinf(total) else Budget(round(total, 6), horizon=tasks, max_cost=0.5)

    def comment(self, place: int) -> Comment:
        """Return a comment, the same one each time."""
        rng = random.Random(f"{self._seed} {place}")
        label = rng.choices(LABELS, [SHARES[each] for each in LABELS])[0]
        tricky = rng.random() < TRICKY[label]
        words = {"name": rng.choice(NAMES), "place": rng.choice(PLACES), "thing": rng.choice(THINGS)}
        text = rng.choice(TEXTS[label, tricky]).format(**words)
        right = rng.random() < MODEL_IS_RIGHT[tricky]
        topic = rng.choice(TOPICS)
        return Comment(
            text=text,
            label=label,
            tricky=tricky,
            context={
                "length": float(len(text)),
                "links": float(text.count(".example")),
                "exclamation_marks": float(text.count("!")),
                "account_days": float(round(rng.expovariate(1 / (600 if tricky else 200)))),
                "reports": float(label != FINE) * rng.randint(0, 3) + float(tricky) * rng.randint(0, 1),
                "confidence": round(min(0.99, max(0.34, rng.gauss(*CONFIDENCE[tricky]))), 3),
                "topic": topic,
            },
            model_answer=label if right else rng.choice(others(label)),
            topic=topic,
        )

    def settings(self) -> dict[str, Any]:
        """Return the settings of the policy: features by name, a form with three answers, rewards by agreement."""
        return {
            "features": {"numbers": list(NUMBERS), "categories": {"topic": list(TOPICS)}},
            "budget": {UNIT: self.budget},
            "deadline_s": DEADLINE_S,
            "lease_s": 120,
            "review": {
                "form": [
                    {
                        "name": "label",
                        "kind": "choice",
                        "label": "Is this comment all right?",
                        "options": [{"value": each, "label": each.capitalize()} for each in LABELS],
                    }
                ],
                "guidelines": GUIDELINES,
                "model_answer": "after",
                "timer": {"resource": UNIT, "unit_s": 60},
                "reward_rule": {"kind": "match"},
            },
        }

    def context(self, place: int) -> dict[str, float | str]:
        """Return the context of a comment on its arrival."""
        return self.comment(place).context

    def payload(self, place: int) -> dict[str, str]:
        """Return the payload of a comment for reviewers."""
        comment = self.comment(place)
        return {"comment": comment.text, "under an article on": comment.topic}

    def model_answer(self, place: int) -> str:
        """Return the answer of the model."""
        return self.comment(place).model_answer

    def answer(self, place: int, reviewer: str) -> dict[str, str]:
        """Return the answer of a reviewer: the truth, most of the time."""
        rng = random.Random(f"{self._seed} {place} {reviewer}")
        label = self.comment(place).label
        return {"label": label if rng.random() < PERSON_IS_RIGHT else rng.choice(others(label))}

    def reward(self, place: int, decider: str) -> float:
        """Return the reward of a decider on a comment: 1 if it is right; for people, their expected accuracy."""
        comment = self.comment(place)
        return float(comment.model_answer == comment.label) if decider == MODEL else PERSON_IS_RIGHT

    def gain(self, place: int) -> float:
        """Return the expected gain over the model from asking about a comment."""
        return PERSON_IS_RIGHT - MODEL_IS_RIGHT[self.comment(place).tricky]


def others(label: str) -> list[str]:
    """Return the labels that would be wrong."""
    return [each for each in LABELS if each != label]
