# %% [markdown]
# # A rare outcome
#
# Four patients in a hundred come back within a month. A model that answers "no" for everybody is right in 96% of cases, and useless. You want the risk of each
# patient, and to know whether you can trust it. The patients here are made up, so that the true risk is known.

# %%
import numpy as np
import pandas as pd
import wherefrom as wf

# quick: ROWS = 400
ROWS = 6000


def patients(rows, seed):
    random = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "age": random.uniform(20, 95, rows).round(),
            "earlier_stays": random.poisson(0.7, rows),
            "creatinine": random.lognormal(0, 0.4, rows).round(2),
            "lives_alone": random.choice(["yes", "no"], rows, p=[0.3, 0.7]),
        }
    )
    score = -6.5 + 0.025 * table["age"] + 0.6 * table["earlier_stays"] + 0.8 * table["creatinine"]
    risk = 1 / (1 + np.exp(-(score + 0.5 * (table["lives_alone"] == "yes"))))
    table["returned"] = np.where(random.random(rows) < risk, "yes", "no")
    return table, risk


train, _ = patients(ROWS, seed=0)
new, true_risk = patients(ROWS // 2, seed=1)
train["returned"].value_counts()

# %%
# quick: model = wf.fit(train, target="returned", draws=2, epochs=3)
model = wf.fit(train, target="returned")
print(model.scores.table())

# %% [markdown]
# A model without any information would have an `average precision` equal to the prevalence. `lift` says how much more frequent the event is in the tenth of
# patients at highest risk. The next table shows what happens if you act on all patients above a threshold of the risk:

# %%
print(model.scores.alerts())

# %% [markdown]
# ## Are the risks right?
#
# Five groups of new patients, from the lowest to the highest predicted risk: how many came back? The patients are made up, so the true risk is known, too.

# %%
predictions = model.predict(new)
risk = predictions["p_yes"].to_numpy()
group = pd.qcut(risk, 5, labels=["lowest fifth", "second", "third", "fourth", "highest fifth"])
pd.DataFrame({"predicted": risk, "true risk": true_risk, "came back": new["returned"] == "yes"}).groupby(
    group, observed=True
).mean().round(3)

# %% [markdown]
# The groups are in the right order. Predicted risks differ from the true ones by at most 0.9 percentage points; most are a little higher.

# %% Accuracy against confidence: nearly all patients are at the top right, near the diagonal; few have a lower confidence
model.plot("reliability", new)

# %% [markdown]
# ## The largest doubt is not the highest risk
#
# The entropy of a rare class grows with its probability. So the patients with the largest entropy are those at highest risk again. `disagreement` is different:
# it says how much the networks differ. Where it is large, more data could change the answer.

# %%
highest = set(predictions.nlargest(50, "p_yes").index)
for column in ("entropy", "disagreement"):
    doubt = set(predictions.nlargest(50, column).index)
    print(f"of the 50 patients with the largest {column}, {len(highest & doubt)} are among the 50 at highest risk")

# %%
print(model.sources(new))

# %% [markdown]
# Nearly all of the doubt is that patients with equal columns have different outcomes. More networks or longer training would not lower it; more columns might.
# The model's own doubt is about 1%. Most of it comes from the moment training stops (`t`): some epochs earlier or later, the risks would be a little different.
# The [glossary](../glossary.md) explains the letters.
