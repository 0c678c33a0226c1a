"""Writing text piece by piece: tokens are sampled a few at a time and given out as whole characters."""
import codecs

import numpy as np

FEW = 16  # tokens per call: enough that a GPU is not waited for at each


def _hold_back(text, stops):
    """How much of the end of a text may be the beginning of a stop text."""
    return max((n for stop in stops for n in range(1, len(stop)) if text.endswith(stop[:n])), default=0)


def pieces(model, prompt, count, how, stops):
    temperature, top_p, top_k, seed = how
    stream = model._net.stream()
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    fed, done, text = prompt, 0, ""
    while done < count:
        n = min(FEW, count - done)
        drawn = np.empty(n, np.int32)
        stream.sample(fed, len(fed), drawn, n, temperature, top_p, top_k, seed, done)
        done, fed = done + n, drawn[-1:]
        text += decoder.decode(model._decode_bytes(drawn), done == count)
        found = [at for at in (text.find(stop) for stop in stops) if at >= 0]
        if found:
            if min(found):
                yield text[:min(found)]
            return
        held = _hold_back(text, stops) if done < count else 0
        if len(text) > held:
            yield text[:len(text) - held]
            text = text[len(text) - held:]
