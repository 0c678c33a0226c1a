"""README's claims: a block that is made from rows, so that no claim can drift from its row.

A result is claimed only if its rows name their test set and say what differs from the paper. Others are left out."""
import re
import sys

import paper_text as text

START, END = "<!-- claims: made by scripts/paper.py -->", "<!-- /claims -->"
# What the line says, and the cell of the paper's tables that it is about.
CLAIMS = [
    ("selective copying, 4,096 positions, minGRU, accuracy in %", "selective_copy_layers", "3", "minGRU"),
    ("selective copying, 4,096 positions, minLSTM, accuracy in %", "selective_copy_layers", "3", "minLSTM"),
    ("Shakespeare, test loss of minGRU, best step", "shakespeare", "minGRU", "test_loss"),
    ("Shakespeare, test loss of minLSTM, best step", "shakespeare", "minLSTM", "test_loss"),
    ("cycle navigation, minLSTM, accuracy", "chomsky", "minLSTM", "cycle_nav"),
    ("majority count, minLSTM, accuracy", "chomsky", "minLSTM", "majority_count"),
    ("ListOps, minLSTM with conv and MLP, accuracy", "listops_ablation", "minLSTM + conv + MLP", "accuracy"),
    ("G-Image, minLSTM, accuracy", "lra", "minLSTM", "g_image"),
]
# Keys of `differs` that a reader must know of, and what they do.
HELP = [("start-length", "short sequences first"), ("flip", "mirrored pictures"), ("shift", "shifted pictures")]
VERDICTS = {"yes": "as good", "no": "not as good"}  # the others stand for themselves
STEP = "B=64 T=4096"  # the training step that is claimed
PEERS = [("PyTorch minGRU log-space", "minGRU in the paper's code, eager"), ("PyTorch GRU module", "GRU, cuDNN")]


def protocol(group):
    """What was done otherwise than in the paper, in a few words."""
    if not group["differs"]:
        return "the paper's settings"
    words = [what for key, what in HELP if re.search(rf"(^|[ ,;]){key}=", group["differs"])]
    return ", ".join(["own settings", *words])


def claim(name, cell):
    group = cell["ours"]
    if not group or group["mean"] is None or not group["test_set"] or group["differs"] is None:
        return None
    seeds = "1 seed" if group["seeds"] == 1 else f"{text.seeds(group)} seeds"
    paper = text.printed(cell["paper"], cell["paper_std"])
    return [name, f"{text.number(group['mean'], group['std'])} ({seeds}; {protocol(group)})",
            f"paper: {paper} ({VERDICTS.get(group['verdict'], group['verdict'])})"]


def step_text(row):
    """A median, its memory, and of how many."""
    return f"{row['ms']:.3g} ms, {row['bytes'] / 1e9:.3g} GB (median of {text.number(row['repetitions'])})"


def step_claim(measured):
    rows = {name: measured.at.get(("efficiency", name, STEP)) for name in ("minGRU", *(peer for peer, _ in PEERS))}
    rows = {name: row for name, row in rows.items() if row and all(k in row for k in ("ms", "bytes", "repetitions"))}
    if "minGRU" not in rows:
        return None
    peers = [f"{what}: {step_text(rows[peer])}" for peer, what in PEERS if peer in rows]
    torch = next((rows[peer]["torch"] for peer, _ in PEERS if peer in rows and "torch" in rows[peer]), "")
    return [f"training step, minGRU, {STEP}, {rows['minGRU']['device']}", step_text(rows["minGRU"]),
            f"PyTorch {torch.split('+')[0]}: " + "; ".join(peers) if peers else ""]


def claims(cells, measured):
    """The lines between the marks."""
    at = {(c["table"], c["row"], c["column"]): c for c in cells}
    lines = [step_claim(measured), *(claim(name, at[tuple(where)]) for name, *where in CLAIMS)]
    lines = [line for line in lines if line]
    if not lines:
        return ["No current row yet."]
    return text.table(["", "minrnn", "beside it"], lines)


def with_claims(page, path, lines):
    """The page with the block written again."""
    before, start, rest = page.partition(START)
    _, end, after = rest.partition(END)
    if not start or not end:
        sys.exit(f"paper.py: {path}: has no block for claims; put the lines {START} and {END} into it")
    return "\n".join([before + start, "", *lines, "", end + after])
