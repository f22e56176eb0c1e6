# %% [markdown]
# # A classifier with a review budget
# A naive Bayes classifier reads handwritten digits (a data set of scikit-learn). A simulated reviewer reads them
# better, but takes time: 0.5 minutes on average, and she is right 97 times out of 100. There are 60 minutes for about
# 1,600 digits. Which ones should she look at? The training data say where the classifier errs; nothing is known of her
# at first. What becomes known is her answer to what she was asked, and the minutes that it took.

# %%
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB

from deferkit import Budget
from deferkit.sklearn import DeferringClassifier

MINUTES = 60
X, y = load_digits(return_X_y=True)
X_train, X_new, y_train, y_new = train_test_split(X, y, train_size=200, random_state=0)
budget = Budget(MINUTES, horizon=len(X_new), max_cost=3)
classifier = DeferringClassifier(GaussianNB(), budget=budget).fit(X_train, y_train)

# %% [markdown]
# The simulated reviewer.

# %%
rng = np.random.default_rng(1)
minutes = np.minimum(0.5 * rng.lognormal(-0.125, 0.5, len(X_new)), 3).round(3)
answers = np.where(rng.random(len(X_new)) < 0.97, y_new, rng.integers(0, 10, len(X_new)))

# %% [markdown]
# The stream: `defer` decides, `observe` tells what came of it.

# %%
final = np.empty_like(y_new)
for row in range(len(X_new)):
    deferral = classifier.defer(X_new[[row]])
    final[row] = deferral.labels[0]
    if deferral.asked[0]:
        final[row] = answers[row]
        classifier.observe(deferral.ids[0], answer=answers[row], cost=minutes[row])

# %% [markdown]
# Compared with the classifier alone, and with a reviewer who looks at tasks at random until her time is over.

# %%
alone = classifier.predict(X_new) == y_new
order = rng.permutation(len(X_new))
at_random = order[np.cumsum(minutes[order]) <= MINUTES]
randomly = alone.copy()
randomly[at_random] = answers[at_random] == y_new[at_random]
summary = classifier.deferrer_.summary()
print(f"classifier alone    {alone.mean():.1%} right")
print(f"reviewer at random  {randomly.mean():.1%} right, {len(at_random)} asked")
print(f"deferkit            {(final == y_new).mean():.1%} right, {summary.routes['human']} asked")
print(f"spent               {summary.spent:.1f} of {MINUTES} minutes")
