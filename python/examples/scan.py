"""The scan and a minGRU layer alone, on NumPy arrays, with gradients."""
import numpy as np

import minrnn

rng = np.random.default_rng(0)
a = rng.uniform(0.5, 1, (2, 1000, 16)).astype(np.float32)
b = rng.standard_normal((2, 1000, 16)).astype(np.float32)
h = minrnn.scan(a, b)  # h[t] = a[t]·h[t−1] + b[t]
print("scan:", h.shape)

x = rng.standard_normal((2, 1000, 8)).astype(np.float32)
weight = 0.3 * rng.standard_normal((2 * 16, 8)).astype(np.float32)  # the gate's rows, then the candidate's
h, last, backward = minrnn.mingru_vjp(x, weight)
gradients = backward(np.ones_like(h))
print("minGRU:", h.shape, "gradient of the weight:", gradients["weight"].shape)
