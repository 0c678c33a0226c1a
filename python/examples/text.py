"""A model of text: trained on bytes, scored, saved, opened again, and writing."""
import numpy as np

import minrnn

text = "the quick brown fox jumps over the lazy dog. " * 50
model = minrnn.Model(vocab="bytes", mixer="mingru", layers=1, dim=48, lr=0.01, seed=1)
ids = model.encode(text)
rng = np.random.default_rng(0)


def batches(steps, B=8, T=48):
    for _ in range(steps):
        starts = rng.integers(0, len(ids) - T, B)
        yield dict(ids=np.stack([ids[s:s + T] for s in starts]),
                   target=np.stack([ids[s + 1:s + T + 1] for s in starts]))


result = model.fit(batches(120))
print(f"step {result.step}: {result.loss:.3f} nats per byte; the whole text: {model.score(text).nats_per_token:.3f}")
model.save("fox.safetensors")
for piece in minrnn.load("fox.safetensors").generate("the quick", tokens=60, temperature=0.5):
    print(piece, end="")
print()
