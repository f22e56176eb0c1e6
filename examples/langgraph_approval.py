# %% [markdown]
# # Approval in a LangGraph agent, within a budget
# An agent drafts refunds. A person could approve each of them, but there are minutes for a few only. The node
# `approve` asks whether this one is worth a person's time: only then the graph stops until she has answered.

# %%
import random
import tempfile
from pathlib import Path
from typing import Any, TypedDict

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command

from deferkit import Budget, Deferrer, Encoder
from deferkit.connectors.langgraph import defer
from deferkit.connectors.task_deferrer import TaskDeferrer

# %% [markdown]
# The decider: a learner in a file (a `Client` of the service works alike). It learns from what the person answers.

# %%
path = Path(tempfile.mkdtemp()) / "refunds.deferkit"
encoder = Encoder(numbers=["amount"], categories={"country": ["de", "fr"]})
decider = TaskDeferrer(path, Deferrer(encoder=encoder, budget=Budget(20, horizon=100, max_cost=1)))


class Refund(TypedDict, total=False):
    """The state of the graph."""

    id: str
    amount: float
    country: str
    draft: str
    final: str


def draft(state: Refund) -> Refund:
    """Decide as the model does: small refunds are paid."""
    return {"draft": "pay" if state["amount"] < 80 else "refuse"}


def approve(state: Refund) -> Refund:
    """Take the draft, or ask a person."""
    known = {"amount": state["amount"], "country": state["country"]}
    approval = defer(decider, known, task=state["id"], model_answer=state["draft"], payload=dict(state), cost=0.5)
    return {"final": approval.answer}


builder = StateGraph(Refund)
builder.add_node("draft", draft)
builder.add_node("approve", approve)
builder.add_edge(START, "draft")
builder.add_edge("draft", "approve")
builder.add_edge("approve", END)
graph = builder.compile(checkpointer=InMemorySaver())

# %% [markdown]
# One hundred refunds. The person (simulated) refuses what comes from France above 40.

# %%
chance = random.Random(0)
asked = 0
for number in range(100):
    refund: Refund = {
        "id": f"refund-{number}",
        "amount": chance.uniform(0, 100),
        "country": chance.choice(["de", "fr"]),
    }
    thread: Any = {"configurable": {"thread_id": refund["id"]}}
    result = graph.invoke(refund, thread)
    if "__interrupt__" in result:  # the graph waits for a person
        asked += 1
        right = "refuse" if refund["country"] == "fr" and refund["amount"] > 40 else "pay"
        result = graph.invoke(Command(resume={"answer": right, "cost": 0.2}), thread)
print(f"{asked} of 100 refunds were shown to a person")
print(decider.deferrer.summary())
