"""The cells of the paper's tables, each with the groups of ours that belong there, or why there is none."""
from paper_rows import MEASURED
from paper_verdict import scale_of, tried_text, verdict

KEYS = {"layers", "model", "layer", "dataset", "T", "comparison", "batch"}  # columns that name a row
WAITING = "waiting"  # minrnn can run it, and no current row is there
AVERAGE = "average_with_chomsky"
# Cells that the paper prints twice: the number stands in another table, where an experiment has it.
SAME = {
    "selective_copy_comparison | minGRU minGRU | accuracy": "selective_copy_layers | 3 | minGRU",
    "selective_copy_comparison | minLSTM minLSTM | accuracy": "selective_copy_layers | 3 | minLSTM",
    "lra | minLSTM | listops": "listops_ablation | minLSTM + conv + MLP | accuracy",
}
OURS = {"minGRU", "minLSTM", "GRU", "LSTM", "Mamba", "Llama", "Transformer"}  # the paper's models that minrnn has
# Rows that the authors ran themselves, in tables whose other rows they quote, and what to call those others. Chomsky:
# the others are from xLSTM's figure 4, which has generators of its own and scaled accuracies.
RAN = {
    "chomsky": ({"minLSTM"}, "other generators"),
    "lra": ({"minLSTM"}, "quoted"),
    "selective_copy_comparison": ({"minGRU minGRU", "minLSTM minLSTM"}, "quoted"),
}
# Control: here a row is a data set and a column a model. Those that minrnn has, and whether the authors ran them.
D4RL = "d4rl"
D4RL_MODELS = {"DT": "quoted", "DMamba": "quoted", "minLSTM": None, "minGRU": None}
# Chomsky: the accuracy of a guess, which xLSTM's scaled accuracy takes for 0.
CHANCE = {"bucket_sort": 1 / 10, "missing_duplicate": 1 / 9, "cycle_nav": 1 / 5, "even_pairs": 1 / 2,
          "majority": 1 / 63, "majority_count": 1 / 63, "parity": 1 / 2}
CHOMSKY_ROWS = {"GRU": "GRU", "LSTM": "LSTM", "Llama": "Transformer", "Mamba": "Mamba", "minLSTM": "minLSTM",
                "minGRU": "minGRU"}  # the paper's name, and that of our row


def scaled(value, column):
    """0 at chance, 1 if perfect."""
    return (value - CHANCE[column]) / (1 - CHANCE[column])


def quoted_as(name, label):
    authors, word = RAN.get(name, (None, None))
    return None if authors is None or label in authors else word


def row_label(table, cells):
    return " ".join(str(c) for name, c in zip(table.get("columns", ["model"]), cells) if name in KEYS)


def cells_of(table):
    """(row label, column, value, std) of every number of a table."""
    for cells in table["rows"]:
        label = row_label(table, cells)
        columns = table.get("columns", ["model"] + [str(i) for i in range(1, len(cells))])
        stds = dict(zip(columns, cells))
        for column, value in zip(columns, cells):
            if column in KEYS or column == "std" or column.endswith("_std") or value is None:
                continue
            yield label, column, value, stds.get(column + "_std", stds.get("std"))


def is_label(label, wanted):
    """As the command finds rows: the first words are enough where they are whole cells."""
    return label == wanted or label.startswith(wanted + " ")


def fitting(groups, name, label, column):
    """The groups of one cell of the paper."""
    wanted = SAME.get(f"{name} | {label} | {column}", f"{name} | {label} | {column}")
    table, row, col = wanted.split(" | ")
    found = []
    for g in groups:
        if not g["cell"]:
            continue
        t, r, c = g["cell"].split(" | ")
        if t == table and is_label(row, r) and (c == col or (col == "steps" and c == "test_loss")):
            found.append((r == row, g))
    # "minLSTM + conv" begins "minLSTM + conv + MLP", but that has a row of its own
    whole = any(is_whole for is_whole, _ in found)
    return [g for is_whole, g in found if is_whole == whole]


def best_group(groups):
    """Of several groups of one cell: those that name their test set first, then more seeds, then the newest. Runs with
    --steps are trials and never stand for a cell."""
    def rank(g):
        return g["mean"] is not None, bool(g["test_set"]), g["seeds"], g["date"]
    return max((g for g in groups if g["asked_steps"] is None), key=rank, default=None)


def why_not(name, label, column):
    if name == D4RL:
        return "an average of nine numbers that were not all run" if label == "Average" else \
            WAITING if column in D4RL_MODELS else "models that the paper quotes from others"
    if label.split(" ")[0] not in OURS and name not in MEASURED and not label[0].isdigit():
        return "models that the paper quotes from others"
    if name == "selective_copy_comparison" and label not in ("Mamba S6", "minGRU minGRU", "minLSTM minLSTM"):
        return "models that the paper quotes from others"
    if column == "retrieval":
        return "needs the files of Long Range Arena (`minrnn data get lra`)"
    if column == AVERAGE:
        return "an average of nine numbers that were not all run, or not on the same generators"
    return WAITING


def new_cell(name, label, column, paper, std, groups):
    """A cell with the best group of our settings, and the best of the paper's settings where there is one."""
    own = best_group([g for g in groups if g["profile"] != "as-paper"])
    as_paper = best_group([g for g in groups if g["profile"] == "as-paper"])
    ours, other = (own, as_paper) if own else (as_paper, None)
    quoted = D4RL_MODELS.get(column) if name == D4RL else quoted_as(name, label)
    if name == D4RL and ours and ours["data_made"]:
        quoted = "data like D4RL's"
    cell = {"table": name, "row": label, "column": column, "paper": paper, "paper_std": std, "against": None,
            "quoted": quoted, "paper_scaled": None, "ours": ours, "as_paper": other,
            "why": None if ours else why_not(name, label, column)}
    if name == "chomsky" and paper is not None:
        cell["paper_scaled"] = paper if cell["quoted"] else scaled(paper, column)
    if column == "steps":
        for key in ("ours", "as_paper"):
            cell[key] = cell[key] and dict(cell[key], mean=cell[key]["best_step"], std=None, last=None)
    return cell


def added_cells(groups, tables):
    """Chomsky: minGRU, which the paper does not have there, beside the paper's minLSTM; and parity, which it does not
    have at all."""
    minlstm = {column: value for label, column, value, _ in cells_of(tables["chomsky"]) if label == "minLSTM"}
    for label, ours in CHOMSKY_ROWS.items():
        for column in CHANCE:
            if label != "minGRU" and column != "parity":
                continue
            mine = [g for g in groups if (g["experiment"], g["row"], g["column"]) == ("chomsky", ours, column)]
            cell = new_cell("chomsky", label, column, minlstm.get(column), None, mine)
            cell.update(against="minLSTM" if column in minlstm else None, quoted=None)
            if column in minlstm:
                cell["paper_scaled"] = scaled(minlstm[column], column)
            yield cell


def groups_in(cell):
    return [cell[key] for key in ("ours", "as_paper") if cell[key]]


def shares_test_set(cell):
    """Where all rows of ours must have the same test set: (table, column); control: (table, data set)."""
    return cell["table"], cell["row" if cell["table"] == D4RL else "column"]


def test_sets(cells):
    """{(table, column): {test set: rows}}: a column that has more than one gets no verdicts. None: not named."""
    found = {}
    for cell in (c for c in cells if c["column"] != "steps"):
        for group in groups_in(cell):
            if group.get("mean") is not None and "test_set" in group:
                rows = found.setdefault(shares_test_set(cell), {}).setdefault(group["test_set"], [])
                rows += [cell["row"]] if cell["row"] not in rows else []
    return found


def judge(cells):
    """Adds to each group of ours what the page says about it in this cell."""
    sets = test_sets(cells)
    for cell in cells:
        for key in ("ours", "as_paper"):
            group = cell[key]
            if not group or "scored" not in group:
                continue
            words, error = verdict(cell, group, len(sets.get(shares_test_set(cell), ())))
            cell[key] = dict(group, verdict=words, error=error)
            if cell["table"] == "chomsky" and group["mean"] is not None:
                cell[key]["scaled"] = scaled(group["mean"] / scale_of(group), cell["column"])
    return sets


def average(cells, label):
    """The paper's last column: the mean over its six tasks of the Chomsky hierarchy and these three."""
    mine = [c for c in cells if c["row"] == label and c["table"] in ("chomsky", "lra") and c["column"] != AVERAGE]
    return mean_of_nine(mine)


def mean_of_nine(cells):
    values = [c["ours"]["mean"] for c in cells if c["ours"] and c["ours"]["mean"] is not None]
    return sum(values) / 9 if len(values) == 9 else None


def compare(groups, measured, tables, tried):
    """(cells of the paper, cells that were added, test sets of the columns)."""
    cells = []
    for group in groups:
        group["settings_tried"] = tried_text(group, tried)
    for name, table in tables.items():
        for label, column, value, std in cells_of(table):
            if name in MEASURED:
                cell = new_cell(name, label, column, value, std, [])
                cell["ours"] = measured.cell(name, label, column)
                cell["why"] = None if cell["ours"] else WAITING
            else:
                cell = new_cell(name, label, column, value, std, fitting(groups, name, label, column))
            cells.append(cell)
    for cell in cells:
        mean = average(cells, cell["row"]) if cell["column"] == AVERAGE and not cell["quoted"] else None
        if cell["table"] == D4RL and cell["row"] == "Average":
            nine = [c for c in cells if c["table"] == D4RL and c["column"] == cell["column"] and c is not cell]
            mean = mean_of_nine(nine)
            if mean is not None and any(c["ours"]["data_made"] for c in nine):
                cell["quoted"] = "data like D4RL's"
        if mean is not None:
            cell.update(ours={"mean": mean, "std": None, "seeds": None, "experiment": None,
                              "verdict": cell["quoted"] or ""}, why=None)
    added = list(added_cells(groups, tables))
    return cells, added, judge(cells + added)
