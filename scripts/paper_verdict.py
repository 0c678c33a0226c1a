"""Is ours as good as the paper's number? Only where the difference is larger than twice the combined error.

RULE says it in words, for the page."""
import math

# Experiments of which settings were once compared by their test results (findings.md): no verdict for them.
CHOSEN_ON_TEST = {"image", "shakespeare"}

LOWER = {"test_loss"}  # columns in which less is better
RULE = ("**As good?** \"Yes\" where ours is better than the paper's number by more than 2e, \"no\" where it is worse "
        "by more than 2e, otherwise \"not distinguishable\". e² = se² + se_paper². se² = sd²/seeds, and for accuracies "
        "the binomial variance p(1 − p)/(test strings) on top. se_paper is the paper's ± as printed (it does not say "
        "of what); without one it is the binomial part for accuracies and 0 for losses. There is no verdict for one "
        "seed, if a seed diverged, for rows that do not name their test set, or against numbers that the paper quotes "
        "from elsewhere (\"quoted\", \"other generators\") or has on other data (\"data like D4RL's\"). "
        "\"Did not learn\": not better than the best constant "
        "answer by more than 2 se.")


def is_accuracy(group):
    return group["measure"] == "accuracy"


def scale_of(group):
    """Selective copying is in percent; its rows of early versions do not say so."""
    return group["scale"] or (100 if group["experiment"] == "selective-copy" else 1)


def binomial_variance(value, group):
    scale = scale_of(group)
    share = min(max(value / scale, 0), 1)
    return share * (1 - share) / group["strings"] * scale ** 2


def error_of_ours(group):
    """The standard error of the mean. None if the row does not say on how many strings it was scored."""
    variance = group["std"] ** 2 / group["scored"] if group["std"] is not None else 0
    if is_accuracy(group):
        if not group["strings"]:
            return None
        variance += binomial_variance(group["mean"], group)
    return math.sqrt(variance)


def error_of_paper(paper, paper_std, group):
    if paper_std is not None:
        return paper_std
    return math.sqrt(binomial_variance(paper, group)) if is_accuracy(group) else 0


def did_not_learn(group):
    if group["mean"] is None or group["constant"] is None or not is_accuracy(group):
        return False
    error = error_of_ours(group)
    return error is not None and group["mean"] - group["constant"] <= 2 * error


def no_verdict(cell, group, test_sets):
    """Why there is none, in a few words, or None."""
    if cell["quoted"]:
        return cell["quoted"]
    if group["experiment"] in CHOSEN_ON_TEST and group["profile"] == "ours":
        return "settings compared on the test set"
    if test_sets > 1:
        return "several test sets"
    if group["diverged"]:
        return f"{group['diverged']} of {group['seeds']} diverged"
    if group["scored"] < 2:
        return "one seed"
    if not group["test_set"] or not group["measure"] or error_of_ours(group) is None:
        return "test set unknown"
    return None


def verdict(cell, group, test_sets):
    """(words, e) for one group of ours beside a number of the paper. test_sets: how many the column has."""
    if group["mean"] is None or "scored" not in group or cell["column"] == "steps":
        return "", None
    if did_not_learn(group):
        return "did not learn", None
    if not isinstance(cell["paper"], (int, float)):
        return "", None
    why = no_verdict(cell, group, test_sets)
    if why:
        return why, None
    error = math.hypot(error_of_ours(group), error_of_paper(cell["paper"], cell["paper_std"], group))
    better = group["mean"] - cell["paper"] if cell["column"] not in LOWER else cell["paper"] - group["mean"]
    if abs(better) <= 2 * error:
        return "not distinguishable", error
    return ("yes" if better > 0 else "no"), error


def tried_text(group, tried):
    """How many settings were tried for this cell, and whether the one used was the best on validation."""
    if group["profile"] == "as-paper":
        return "the paper's"
    settings = tried.get((group["experiment"], group["row"], group["column"]))
    if not settings:
        return "1" if group["tried"] == 1 else "waiting"
    sign = -1 if group["measure"] == "loss" else 1

    def rank(scores):
        return sign * sum(scores) / len(scores) if scores else -math.inf
    count = str(len(settings)) + (f" of {group['tried']:g}" if len(settings) < (group["tried"] or 0) else "")
    if group["setting"] not in settings:
        return f"{count}, the one used is not among them"
    best = max(rank(s) for s in settings.values())
    return count + ("" if rank(settings[group["setting"]]) == best else ", not the best on validation")
