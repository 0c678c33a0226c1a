"""Memory that a context keeps for the next call is large enough for it."""
import unittest
import unittest.mock

from torch_support import arguments, loop, torch

from minrnn import _core, errors
from minrnn.torch import cell, ops, scan


class Rooms(unittest.TestCase):
    def setUp(self):
        self.context = _core.context_new("cpu", 1, False, False)  # none that other tests have filled
        patch = unittest.mock.patch.object(ops, "context", lambda device: self.context)
        patch.start()
        self.addCleanup(patch.stop)

    def test_each_call_needs_a_little_more_or_less(self):
        lengths = [*range(1, 60), *range(60, 0, -7)]
        for B in 1, 3:
            for T in lengths:
                x, weight, bias, h0, _ = arguments(B=B, T=T, D=3, H=1, dtype=torch.float32, grad=False)
                for grad in False, True:
                    h, last = cell(x, weight.requires_grad_(grad), bias, h0)
                    want, end = loop(x, weight, bias, h0)
                    torch.testing.assert_close((h, last), (want, end), rtol=1e-4, atol=1e-5)
                a = torch.sigmoid(x)
                want = [h0.expand(B, 1) * a[:, 0] + x[:, 0]]
                for t in range(1, T):
                    want.append(want[-1] * a[:, t] + x[:, t])
                torch.testing.assert_close(scan(a, x, h0.expand(B, 3))[0], torch.stack(want, 1), rtol=1e-4, atol=1e-5)

    def test_sizes_beyond_32_bits(self):
        for size in 2 ** 31, -1:
            with self.assertRaisesRegex(errors.Error, "is not a size"):
                _core.raw_scan_workspace(self.context, 0, 1, size, 1)


if __name__ == "__main__":
    unittest.main()
