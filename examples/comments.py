# %% [markdown]
# # Comments: which ones should a person read?
# A model sorts comments, and understands complaints badly. What it is bad at is not told: deferkit learns it from the
# words, which are hashed, so that nothing is downloaded. Twenty of a hundred comments can be read by a person.

# %%
import numpy as np

from deferkit import Budget, Deferrer, Encoder

COMMENTS = 600
COMPLAINTS = ["the parcel never came", "my parcel came broken", "parcel came late again", "no parcel came at all"]
OTHERS = ["thank you for quick help", "great service and quick help", "very kind and great help", "quick and kind"]
rng = np.random.default_rng(0)
deferrer = Deferrer(encoder=Encoder(texts=["comment"]), budget=Budget.reviews(COMMENTS // 5, horizon=COMMENTS), seed=0)
read = {"complaints": 0, "others": 0}
right = {"model alone": 0, "deferkit": 0}
for number in range(COMMENTS):
    complains = rng.random() < 0.3
    comment = f"{rng.choice(COMPLAINTS if complains else OTHERS)} (no. {number})"
    model = bool(rng.random() < (0.4 if complains else 0.95))
    decision = deferrer.decide({"comment": comment})
    right["model alone"] += model
    if decision.route == "human":  # her answer says whether the model was right, too
        read["complaints" if complains else "others"] += 1
        right["deferkit"] += 1
        deferrer.observe(decision.id, {"human": 1.0, "model": float(model)})
    else:
        right["deferkit"] += model
        deferrer.observe(decision.id, {"model": float(model)})

# %%
print("read:", read)
print("right:", right)
print(deferrer)
