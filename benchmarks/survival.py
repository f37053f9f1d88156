"""Times that may be censored: `wf.fit` beside lifelines' accelerated failure and Cox models, and a survival forest.

    python benchmarks/survival.py --set-up            once: lifelines and scikit-survival, in a venv of their own
    python benchmarks/survival.py                     3 folds of every table; 35 minutes of one shared core
    python benchmarks/survival.py gbsg rossi          of some tables

Peers answer in their own interpreter; all are scored by the same functions, which the tests compare with slow formulas,
and `--check` with lifelines' and scikit-survival's own scores. Results go to benchmarks/results/survival.md.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
FOLDS = 3
PEER_PACKAGES = ("lifelines", "scikit-survival", "pandas")
OURS, PEERS = "wherefrom", ("AFT, Weibull", "AFT, log-normal", "AFT, log-logistic", "Cox", "survival forest")
# table -> time, event (and its value), columns to drop, rows to keep
SETS = {
    "lung_cancer": ("time", "status", 2, ("inst",), None),
    "gbsg": ("rfstime", "status", 1, ("pid",), None),
    "rossi": ("week", "arrest", 1, (), None),
    "whas500": ("lenfol", "fstat", 1, ("los",), None),
    "veterans_lung_cancer": ("Survival_in_days", "Status", 1, (), None),
    "colon": ("time", "status", 1, ("id", "study", "etype"), ("etype", 2)),
    "mgus2": ("futime", "death", 1, ("id", "ptime", "pstat"), None),
    "rotterdam": ("dtime", "death", 1, ("pid", "year", "rtime", "recur"), None),
}
# tables that the peers ship, as CSV, by Python in their interpreter
SHIPPED = {
    "rossi": "from lifelines.datasets import load_rossi as load; print(load().to_csv(index=False))",
    **dict.fromkeys(
        ("whas500", "veterans_lung_cancer"),
        "from sksurv.datasets import load_{name} as load; x, y = load(); "
        "print(x.assign(**{{key: y[key].astype(float) for key in y.dtype.names}}).to_csv(index=False))",
    ),
}


def set_up(folder: Path) -> None:
    """Make the peers' virtual environment."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    subprocess.run([str(folder / "bin" / "python"), "-m", "pip", "install", "-q", *PEER_PACKAGES], check=True)


def frame_of(name: str, data: Path, peers: Path):
    """Read a table, with the columns time and event."""
    import pandas

    time_name, event_name, seen, dropped, kept = SETS[name]
    if name in SHIPPED:
        code = SHIPPED[name].format(name=name)
        done = subprocess.run([str(peers / "bin" / "python"), "-c", code], check=True, capture_output=True, text=True)
        frame = pandas.read_csv(io.StringIO(done.stdout))
    else:
        frame = pandas.read_csv(data / "tables" / f"{name}.csv.gz")
    if kept is not None:
        frame = frame[frame[kept[0]] == kept[1]]
    frame = frame.drop(columns=[column for column in ("rownames", *dropped) if column in frame])
    frame["event"] = (frame.pop(event_name) == seen).astype(int)
    frame["time"] = frame.pop(time_name).astype(float)
    return frame[frame["time"] > 0].reset_index(drop=True)


def encoded(train, test) -> tuple[np.ndarray, np.ndarray]:
    """One-hot columns, gaps filled by the training rows' median, standardised by them."""
    import pandas

    both = pandas.get_dummies(pandas.concat([train, test]).drop(columns=["time", "event"])).astype(float)
    first = both.iloc[: len(train)]
    both = both.fillna(first.median())
    first = both.iloc[: len(train)]
    both = ((both - first.mean()) / first.std().where(first.std() > 0, 1.0)).to_numpy()
    both = both[:, both[: len(train)].std(0) > 0]
    return both[: len(train)], both[len(train) :]


# ---------------------------------------------------------------------- contenders


def answered_by_us(train, test, times: np.ndarray) -> dict[str, np.ndarray]:
    import wherefrom as wf

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = wf.fit(train, "time", event="event", workers=1)
    prediction = model.look(test).prediction()
    nll = prediction.nll(test[["time", "event"]].to_numpy(), by_row=True)
    return {
        "survival": prediction.survival(times).numpy(),
        "predicted": prediction.median.numpy(),
        "nll": nll.numpy(),
        "covered": np.array([prediction.coverage(test[["time", "event"]].to_numpy(), 0.95)]),
    }


def peers_answer(folder: Path) -> None:
    """Answer the rows in a file, by all peers; runs in their interpreter."""
    import lifelines
    import pandas
    from scipy import stats
    from sksurv.ensemble import RandomSurvivalForest

    task = np.load(folder / "task.npz")
    x, new, y, new_y, times = (task[name] for name in ("x", "new", "y", "new_y", "times"))
    names = [f"x{k}" for k in range(x.shape[1])]
    frame, other = pandas.DataFrame(x, columns=names), pandas.DataFrame(new, columns=names)
    frame["time"], frame["event"] = y.T
    warnings.simplefilter("ignore")
    answers = {}

    def add(name, survival, predicted, began, nll=None):
        parts = {"survival": survival, "predicted": predicted, "seconds": np.array([time.perf_counter() - began])}
        answers.update({f"{name}|{part}": value for part, value in parts.items()})
        if nll is not None:
            answers[f"{name}|nll"] = nll

    for name, fitter, distribution in (
        ("AFT, Weibull", lifelines.WeibullAFTFitter, stats.weibull_min),
        ("AFT, log-normal", lifelines.LogNormalAFTFitter, stats.lognorm),
        ("AFT, log-logistic", lifelines.LogLogisticAFTFitter, stats.fisk),
    ):
        began = time.perf_counter()
        model = fitter(penalizer=0.01).fit(frame, "time", "event")
        first, second = model.params_.index.get_level_values(0).unique()
        linear = model.params_[first]
        middle = other @ linear[names] + linear["Intercept"] if "Intercept" in linear else other @ linear[names]
        width = float(np.exp(model.params_[second]["Intercept"]))
        middle = np.asarray(middle)
        law = distribution(width, scale=np.exp(middle)[:, None])
        at = new_y[:, :1]
        logs = np.where(new_y[:, 1:] > 0, law.logpdf(at), law.logsf(at))[:, 0]
        add(name, law.sf(times[None]), middle, began, -logs)
    began = time.perf_counter()
    cox = lifelines.CoxPHFitter(penalizer=0.01).fit(frame, "time", "event")
    add(
        "Cox",
        cox.predict_survival_function(other, times).to_numpy().T,
        -np.asarray(cox.predict_log_partial_hazard(other)),
        began,
    )
    began = time.perf_counter()
    target = np.array([(bool(event), at) for at, event in y], dtype=[("event", "?"), ("time", "<f8")])
    forest = RandomSurvivalForest(200, min_samples_leaf=15, random_state=0).fit(x, target)
    curves = forest.predict_survival_function(new, return_array=True)
    step = np.searchsorted(forest.unique_times_, times, side="right")
    curves = np.concatenate([np.ones((len(new), 1)), curves], 1)[:, step]
    add("survival forest", curves, -forest.predict(new), began)
    np.savez(folder / "answers.npz", **answers)


def answered_by_peers(python: Path, train, test, times: np.ndarray) -> dict[str, dict[str, np.ndarray]]:
    x, new = encoded(train, test)
    y, new_y = (part[["time", "event"]].to_numpy(float) for part in (train, test))
    with tempfile.TemporaryDirectory() as folder:
        np.savez(Path(folder) / "task.npz", x=x, new=new, y=y, new_y=new_y, times=times)
        subprocess.run([str(python), __file__, "--answer", folder], check=True)
        answers = np.load(Path(folder) / "answers.npz")
        by_contender: dict[str, dict[str, np.ndarray]] = {}
        for name in answers.files:
            contender, part = name.split("|")
            by_contender.setdefault(contender, {})[part] = answers[name]
    return by_contender


# ---------------------------------------------------------------------- scores


def scored(answer: dict[str, np.ndarray], test, times: np.ndarray) -> dict[str, float]:
    from wherefrom.predictive import survival_scores

    at, event = test["time"].to_numpy(), test["event"].to_numpy() > 0
    uncensored = survival_scores.censoring(at, event)
    is_scored = uncensored.at(times) > 0
    brier = survival_scores.brier(at, event, answer["survival"][:, is_scored], times[is_scored], uncensored)
    scores = {
        "concordance": survival_scores.concordance(at, event, answer["predicted"]).value,
        "ibs": float(brier.integrated.mean()),
        "seconds": float(answer["seconds"][0]),
    }
    scores |= {"nll": float(answer["nll"].mean())} if "nll" in answer else {}
    return scores | ({"coverage": float(answer["covered"][0])} if "covered" in answer else {})


def run(name: str, asked: argparse.Namespace) -> list[dict[str, object]]:
    frame = frame_of(name, asked.data, asked.peers)
    fold = np.random.default_rng(0).permutation(len(frame)) % FOLDS
    lines: list[dict[str, object]] = []
    for k in range(FOLDS):
        train, test = (frame[part].reset_index(drop=True) for part in (fold != k, fold == k))
        at = test["time"].to_numpy()
        times = np.linspace(*np.quantile(at, [0.1, 0.9]), 50)
        answers = answered_by_peers(asked.peers / "bin" / "python", train, test, times)
        began = time.perf_counter()
        answers[OURS] = answered_by_us(train, test, times)
        answers[OURS]["seconds"] = np.array([time.perf_counter() - began])
        shape = {"table": name, "fold": k, "rows": len(frame), "events": float(frame["event"].mean())}
        for contender, answer in answers.items():
            lines.append(shape | {"contender": contender, **scored(answer, test, times)})
        print(name, k, {each["contender"]: round(each["ibs"], 4) for each in lines if each["fold"] == k}, flush=True)
    return lines


def page(lines: list[dict[str, object]]) -> str:
    """Write the means over folds, the best of each column in bold."""
    text = [
        "# Times that may be censored",
        "",
        f"`wf.fit` with defaults, lifelines' models and scikit-survival's forest on the same {FOLDS} folds, as "
        "`python benchmarks/survival.py` writes it. Means over folds of: the NLL of the times (lower is better; a Cox "
        "model and a forest have no density), the integrated Brier score (IBS) between the 10% and 90% quantiles of "
        "the times, Harrell's concordance, and of `wf.fit` the share of times in their 95% interval. Lifelines' models "
        "have a penalizer of 0.01; the forest has 200 trees with leaves of 15 rows.",
    ]
    for name in dict.fromkeys(line["table"] for line in lines):
        of_table = [line for line in lines if line["table"] == name]
        text += ["", f"## {name}: {of_table[0]['rows']:,} rows, {of_table[0]['events']:.0%} with the event", ""]
        text += ["| | NLL | IBS | concordance | 95% interval holds |", "|---|---|---|---|---|"]
        means = {
            contender: {
                score: np.mean([line[score] for line in of_table if line["contender"] == contender])
                for score in ("nll", "ibs", "concordance", "coverage")
                if any(score in line for line in of_table if line["contender"] == contender)
            }
            for contender in (OURS, *PEERS)
        }
        best = {
            "nll": min(each["nll"] for each in means.values() if "nll" in each),
            "ibs": min(each["ibs"] for each in means.values()),
            "concordance": max(each["concordance"] for each in means.values()),
        }
        for contender, each in means.items():
            cells = [
                ""
                if score not in each
                else f"**{each[score]:.4f}**"
                if each[score] == best[score]
                else f"{each[score]:.4f}"
                for score in best
            ]
            covered = f"{each['coverage']:.1%}" if "coverage" in each else ""
            text.append(f"| {contender} | {' | '.join(cells)} | {covered} |")
    return "\n".join(text) + "\n"


CHECK = """
import sys, json, numpy as np
from lifelines.utils import concordance_index
from sksurv.metrics import integrated_brier_score, concordance_index_ipcw, concordance_index_censored
from sksurv.util import Surv
g = np.load(sys.argv[1])
y = Surv.from_arrays(g["event"].astype(bool), g["time"])
print(json.dumps({
    "lifelines": concordance_index(g["time"], g["predicted"], g["event"]),
    "harrell": concordance_index_censored(g["event"].astype(bool), g["time"], -g["predicted"])[0],
    "uno": concordance_index_ipcw(y, y, -g["predicted"], tau=float(g["until"]))[0],
    "ibs": integrated_brier_score(y, y, g["survival"], g["times"]),
}))
"""


def check(asked: argparse.Namespace) -> None:
    """Compare our scores with those of lifelines and scikit-survival, of the same predictions."""
    import wherefrom as wf

    for name in ("gbsg", "lung_cancer"):
        frame = frame_of(name, asked.data, asked.peers)
        x, _ = encoded(frame, frame)
        y = frame[["time", "event"]].to_numpy(float)
        how = wf.Training(wf.MLP([8]), wf.Algorithm("adam", lr=0.01, batch_size=64), 5, wf.Survival())
        prediction = wf.marginalise(how, (x, y), [wf.InitialCondition(2)]).predict(x)
        times = np.linspace(*np.quantile(y[:, 0], [0.1, 0.9]), 50)
        until = float(np.quantile(y[:, 0], 0.9))
        with tempfile.TemporaryDirectory() as folder:
            np.savez(
                Path(folder) / "check.npz", time=y[:, 0], event=y[:, 1], predicted=prediction.median.numpy(),
                survival=prediction.survival(times).numpy(), times=times, until=until,
            )  # fmt: skip
            python = str(asked.peers / "bin" / "python")
            done = subprocess.run(
                [python, "-c", CHECK, f"{folder}/check.npz"], check=True, capture_output=True, text=True
            )
        theirs = json.loads(done.stdout)
        harrell = prediction.concordance(y)
        ours = {
            "lifelines": harrell,
            "harrell": harrell,
            "uno": prediction.concordance(y, "uno", until=until),
            "ibs": prediction.integrated_brier(y, times),
        }
        for score, value in theirs.items():
            print(f"{name} {score}: ours {ours[score]:.12f}, theirs {value:.12f}, apart {abs(ours[score] - value):.1e}")
        _check_likelihood(name, frame, x, y, asked)


AFT = """
import sys, json, numpy as np, pandas, lifelines
g = np.load(sys.argv[1])
f = pandas.DataFrame(g["x"], columns=[f"x{k}" for k in range(g["x"].shape[1])])
f["time"], f["event"] = g["y"].T
fitted = {}
for law, fitter in (("weibull", lifelines.WeibullAFTFitter), ("lognormal", lifelines.LogNormalAFTFitter),
                    ("loglogistic", lifelines.LogLogisticAFTFitter)):
    m = fitter().fit(f, "time", "event")
    first, second = m.params_.index.get_level_values(0).unique()
    s = float(np.exp(m.params_[second]["Intercept"]))
    fitted[law] = [m.log_likelihood_, s if law == "lognormal" else 1 / s]
print(json.dumps(fitted))
"""


def _check_likelihood(name: str, frame, x: np.ndarray, y: np.ndarray, asked: argparse.Namespace) -> None:
    """Compare the log-likelihood of a network without hidden units, at lifelines' scale, with lifelines' own."""
    import wherefrom as wf

    with tempfile.TemporaryDirectory() as folder:
        np.savez(Path(folder) / "task.npz", x=x, y=y)
        python = str(asked.peers / "bin" / "python")
        done = subprocess.run([python, "-c", AFT, f"{folder}/task.npz"], check=True, capture_output=True, text=True)
    for law, (theirs, scale) in json.loads(done.stdout).items():
        algorithm = wf.Algorithm("adam", lr=0.02, batch_size=len(x), schedule=wf.schedules.Cosine())
        how = wf.Training(wf.MLP([]), algorithm, 3000, wf.Survival(scale, law=law))
        prediction = wf.marginalise(how, (x, y), []).predict(x)
        ours = -prediction.nll(y) * len(y)
        print(f"{name} {law}: log-likelihood {ours:.4f}, lifelines' {theirs:.4f}, apart {abs(ours - theirs):.1e}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", help=f"of {', '.join(SETS)} (default: all)")
    parser.add_argument("--set-up", action="store_true", help="make the peers' virtual environment, and end")
    parser.add_argument(
        "--check", action="store_true", help="compare scores and likelihoods with the peers' own, and end"
    )
    parser.add_argument("--peers", type=Path, default=ROOT / ".venv-survival", help="the peers' virtual environment")
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("WHEREFROM_DATA", "data")))
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "survival.md")
    parser.add_argument("--answer", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.answer is not None:
        peers_answer(asked.answer)
    elif asked.set_up:
        set_up(asked.peers)
    elif asked.check:
        check(asked)
    else:
        lines: list[dict[str, object]] = []
        for name in asked.tables or SETS:
            lines += run(name, asked)
            asked.out.write_text(page(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
