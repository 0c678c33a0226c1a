"""Times, memory and counts: the paper's cells are ratios of what the rows of measurements have."""
from paper_rows import MEASURED


class Measured:
    """Of several devices a GPU in f32 comes first."""

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
