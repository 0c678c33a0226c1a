"""Training with a loss of your own: the absolute error, which outliers cannot pull at."""
import numpy as np

import minrnn

rng = np.random.default_rng(0)
x = rng.standard_normal((64, 30, 2)).astype(np.float32)
y = np.cumsum(x, axis=1).mean(2, keepdims=True)
y[rng.random(y.shape) < 0.02] += 50  # outliers

model = minrnn.Model(input="reals", inputs=2, outputs=1, loss="mse", candidate="linear", layers=2, dim=32, lr=0.005)
for step in range(150):
    prediction = model.forward(values=x, train=True)
    error = prediction - y
    model.backward(np.sign(error) / error.size)
    model.update()
print(f"median error {np.median(abs(model.forward(values=x) - y)):.3f}")
