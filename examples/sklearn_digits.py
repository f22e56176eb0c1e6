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
# Compared with the classifier alone, with a reviewer who looks at tasks at random until her time is over, and with the
# rule that most teams write first: ask where the classifier is least confident, as often as the minutes left allow.

# %%
alone = classifier.predict(X_new) == y_new
order = rng.permutation(len(X_new))
at_random = order[np.cumsum(minutes[order]) <= MINUTES]
confidence = classifier.predict_proba(X_new).max(axis=1)
spent = 0.0
least_confident: list[int] = []
for row in range(len(X_new)):
    mean = spent / len(least_confident) if least_confident else 3
    share = min(1, (MINUTES - spent) / mean / (len(X_new) - row))
    if spent + 3 <= MINUTES and confidence[row] <= np.quantile(confidence[max(0, row - 499) : row + 1], share):
        least_confident.append(row)
        spent += minutes[row]

randomly, by_confidence = alone.copy(), alone.copy()
randomly[at_random] = answers[at_random] == y_new[at_random]
by_confidence[least_confident] = answers[least_confident] == y_new[least_confident]
summary = classifier.deferrer_.summary()
print(f"classifier alone    {alone.mean():.1%} right")
print(f"reviewer at random  {randomly.mean():.1%} right, {len(at_random)} asked")
print(f"least confident     {by_confidence.mean():.1%} right, {len(least_confident)} asked")
print(f"deferkit            {(final == y_new).mean():.1%} right, {summary.routes['human']} asked")
print(f"spent               {summary.spent:.1f} of {MINUTES} minutes")
