"""paper.md: for each table of the paper, ours beside it, and how ours was made."""
import os

import paper_text as text
from paper_cells import WAITING, groups_in
from paper_rows import MEASURED, in_folders
from paper_verdict import RULE, did_not_learn

TITLES = {
    "selective_copy_layers": "Selective copying: layers (accuracy, %)",
    "selective_copy_comparison": "Selective copying: other models (accuracy, %)",
    "d4rl": "Control (D4RL's score)",
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
    "selective_copy_comparison": "The paper quotes all models but minGRU and minLSTM from the Mamba paper.",
    "d4rl": "A row is a data set, a column a model. 0 is a random policy, 100 an expert; the mean of 100 episodes. "
            "\"Data\": the score of all episodes of the data. Rows on data like D4RL's, made by "
            "`minrnn data make d4rl-like`, have no verdict. The paper quotes DT and DMamba.",
    "shakespeare": "As in the paper, a loss is that of the best test step; \"last\" is that of the last one. The four "
                   "settings of each model were compared on validation, but depth, dropout and schedule had been found "
                   "by test losses before ([findings.md](findings.md), whose runs are seed 1 here), so there is no "
                   "verdict.",
    "chomsky": "Strings of 40 to 256 symbols. Scaled accuracy is 0 at chance and 1 if perfect. The paper's minLSTM row "
               "is raw and on the generators that we use. Its other rows are quoted from xLSTM's figure 4: scaled, and "
               "on other generators. It has no minGRU here (ours stands beside its minLSTM) and no parity.",
    "lra": "The paper quotes all models but minLSTM from the xLSTM paper. ListOps: ours trains on 163,840 short "
           "expressions on top of Long Range Arena's 96,000. G-Image: three settings (grey values as numbers or "
           "tokens, shifts, dropout) were once compared by test accuracy, so there is no verdict. These rows were "
           "made before the last checkpoint was scored.",
    "efficiency": "Speed-ups are over our own GRU and LSTM; the paper's are over a loop of PyTorch operations, on a "
                  "T4. [efficiency.md](efficiency.md) has other peers.",
    "memory": "How much more is needed; less is a negative number. Ours is compared with our own GRU and LSTM, which "
              "keep their gates.",
    "inference": "A negative number: it is the other way round.",
}
SETTINGS = {"ours": "ours", "as-paper": "the paper's"}
HOW = ["parameters", "seen in training", "settings tried", "differs from the paper", "time of a run", "device",
       "command"]
COUNT = {2: "two", 3: "three", 4: "four"}


def row_name(cell):
    return "Llama (ours: Transformer)" if cell["row"] == "Llama" else cell["row"]


def paper_text(cell):
    """The paper's number, raw."""
    if cell["table"] == "chomsky" and cell["quoted"]:
        return ""
    label = f" (paper's {cell['against']})" if cell["against"] else ""
    return text.printed(cell["paper"], cell["paper_std"]) + label


def ours_text(group):
    return "diverged" if group["mean"] is None else text.number(group["mean"], group["std"])


def how(group):
    """What a reader needs to judge a number, and to get it again."""
    parameters = "" if group["parameters"] is None else f"{round(group['parameters']):,}"
    return [parameters, text.seen(group), group["settings_tried"], text.differs(group),
            text.clock(group["seconds"]) + text.at_once(group), text.device(group), text.command(group)]


def with_chance(name):
    return name not in ("shakespeare", "d4rl")


def result_line(cell, group):
    chomsky = cell["table"] == "chomsky"
    group = group or {}
    scored = "scored" in group
    line = [row_name(cell), cell["column"], SETTINGS.get(group.get("profile"), "") if group else "", paper_text(cell),
            ours_text(group) if group else WAITING,
            text.number(group.get("data_score" if cell["table"] == "d4rl" else "last"))]
    if chomsky:
        line += [text.number(cell["paper_scaled"], digits=3), text.number(group.get("scaled"), digits=3)]
    if with_chance(cell["table"]):
        line += [text.number(group.get("chance"), digits=3), text.number(group.get("constant"), digits=3)]
    return [*line, group.get("verdict", ""), text.seeds(group) if scored else ""]


def results_table(name, cells):
    """A line for each group of ours, and for each cell that waits for one."""
    head = ["row", "column", "settings", "paper", "ours", "data" if name == "d4rl" else "last"]
    head += ["paper, scaled", "ours, scaled"] if name == "chomsky" else []
    head += ["chance", "best constant"] if with_chance(name) else []
    return text.table([*head, "as good", "seeds"],
                      [result_line(cell, group) for cell in cells for group in groups_in(cell) or [None]])


def how_table(cells):
    lines = [[row_name(cell), cell["column"], SETTINGS.get(group["profile"], ""), *how(group)]
             for cell in cells for group in groups_in(cell) if "scored" in group and cell["column"] != "steps"]
    return ["", *text.table(["row", "column", "settings", *HOW], lines)] if lines else []


def measured_table(cells):
    lines = []
    for cell in cells:
        group = cell["ours"] or {}
        ours = text.number(group["mean"]) if group else WAITING
        lines.append([cell["row"], cell["column"], text.number(cell["paper"]), ours, text.device(group),
                      text.command(group)])
    return text.table(["row", "column", "paper", "ours", "device", "command"], lines)


def not_run(cells):
    """One line for all cells of a table that cannot be run: why, and which."""
    reasons = {}
    for cell in cells:
        if not cell["ours"] and cell["why"] != WAITING:
            reasons.setdefault(cell["why"], []).append(cell)
    parts = []
    for why, missing in reasons.items():
        rows = list(dict.fromkeys(cell["row"] for cell in missing))
        names = ", ".join(rows[:12]) + (f" and {len(rows) - 12} more" if len(rows) > 12 else "")
        parts.append(f"{why} ({len(missing)}: {names})")
    count = sum(len(missing) for missing in reasons.values())
    return f"Not run, {count} of {len(cells)} numbers: {'; '.join(parts)}." if parts else None


def two_test_sets(name, sets):
    """A line for each column whose rows were not scored on the same test set."""
    for (table, column), found in sets.items():
        if table == name and len(found) > 1:
            parts = [f"{test_set or 'not named'} ({', '.join(rows)})" for test_set, rows in found.items()]
            count = COUNT.get(len(found), len(found))
            yield f"**{column}: rows of {count} test sets: {', '.join(parts)}. No verdict in this column.**"


def picture_links(folders, out, experiments):
    """Links to the pictures of the experiments, as seen from the page."""
    links = []
    for experiment in experiments:
        for path in in_folders(folders, experiment + ".svg") + in_folders(folders, experiment + "-*.svg"):
            links.append(f"![{os.path.basename(path)[:-4]}]({os.path.relpath(path, out)})")
    return links


def section(name, cells, added, sets):
    """The cells that can be run as tables, and the rest as a line. Each model of the Chomsky table has its added cells
    after its others."""
    order = list(dict.fromkeys(cell["row"] for cell in cells + added))
    shown = [c for c in sorted(cells + added, key=lambda c: order.index(c["row"])) if c["ours"] or c["why"] == WAITING]
    page = [f"## {TITLES.get(name, name)}", ""]
    page += [NOTES[name], ""] if name in NOTES else []
    for line in two_test_sets(name, sets):
        page += [line, ""]
    if shown and name in MEASURED:
        page += measured_table(shown)
    elif shown:
        page += results_table(name, shown) + how_table(shown)
    rest = not_run(cells)
    return page + (["", rest] if rest and shown else [rest] if rest else [])


def beside_line(group):
    value = ours_text(group)
    if group["target_step"] is not None:
        value += f", at the target after {text.number(group['target_step'], digits=6)} steps"
    words = "did not learn" if did_not_learn(group) else ""
    return [value, text.number(group["last"]), text.number(group["chance"], digits=3),
            text.number(group["constant"], digits=3), words, text.seeds(group)]


def beside_section(beside, outdated):
    """Runs that the paper has no number for, and those of them that wait to be run again."""
    names = ["experiment", "row", "column", "settings"]
    page = ["## Beside the paper", "",
            "Runs that no number above is compared with: models that the paper does not have there, or other settings.",
            ""]
    beside = sorted(beside, key=lambda g: (g["experiment"], g["row"], g["column"]))
    named = [[g["experiment"], g["row"], g["column"], SETTINGS.get(g["profile"], g["profile"])] for g in beside]
    if beside:
        page += text.table([*names, "ours", "last", "chance", "best constant", "verdict", "seeds"],
                           [start + beside_line(g) for start, g in zip(named, beside)])
        page += ["", *text.table([*names, *HOW], [start + how(g) for start, g in zip(named, beside)])]
    if outdated:
        page += [""] if beside else []
        page += [f"Waiting to be run again: {', '.join(outdated)}."]
    return page


def waiting_beside(outdated, groups):
    """Outdated runs that have no current group and no line in a table above (Chomsky: all have one)."""
    current = {(g["experiment"], g["row"], g["column"]) for g in groups}
    names = {(r["experiment"], r["row"], r["column"]) for r in outdated
             if "seed" in r and not r.get("paper_cell") and r["experiment"] != "chomsky"} - current
    rows = {}
    for experiment, row, _ in sorted(names):
        rows.setdefault(experiment, {})[row] = True
    return [f"{experiment} ({', '.join(found)})" for experiment, found in rows.items()]


def head(cells, groups):
    ran = sum(1 for c in cells if c["ours"])
    wait = sum(1 for c in cells if c["why"] == WAITING)
    return ["# The paper's numbers and ours", "",
            f"The paper's tables have {len(cells)} numbers. {ran} of them stand beside one of ours here, and {wait} "
            "are waiting: minrnn can run them, but there is no row of the present protocol and test set."
            + ("" if any(g["profile"] == "as-paper" for g in groups) else
               " Runs with the paper's own settings (`--as-paper`) are waiting, too."), "",
            RULE, "",
            "Ours is mean ± standard deviation over seeds (n − 1), on the test set, of the checkpoint that was chosen "
            "on validation. \"Last\" is the last checkpoint on the same test set. Best constant: the score of always "
            "giving the most frequent answer of the test set. Settings tried: for this cell, scored on validation; 1: "
            "one setting for all models, whose earlier history is in [findings.md](findings.md).", "",
            "Made by `scripts/paper.py` from the results of `minrnn reproduce`. `paper.json` has every number, also "
            "those that were not run. The JSON of the experiments has all settings.", ""]


def page(found, results, groups, tables, folders, out):
    cells, added, sets = found
    lines, drawn = head(cells, groups), set()
    for name in tables:
        mine, more = ([c for c in some if c["table"] == name] for some in (cells, added))
        experiments = {c["ours"]["experiment"] for c in mine + more if c["ours"] and c["ours"].get("experiment")}
        charts = picture_links(folders, out, sorted(experiments - drawn))  # each once
        lines += [*section(name, mine, more, sets), "", *charts, *([""] if charts else [])]
        drawn |= experiments
    shown = {group.get("number") for cell in cells + added for group in groups_in(cell)}
    beside = [g for g in groups if g["number"] not in shown]
    waiting = waiting_beside(results.outdated, groups)
    if beside or waiting:
        charts = picture_links(folders, out, sorted({g["experiment"] for g in beside} - drawn))
        lines += [*beside_section(beside, waiting), "", *charts, *([""] if charts else [])]
    return "\n".join(lines)
