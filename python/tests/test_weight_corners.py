"""Where imported models compute."""
import unittest

import numpy as np
from test_weights import layer

import minrnn
from minrnn.command import command


@unittest.skipUnless(command(), "the command is not built: weights of other programs were not read")
class WeightCorners(unittest.TestCase):
    def test_where_a_model_computes(self):
        tensors, x = layer(), np.random.default_rng(2).standard_normal((2, 9, 4)).astype(np.float32)
        exact, low = minrnn.from_state_dict(tensors), minrnn.from_state_dict(tensors, bf16=True, threads=1)
        self.assertFalse(np.array_equal(low.forward(values=x), exact.forward(values=x)))
        np.testing.assert_allclose(low.forward(values=x), exact.forward(values=x), atol=0.1)
        with self.assertRaisesRegex(minrnn.InvalidArgument, "^threads = -1"):
            minrnn.from_state_dict(tensors, threads=-1)


if __name__ == "__main__":
    unittest.main()
