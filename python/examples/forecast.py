"""Values in, values out: the next value of a noisy wave, in its own units, then step by step on a stream."""
import numpy as np

import minrnn

rng = np.random.default_rng(0)
time = np.arange(4000)
wave = (20 + 5 * np.sin(time / 9) + 0.2 * rng.standard_normal(len(time))).astype(np.float32)
rows = np.stack([wave[i:i + 65] for i in range(0, 3600, 10)])[:, :, None]
batch = dict(values=rows[:, :-1], target_values=rows[:, 1:])

model = minrnn.Model(input="reals", inputs=1, outputs=1, loss="mse", layers=2, dim=16, lr=0.005, head_bias=True)
model.fit_scaler(**batch)  # so that the model works in degrees, and not in deviations
result = model.fit([batch] * 60)
print(f"after {result.step} steps the squared error is {result.loss:.4f} of the variance")

stream, errors = model.stream(), []
for now, after in zip(wave[3600:-1], wave[3601:]):
    errors.append(abs(stream.step([now])[0] - after))
print(f"on a stream: off by {np.mean(errors[50:]):.2f} on average, the last value by "
      f"{np.mean(abs(np.diff(wave[3650:]))):.2f}")
