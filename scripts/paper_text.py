"""Numbers, times and commands as the pages write them."""
import math

from paper_rows import MEASURED


def number(value, std=None, digits=4):
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if std and value:  # as many digits as the error has a use for
        digits = max(digits, min(8, math.floor(math.log10(abs(value))) - math.floor(math.log10(std)) + 1))
    text = f"{value:.{digits}g}"
    return text + (f" ± {std:.2g}" if std is not None else "")


def printed(value, std=None):
    """A number of the paper, with its ± as printed there."""
    return number(value, digits=6) + ("" if std is None else f" ± {std:g}")


def large(value):
    """Counts in words."""
    for unit, word in ((1e9, " billion"), (1e6, " million")):
        if value >= unit:
            return f"{value / unit:.3g}{word}"
    return f"{round(value):,}"


def clock(seconds):
    if seconds is None:
        return ""
    s = round(seconds)
    return f"{s // 3600}:{s // 60 % 60:02d}:{s % 60:02d}" if s >= 3600 else f"{s // 60}:{s % 60:02d}"


def line(cells):
    return "| " + " | ".join(str(c).replace("|", "\\|") for c in cells) + " |"


def table(head, lines):
    return [line(head), line(["---"] * len(head)), *(line(cells) for cells in lines)]


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


def command(group):
    if not group or not group.get("experiment"):
        return ""
    if group["experiment"] in MEASURED:
        return f"`minrnn reproduce {group['experiment']}`"
    return ", ".join(one_command(group, first, count) for first, count in ranges(group["seed_list"]))


def at_once(group):
    """How many runs shared the device."""
    least, most = group["side_by_side"]
    if most <= 1:
        return ""
    return f", {number(most)} at once" if least == most else f", up to {number(most)} at once"


def device(group):
    return f"{group['device'] or ''}, {group['dtype']}" if group.get("device") or group.get("dtype") else ""


def seeds(group):
    return str(group["seeds"]) + (f" ({group['diverged']} diverged)" if group["diverged"] else "")


def seen(group):
    """What the training has seen: sequences, or tokens where a text is cut into them."""
    if group["sequences"] is not None and group["measure"] != "loss":
        return large(group["sequences"]) + " sequences"
    return large(group["tokens"]) + " tokens" if group["tokens"] is not None else ""


def differs(group):
    """What differs from the paper's own settings; rows of early versions do not say."""
    if group["differs"] is None:
        return "not recorded"
    budget = f"; own budget: {group['own_budget']}" if group["own_budget"] else ""
    found = [group["differs"]] if group["differs"] else []
    found += ["data like D4RL's"] if group["data_made"] else []
    return (", ".join(found) or "nothing") + budget
