# %% [markdown]
# # Hospital stay, from a CSV file
#
# How long will a patient stay? The table has text, dates, missing values, limits such as `<5`, and several rows of some patients. Real patients may not be
# shown, so these are made up. The code that makes them comes first; use your own file instead.

# %%
import numpy as np
import pandas as pd

# quick: ROWS = 150
ROWS = 1500


def admissions(rows, seed):
    random = np.random.default_rng(seed)
    age = random.uniform(20, 95, rows)
    ward = random.choice(["surgery", "medicine", "cardiology"], rows, p=[0.4, 0.4, 0.2])
    crp = random.lognormal(2.5, 1.0, rows)  # C-reactive protein, mg/l
    day = pd.Timestamp("2023-01-01") + pd.to_timedelta(random.integers(0, 700, rows), unit="D")
    typical = 1.0 + 0.012 * age + 0.25 * np.log(crp) + np.where(ward == "surgery", 0.4, 0.0) + 0.2 * (day.dayofweek > 4)
    table = pd.DataFrame(
        {
            "patient_id": random.integers(10_000, 10_000 + rows // 2, rows),
            "admitted": day.strftime("%Y-%m-%d"),
            "age": age.round(),
            "ward": ward,
            "crp": [f"{value:.1f}" if value >= 5 else "<5" for value in crp],
            "albumin": (45 - 3 * np.log(crp) + random.normal(0, 3, rows)).round(1),
            "stay_days": np.exp(typical - 1 + 0.5 * random.normal(size=rows)).round(1),
        }
    )
    table.loc[random.random(rows) < 0.2, "albumin"] = np.nan
    table.loc[random.random(rows) < 0.1, "crp"] = None
    return table


admissions(ROWS, seed=0).to_csv("admissions.csv", index=False)
print(pd.read_csv("admissions.csv").head())

# %% [markdown]
# ## Fit
#
# `group` keeps all stays of a patient together. Otherwise the model would be tested on patients that it has seen. In a shell, this line is
# `wherefrom fit admissions.csv --target stay_days --group patient_id --out run`.

# %%
import wherefrom as wf

# quick: model = wf.fit("admissions.csv", target="stay_days", group="patient_id", draws=2, epochs=3)
model = wf.fit("admissions.csv", target="stay_days", group="patient_id")
model

# %% [markdown]
# Scores, each with its standard error. Every stay is predicted by networks that did not see the patient.

# %%
print(model.scores.table())

# %% Share of stays within their interval against the level of the interval: the points lie close to the diagonal
model.plot("calibration")

# %% [markdown]
# The points should lie on the line: a 50% interval should contain half of the stays, a 95% interval nearly all of them.
#
# ## Predict new patients
#
# The first one is complete. The second lacks both laboratory values. The third has albumin in g/dl instead of g/l, as some laboratories report it.

# %%
new = pd.DataFrame(
    {
        "patient_id": [1, 2, 3],
        "admitted": ["2024-12-05"] * 3,
        "age": [70, 70, 70],
        "ward": ["surgery"] * 3,
        "crp": ["40", None, "40"],
        "albumin": [33.0, None, 3.3],
    }
)
predictions = model.predict(new)
predictions[["median", "lower", "upper", "share_gaps", "measure_next", "expected_fall", "outside", "why"]].T

# %% [markdown]
# `share_gaps` is the part of the second patient's doubt that comes from the missing values. `measure_next` says which of them would help most, and
# `expected_fall` by how much the variance (of the logarithm of the stay) would fall. The third row is marked as unusual, and `why` gives the reason. Its
# interval is nearly that of all patients.
#
# ## Where the doubt comes from

# %%
print(model.sources(admissions(ROWS // 3, seed=1)))

# %% [markdown]
# The columns do not explain most of the doubt: patients with the same row stay for different times. No training lowers that. The model's own doubt is small;
# about half of it comes from missing values, which is 1.3% of all doubt. The [glossary](../glossary.md) explains the letters. `model.advice()` says what you
# can do, the most useful first.

# %%
print(model.advice())

# %% Bars of how much the NLL rises if a column is shuffled: most for age, then ward and crp
model.importance().plot()

# %% [markdown]
# The plot shows which columns matter: how much worse the prediction gets if a column is shuffled.
#
# `model.report("report.html")` writes all of this as a page for the browser, and `model.save("run")` keeps the model.
