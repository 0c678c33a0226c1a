#!/usr/bin/env python3
"""The whole comparison with the paper, cell by cell, from the results of `minrnn reproduce`.

usage: paper.py RESULTS[:MORE…] [OUT]

RESULTS: folders with NAME.json. OUT (docs/results) gets paper.json, with every cell of the paper's tables, and
paper.md, where the cells that were run have a row and all others of a table share a line.
"""
import glob
import json
import math
import os
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
KEYS = {"layers", "model", "layer", "dataset", "T", "comparison", "batch"}  # columns that name a row
LOWER = {"test_loss"}  # columns in which less is better
# Tables of another machine's times, or of counts: there is nothing to be as good as.
MEASURED = {"efficiency", "memory", "inference", "parameters"}

# Cells that the paper prints twice: the number stands in another table, where an experiment has it.
SAME = {
    "selective_copy_comparison | minGRU minGRU | accuracy": "selective_copy_layers | 3 | minGRU",
    "selective_copy_comparison | minLSTM minLSTM | accuracy": "selective_copy_layers | 3 | minLSTM",
    "lra | minLSTM | listops": "listops_ablation | minLSTM + conv + MLP | accuracy",
}
RUN = ("experiment", "row", "column", "settings", "kind", "dtype")  # and the seed: the same run, as the command has it
SCORED = ("measure", "scale", "test", "target_loss")  # rows that differ in these have no mean
TEXTS = ("settings", "profile", "device", "date", "paper_cell", "measure", "test", "data")
OURS = {"minGRU", "minLSTM", "GRU", "LSTM", "Mamba", "Llama", "Transformer"}  # the paper's models that minrnn has
TITLES = {
    "selective_copy_layers": "Selective copying: layers (accuracy, %)",
    "selective_copy_comparison": "Selective copying: other models (accuracy, %)",
    "d4rl": "D4RL (normalised score)",
    "shakespeare": "Shakespeare (test loss in nats, and its step)",
    "chomsky": "Chomsky hierarchy (accuracy)",
    "lra": "Long Range Arena (accuracy)",
    "listops_ablation": "ListOps: the block (accuracy)",
    "efficiency": "Training step",
    "memory": "Training memory",
    "inference": "Inference (%)",
    "parameters": "Parameters (% of the traditional cell)",
}
NOTES = {
    "chomsky": "Strings of 40 to 256 symbols; [findings.md](findings.md) says which rows were scored on an older draw "
               "of lengths.",
    "memory": "How much more is needed; less is a negative number.",
    "inference": "A negative number: it is the other way round.",
}


def mean_std(values):
    mean = sum(values) / len(values)
    if len(values) < 2:
        return mean, None
    return mean, math.sqrt(sum((v - mean) ** 2 for v in values) / (len(values) - 1))


def in_folders(folders, pattern):
    return [path for folder in folders for path in sorted(glob.glob(os.path.join(folder, pattern)))]


def is_result(row):
    """Texts that tell runs apart, numbers that are finite, and a score or why there is none."""
    names = ("experiment", "row", "column", "kind", "dtype")
    if not isinstance(row, dict) or not all(isinstance(row.get(key), str) and row[key] for key in names):
        return False
    if not all(isinstance(row.get(key, ""), str) for key in TEXTS):
        return False
    for key, value in row.items():
        if key == "curve":
            continue
        if not isinstance(value, (str, int, float)) or (isinstance(value, float) and not math.isfinite(value)):
            return False
    return "seed" not in row or isinstance(row.get("score"), (int, float)) or "failed" in row


def read_rows(folders):
    """Each run once, whatever folders it is in: the newest row of it."""
    rows = {}
    for path in in_folders(folders, "*.json"):
        try:
            with open(path, encoding="utf-8") as file:
                data = json.load(file)
        except (OSError, ValueError) as error:
            sys.exit(f"paper.py: {path}: cannot be read as JSON ({error}); "
                     "remove the file or replace it with a whole one")
        if not isinstance(data, dict) or "rows" not in data or "experiment" not in data:
            continue
        if not isinstance(data["rows"], list) or not all(is_result(row) for row in data["rows"]):
            sys.exit(f"paper.py: {path}: has rows that are no results of `minrnn reproduce`; "
                     "remove the file or replace it with a whole one")
        for row in data["rows"]:
            if row.get("profile") == "quick" or row.get("outdated"):
                continue
            same = tuple(row.get(key) for key in (*RUN, "seed", *([] if "seed" in row else ["device"])))
            if row.get("date", "") >= rows.get(same, row).get("date", ""):
                rows[same] = row
    return list(rows.values())


def comparable(a, b):
    """Scored in the same way, on the same data? As the command has it (mr_row_same_measure, mr_row_same_data): rows of
    early versions do not say, and go with any."""
    if a.get("data") and b.get("data") and a["data"] != b["data"]:
        return False
    return not a.get("measure") or not b.get("measure") or all(a.get(key) == b.get(key) for key in SCORED)


def mean_of(rows, key):
    values = [row[key] for row in rows if key in row]
    return mean_std(values)[0] if values else None


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
    groups = []
    for (experiment, row, column, settings, kind, dtype), members in found:
        profile = min((r.get("profile", "") for r in members), key=lambda p: p != "ours")
        scores = [r["score"] for r in members if "score" in r]
        mean, std = mean_std(scores) if scores else (None, None)
        numbers = {key: mean_of(members, key) for key in ("steps", "best_step", "seconds", "target_step", "parameters")}
        beside = [row.get("side_by_side", 1) for row in members]
        groups.append({
            "number": len(groups), "experiment": experiment, "profile": profile, "row": row, "column": column,
            "settings": settings, "kind": kind, "dtype": dtype, "device": members[0].get("device"),
            "date": max(r.get("date", "") for r in members), "mean": mean, "std": std, "seeds": len(members),
            "seed_list": sorted(r["seed"] for r in members), "asked_steps": members[0].get("asked_steps"),
            "diverged": sum("failed" in r for r in members), "cell": members[0].get("paper_cell"),
            "data": next((r["data"] for r in members if r.get("data")), None),
            "side_by_side": [min(beside), max(beside)], **numbers})
    return groups


def best_group(groups):
    """Of several groups of one cell: whole runs before those cut short by --steps, ours before the paper's settings,
    then more seeds, then the newest."""
    def rank(g):
        return g["asked_steps"] is None, g["profile"] == "ours", g["mean"] is not None, g["seeds"], g["date"]
    return max(groups, key=rank) if groups else None


class Measured:
    """Times, memory and counts: the paper's cells are ratios of what the rows have. Of several devices a GPU in f32
    comes first."""

    def __init__(self, rows):
        order = sorted((r for r in rows if r["experiment"] in MEASURED),
                       key=lambda r: (r.get("kind") == "cuda", r.get("dtype") == "f32", r.get("date", "")))
        self.device = {}  # of each experiment
        for row in order:
            self.device[row["experiment"]] = row["kind"], row["dtype"], row.get("device")
        self.at = {(r["experiment"], r["row"], r["column"]): r for r in order
                   if (r["kind"], r["dtype"], r.get("device")) == self.device[r["experiment"]]}

    def number(self, experiment, row, column, key):
        return self.at.get((experiment, row, column), {}).get(key)

    def ratio(self, experiment, first, second, prefix, key):
        """first over second, at the longest length that both have."""
        lengths = [int(c[len(prefix):]) for e, r, c in self.at
                   if e == experiment and r == first and c.startswith(prefix)]
        for length in sorted(lengths, reverse=True):
            a, b = (self.number(experiment, r, f"{prefix}{length}", key) for r in (first, second))
            if a and b:
                return a / b
        return None

    def efficiency(self, label, column):
        model, length = label.split(" ")
        mine = self.number("efficiency", model, f"B=64 T={length}", "ms")
        if column == "ms" or mine is None:
            return mine
        theirs = self.number("efficiency", model[3:], f"B=64 T={length}", "ms")  # minGRU → GRU
        return theirs / mine if theirs else None

    def memory(self, label, _):
        pairs = [("Mamba", "minGRU")] if label.startswith("Mamba") else [("minGRU", "GRU"), ("minLSTM", "LSTM")]
        ratios = [self.ratio("efficiency", a, b, "B=64 T=", "bytes") for a, b in pairs]
        return 100 * (sum(ratios) / len(ratios) - 1) if all(ratios) else None

    def inference(self, label, _):
        words = label.replace(",", "").split(" ")
        first, way, second, batch = words[0], words[1], words[3], words[-1]
        prefix = f"{'context' if 'context' in words else 'tokens'} B={batch} T="
        ratio = self.ratio("inference", second, first, prefix, "ms")
        return None if ratio is None else 100 * (ratio - 1) * (1 if way == "faster" else -1)

    def parameters(self, label, column):
        return self.number("parameters", label, f"cell, expansion {column}", "percent")

    def cell(self, name, label, column):
        value = getattr(self, name)(label, column)
        experiment = "efficiency" if name == "memory" else name
        if value is None:
            return None
        _, dtype, device = self.device[experiment]
        return {"mean": value, "std": None, "seeds": None, "experiment": experiment, "device": device, "dtype": dtype}


def row_label(table, cells):
    keys = [str(c) for name, c in zip(table.get("columns", ["model"]), cells) if name in KEYS]
    return " ".join(keys)


def cells_of(name, table):
    """(row label, column, value, std) of every number of a table."""
    for cells in table["rows"]:
        label = row_label(table, cells)
        columns = table.get("columns", ["model"] + [str(i) for i in range(1, len(cells))])
        stds = dict(zip(columns, cells))
        for column, value in zip(columns, cells):
            if column in KEYS or column == "std" or column.endswith("_std") or value is None:
                continue
            yield label, column, value, stds.get(column + "_std", stds.get("std"))


def is_row(label, wanted):
    """As the command finds rows: the first words are enough where they are whole cells."""
    return label == wanted or label.startswith(wanted + " ")


def find(groups, name, label, column):
    wanted = SAME.get(f"{name} | {label} | {column}", f"{name} | {label} | {column}")
    table, row, col = wanted.split(" | ")
    fitting = []
    for g in groups:
        if not g["cell"]:
            continue
        t, r, c = g["cell"].split(" | ")
        if t == table and is_row(row, r) and (c == col or (col == "steps" and c == "test_loss")):
            fitting.append((r == row, g))
    # "minLSTM + conv" begins "minLSTM + conv + MLP", but that has a row of its own
    whole = any(is_whole for is_whole, _ in fitting)
    return best_group([g for is_whole, g in fitting if is_whole == whole])


def why_not(name, label, column):
    if name == "d4rl":
        return "offline reinforcement learning is not part of this project yet"
    if label.split(" ")[0] not in OURS and name not in MEASURED and not label[0].isdigit():
        return "models that the paper quotes from others"
    if name == "selective_copy_comparison" and label not in ("Mamba S6", "minGRU minGRU", "minLSTM minLSTM"):
        return "models that the paper quotes from others"
    if column == "retrieval":
        return "needs the files of Long Range Arena (`minrnn data get lra`)"
    if column == "average_with_chomsky":
        return "an average of nine numbers that were not all run"
    return "not enough device time"


def lra_average(found, label):
    """The paper's last column: the mean over its six tasks of the Chomsky hierarchy and these three."""
    cells = [c for (table, row, column), c in found.items()
             if row == label and table in ("chomsky", "lra") and column != "average_with_chomsky"]
    values = [c["ours"]["mean"] for c in cells if c["ours"] and c["ours"]["mean"] is not None]
    return sum(values) / 9 if len(values) == 9 else None


def compare(groups, measured, tables):
    found = {}
    for name, table in tables.items():
        for label, column, value, std in cells_of(name, table):
            group = measured.cell(name, label, column) if name in MEASURED else find(groups, name, label, column)
            ours = dict(group, mean=group["best_step"], std=None) if group and column == "steps" else group
            found[name, label, column] = {
                "row": label, "column": column, "paper": value, "paper_std": std, "ours": ours,
                "why": None if ours else why_not(name, label, column)}
    for (name, label, column), cell in found.items():
        if column == "average_with_chomsky":
            average = lra_average(found, label)
            if average is not None:
                cell["ours"] = {"mean": average, "std": None, "seeds": None, "experiment": None}
                cell["why"] = None
    return found


def number(value, std=None, digits=4):
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    text = f"{value:.{digits}g}"
    return text + (f" ± {std:.2g}" if std is not None else "")


def clock(seconds):
    if seconds is None:
        return ""
    s = round(seconds)
    return f"{s // 3600}:{s // 60 % 60:02d}:{s % 60:02d}" if s >= 3600 else f"{s // 60}:{s % 60:02d}"


def verdict(name, cell):
    paper, ours = cell["paper"], cell["ours"]
    if name in MEASURED or not ours or ours["mean"] is None or isinstance(paper, str) or cell["column"] == "steps":
        return ""
    room = cell["paper_std"] or 0
    good = ours["mean"] <= paper + room if cell["column"] in LOWER else ours["mean"] >= paper - room
    return "yes" if good else "no"


def command(group):
    if not group or not group.get("experiment"):
        return ""
    if group["experiment"] in MEASURED:
        return f"`minrnn reproduce {group['experiment']}`"
    return ", ".join(one_command(group, first, count) for first, count in ranges(group["seed_list"]))


def ranges(seeds):
    """[1, 2, 3, 7] as (1, 3), (7, 1)."""
    found = []
    for seed in seeds:
        if found and seed == sum(found[-1]):
            found[-1] = found[-1][0], found[-1][1] + 1
        else:
            found.append((seed, 1))
    return found


def one_command(group, first, count):
    parts = ["minrnn reproduce", group["experiment"], f'--only "={group["row"]}/{group["column"]}"']
    parts += [f"--seed {number(first, digits=17)}"] if first != 1 else []
    parts += [f"--seeds {count}"] if count > 1 else []
    parts += [f"--steps {number(group['asked_steps'], digits=17)}"] if group["asked_steps"] else []
    parts += ["--as-paper"] if group["profile"] == "as-paper" else []
    parts += [f"--dtype {group['dtype']}"] if group["dtype"] != "f32" else []
    return "`" + " ".join(parts) + "`"


def details(group):
    if not group or not group.get("experiment"):
        return ["", "", "", "", ""]
    if group["experiment"] in MEASURED:
        return ["", "", "", f"{group['device']}, {group['dtype']}", command(group)]
    seeds = str(group["seeds"]) + (f" ({group['diverged']} diverged)" if group["diverged"] else "")
    device = f"{group['device'] or ''}, {group['dtype']}"
    return [seeds, number(group["steps"], digits=9), clock(group["seconds"]) + at_once(group), device, command(group)]


def at_once(group):
    """How many runs shared the device."""
    least, most = group["side_by_side"]
    if most <= 1:
        return ""
    return f", {number(most)} at once" if least == most else f", up to {number(most)} at once"


def line(cells):
    return "| " + " | ".join(str(c).replace("|", "\\|") for c in cells) + " |"


def ours_text(cell):
    return "diverged" if cell["ours"]["mean"] is None else number(cell["ours"]["mean"], cell["ours"]["std"])


def not_run(cells):
    """One line for all cells of a table that were not run: why, and which."""
    reasons = {}
    for cell in cells:
        if not cell["ours"]:
            reasons.setdefault(cell["why"], []).append(cell)
    parts = []
    for why, missing in reasons.items():
        rows = list(dict.fromkeys(cell["row"] for cell in missing))
        names = ", ".join(rows[:12]) + (f" and {len(rows) - 12} more" if len(rows) > 12 else "")
        parts.append(f"{why} ({len(missing)}: {names})")
    count = sum(len(missing) for missing in reasons.values())
    return f"Not run, {count} of {len(cells)} numbers: {'; '.join(parts)}." if parts else None


def picture_links(folders, out, experiments):
    """Links to the pictures of the experiments, as seen from the page."""
    links = []
    for experiment in experiments:
        for path in in_folders(folders, experiment + ".svg") + in_folders(folders, experiment + "-*.svg"):
            links.append(f"![{os.path.basename(path)[:-4]}]({os.path.relpath(path, out)})")
    return links


def table_of(name, cells):
    """The cells that were run as a table, and the rest as a line."""
    head = ["row", "column", "paper", "ours", "as good", "seeds", "steps", "time of a run", "device", "command"]
    text = [f"## {TITLES.get(name, name)}", ""]
    text += [NOTES[name], ""] if name in NOTES else []
    ran = [cell for cell in cells if cell["ours"]]
    if ran:
        text += [line(head), line(["---"] * len(head))]
    for cell in ran:
        paper = number(cell["paper"], cell["paper_std"])
        text.append(line([cell["row"], cell["column"], paper, ours_text(cell), verdict(name, cell),
                          *details(cell["ours"])]))
    rest = not_run(cells)
    text += ["", rest] if rest and ran else [rest] if rest else []
    return text


def table_beside(beside):
    """Runs that the paper has no number for."""
    head = ["experiment", "row", "column", "settings of", "ours", "seeds", "steps", "time of a run", "device",
            "command"]
    text = ["## Beside the paper", "",
            "Runs that no number above is compared with: models that the paper does not have there, or other settings.",
            "", line(head), line(["---"] * len(head))]
    for g in sorted(beside, key=lambda g: (g["experiment"], g["row"], g["column"])):
        value = "diverged" if g["diverged"] == g["seeds"] else number(g["mean"], g["std"])
        if g["target_step"] is not None:
            value += f", at the target after {number(g['target_step'], digits=6)} steps"
        text.append(line([g["experiment"], g["row"], g["column"], g["profile"], value, *details(g)]))
    return text


def page(found, groups, tables, folders, out):
    ran = sum(1 for c in found.values() if c["ours"])
    text = ["# The paper's numbers and ours", "",
            f"The paper's tables have {len(found)} numbers; {ran} of them stand beside one of ours here.",
            "\"As good\" means not worse than the paper's number by more than its ±.",
            "Made by `scripts/paper.py` from the results of `minrnn reproduce`.",
            "`paper.json` has every number, also those that were not run. "
            "The JSON of the experiments has all settings.",
            ""]
    drawn = set()
    for name in tables:
        cells = [c for (table, _, _), c in found.items() if table == name]
        experiments = {c["ours"]["experiment"] for c in cells if c["ours"] and c["ours"].get("experiment")}
        charts = picture_links(folders, out, sorted(experiments - drawn))  # each once
        text += [*table_of(name, cells), "", *charts, *([""] if charts else [])]
        drawn |= experiments
    shown = {c["ours"].get("number") for c in found.values() if c["ours"]}
    beside = [g for g in groups if g["number"] not in shown]
    if beside:
        charts = picture_links(folders, out, sorted({g["experiment"] for g in beside} - drawn))
        text += [*table_beside(beside), "", *charts, *([""] if charts else [])]
    return "\n".join(text)


def write(folder, name, text):
    """In one step: a reader finds the old file or the new one."""
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=folder, prefix=name, delete=False) as file:
        try:
            file.write(text)
            file.close()
            os.chmod(file.name, 0o644)
            os.replace(file.name, os.path.join(folder, name))
        except OSError:
            os.unlink(file.name)
            raise


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    folders, out = sys.argv[1].split(":"), sys.argv[2] if len(sys.argv) > 2 else os.path.join(ROOT, "docs", "results")
    for folder in folders:
        if not os.path.isdir(folder):
            sys.exit(f"paper.py: {folder}: is no folder of results")
    tables = json.load(open(os.path.join(ROOT, "data", "paper-tables.json"), encoding="utf-8"))
    rows = read_rows(folders)
    groups = groups_of(rows)
    found = compare(groups, Measured(rows), tables)
    cells = [dict(cell, table=name, command=command(cell["ours"]).replace("`", ""))
             for (name, _, _), cell in found.items()]
    try:
        os.makedirs(out, exist_ok=True)
        text = json.dumps({"cells": cells, "groups": groups}, indent=1, ensure_ascii=False, allow_nan=False)
        write(out, "paper.json", text + "\n")
        write(out, "paper.md", page(found, groups, tables, folders, out))
    except OSError as error:
        sys.exit(f"paper.py: {out}: cannot be written ({error.strerror})")


if __name__ == "__main__":
    main()
