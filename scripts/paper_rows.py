"""Rows of `minrnn reproduce`: read from folders, each run once, and grouped so that a group differs in seeds alone."""
import glob
import json
import math
import os
import sys

# Experiments of another machine's times, or of counts: there is nothing to be as good as.
MEASURED = {"efficiency", "memory", "inference", "parameters"}
RUN = ("experiment", "row", "column", "settings", "kind", "dtype")  # and the seed: the same run, as the command has it
SCORED = ("measure", "scale", "test", "target_loss")  # rows that differ in these have no mean
TEXTS = ("settings", "profile", "device", "date", "paper_cell", "measure", "test", "data", "test_set", "differs",
         "own_budget", "setting")
MEANS = ("steps", "best_step", "seconds", "target_step", "parameters", "sequences", "tokens", "chance", "constant",
         "valid_accuracy", "valid_loss", "data_score", "data_made")
NUMBERS = (*MEANS, "seed", "score", "last_score", "scale", "strings", "answers", "asked_steps", "side_by_side", "ms",
           "bytes", "repetitions", "percent", "tried", "outdated")
SEARCH = "search"  # the profile of settings that were tried, scored on validation: never results


class Results:
    """rows: the current ones. outdated: those of another protocol or test set, which count nowhere.
    tried: {(experiment, row, column): {setting: scores on validation}}."""

    def __init__(self):
        self.rows, self.outdated, self.tried = [], [], {}


def mean_std(values):
    mean = sum(values) / len(values)
    if len(values) < 2:
        return mean, None
    return mean, math.sqrt(sum((v - mean) ** 2 for v in values) / (len(values) - 1))


def in_folders(folders, pattern):
    return [path for folder in folders for path in sorted(glob.glob(os.path.join(folder, pattern)))]


def is_row(row, names):
    """Texts that tell runs apart, and numbers that are finite."""
    if not isinstance(row, dict) or not all(isinstance(row.get(key), str) and row[key] for key in names):
        return False
    if not all(isinstance(row.get(key, ""), str) for key in TEXTS) or row.get("paper_cell", " |  | ").count(" | ") != 2:
        return False
    if any(isinstance(row.get(key), str) for key in NUMBERS):
        return False
    for key, value in row.items():
        if key == "curve":
            continue
        if not isinstance(value, (str, int, float)) or (isinstance(value, float) and not math.isfinite(value)):
            return False
    return True


def has_score(row):
    """A score, or why there is none."""
    return isinstance(row.get("score"), (int, float)) or "failed" in row


def is_try(row):
    return isinstance(row, dict) and row.get("profile") == SEARCH


def is_result(row):
    names = ("experiment", "row", "column", "kind", "dtype", *(["setting"] if is_try(row) else []))
    return is_row(row, names) and ("seed" not in row or has_score(row))


def read_file(path):
    """The experiment's name and the rows of one file, or None if it holds something else."""
    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
    except (OSError, ValueError, RecursionError) as error:
        sys.exit(f"paper.py: {path}: cannot be read as JSON ({error}); "
                 "remove the file or replace it with a whole one")
    if not isinstance(data, dict) or "rows" not in data or "experiment" not in data:
        return None
    name, rows = data["experiment"], data["rows"]
    if not isinstance(name, str) or not isinstance(rows, list) or not all(is_result(row) for row in rows):
        sys.exit(f"paper.py: {path}: has rows that are no results of `minrnn reproduce`; "
                 "remove the file or replace it with a whole one")
    return name, rows


def keep_newest(rows, key, row):
    if row.get("date", "") >= rows.get(key, row).get("date", ""):
        rows[key] = row


def read_results(folders):
    """Each run once, whatever folders it is in: the newest row of it."""
    rows, tries, results = {}, {}, Results()
    for path in in_folders(folders, "*.json"):
        _, found = read_file(path) or ("", [])
        for row in found:
            if row.get("profile") == "quick":
                continue
            if row.get("outdated"):
                if not is_try(row):
                    results.outdated.append(row)
            elif is_try(row):
                if "asked_steps" in row:  # another budget than the others'
                    continue
                cell = row["experiment"], row["row"], row["column"]
                keep_newest(tries, (cell, row["setting"], row.get("seed")), row)
            else:
                same = tuple(row.get(key) for key in (*RUN, "seed", *([] if "seed" in row else ["device"])))
                keep_newest(rows, same, row)
    results.rows = list(rows.values())
    for (cell, setting, _), row in tries.items():
        scores = results.tried.setdefault(cell, {}).setdefault(setting, [])
        scores += [row["score"]] if "score" in row and "failed" not in row else []
    return results


def comparable(a, b):
    """Scored in the same way, on the same data and the same test set? Measure and data as the command has it
    (mr_row_same_measure, mr_row_same_data): rows of early versions do not say, and go with any. A row that does not
    name its test set goes only with others that do not."""
    if a.get("test_set") != b.get("test_set"):
        return False
    if a.get("data") and b.get("data") and a["data"] != b["data"]:
        return False
    return not a.get("measure") or not b.get("measure") or all(a.get(key) == b.get(key) for key in SCORED)


def mean_of(rows, key):
    values = [row[key] for row in rows if key in row]
    return mean_std(values)[0] if values else None


def first_of(rows, key):
    return next((row[key] for row in rows if row.get(key)), None)


def texts_of(rows, key):
    """What the rows say, in the order of their seeds; None if one of them does not say."""
    if not all(key in row for row in rows):
        return None
    return "; ".join(dict.fromkeys(row[key] for row in rows if row[key]))


def group_of(number, run, members):
    members = sorted(members, key=lambda row: row["seed"])
    experiment, row, column, settings, kind, dtype = run
    scored = [r for r in members if "score" in r]
    mean, std = mean_std([r["score"] for r in scored]) if scored else (None, None)
    last = mean_of(scored, "last_score") if all("last_score" in r for r in scored) else None
    beside = [r.get("side_by_side", 1) for r in members]
    strings = [r.get("strings", 0) for r in scored]
    return {
        "number": number, "experiment": experiment,
        "profile": min((r.get("profile", "") for r in members), key=lambda p: p != "ours"), "row": row,
        "column": column, "settings": settings, "kind": kind, "dtype": dtype, "device": members[0].get("device"),
        "date": max(r.get("date", "") for r in members), "mean": mean, "std": std, "seeds": len(members),
        "scored": len(scored), "last": last,
        "seed_list": [r["seed"] for r in members], "asked_steps": members[0].get("asked_steps"),
        "diverged": sum("failed" in r for r in members), "cell": first_of(members, "paper_cell"),
        "data": first_of(members, "data"), "test_set": first_of(members, "test_set"),
        "measure": first_of(members, "measure"), "scale": first_of(members, "scale"),
        "strings": min(strings) if strings and min(strings) > 0 else None, "answers": first_of(members, "answers"),
        "tried": max(r.get("tried", 0) for r in members) or None, "setting": first_of(members, "setting"),
        "differs": texts_of(members, "differs"), "own_budget": first_of(members, "own_budget"),
        "side_by_side": [min(beside), max(beside)], **{key: mean_of(members, key) for key in MEANS}}


def groups_of(rows):
    """Rows that differ in their seeds alone, as one group each."""
    found = []
    for row in (r for r in rows if r["experiment"] not in MEASURED):
        run = tuple(row.get(key) for key in RUN)
        members = next((m for known, m in found if known == run and all(comparable(row, other) for other in m)), None)
        if members is None:
            members = []
            found.append((run, members))
        members.append(row)
    return [group_of(number, run, members) for number, (run, members) in enumerate(found)]
